//! What lies in a pipe to which nobody can add when a program begins, such as a here-document: read at once by a thread that does nothing
//! else, for the program will read it soon.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::super::channels::unread;
use super::program::NUMBERED;
use super::record::half;
use crate::bpf::ring::Ring;
use crate::priority;

/// Contents that are kept for who asks for them; then the memory starts anew.
const KEPT: usize = 1 << 10;
/// Of a record: the thread, and its process.
const PROCESS: usize = 4;

#[derive(Debug, Default)]
struct Read {
    /// By the inode of the pipe.
    all: Mutex<HashMap<u64, String>>,
    is_more: Condvar,
}

/// What was read.
#[derive(Debug)]
pub(crate) struct Contents {
    read: Arc<Read>,
    /// The thread ends when this is closed.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Contents {
    /// Begins to read what the processes have of which this ring tells.
    ///
    /// # Errors
    /// When there can be no thread for it.
    pub(super) fn of(mut told: Ring) -> io::Result<Contents> {
        let (stop, stopped) = UnixStream::pair()?;
        let read: Arc<Read> = Arc::default();
        let kept = Arc::clone(&read);
        let run = move || {
            priority::at_once();
            while !is_closed(&told, &stopped) {
                let mut processes = Vec::new();
                told.drain(|record| processes.extend(half(record, PROCESS)));
                for pid in processes {
                    let found = unread::contents_of(pid, 0..NUMBERED.cast_signed());
                    let mut all = kept.all.lock().unwrap_or_else(PoisonError::into_inner);
                    if all.len() >= KEPT {
                        all.clear();
                    }
                    all.extend(found);
                    kept.is_more.notify_all();
                }
            }
        };
        Ok(Contents {
            read,
            stop: Some(stop),
            thread: Some(thread::Builder::new().name("contents".into()).spawn(run)?),
        })
    }

    /// What lay in the pipe with this inode, if it was read in time; it is asked for once. Waits for as `long` as it may just be being
    /// read.
    pub(super) fn take(&self, inode: u64, long: Duration) -> Option<String> {
        let all = self.read.all.lock().unwrap_or_else(PoisonError::into_inner);
        let is_missing = |all: &mut HashMap<u64, String>| !all.contains_key(&inode);
        let waited = self.read.is_more.wait_timeout_while(all, long, is_missing);
        let (mut all, _) = waited.unwrap_or_else(PoisonError::into_inner);
        all.remove(&inode)
    }
}

/// Waits until there is something to read, or to do no more.
fn is_closed(told: &Ring, stopped: &UnixStream) -> bool {
    let mut ready = [told.as_fd(), stopped.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    let _ = poll(&mut ready, PollTimeout::NONE);
    ready[1].revents().is_some_and(|got| !got.is_empty())
}

impl Drop for Contents {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
