//! The standard streams of a command, opened through a view that this process serves: a thread holds them in a table
//! of descriptors of its own.
//!
//! Closing such a file is a request to the view. A process that is killed closes what it has before it is gone: it would
//! wait for its own answer, for ever, and the device of the view would never close. Held like this, one thread alone
//! waits: the others close the device, which ends the view, and the wait.

use std::convert::Infallible;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use nix::unistd::{Whence, lseek};

use crate::descriptor_table::spawn_apart;
use crate::mounting;

/// Streams that are held apart. Dropped, they are closed a moment later.
#[derive(Debug)]
pub(super) struct Apart {
    /// How many came.
    came: Receiver<usize>,
    /// Dropped when they are needed no more.
    needed: Sender<Infallible>,
    thread: JoinHandle<Option<Vec<Option<i64>>>>,
}

impl Apart {
    /// Begins to receive `count` streams over a socket, as [`mounting::send_descriptor`] sends them; any other byte stands
    /// for one that there is not.
    ///
    /// # Errors
    /// When there is no room for a thread, or the system refuses it a table of its own.
    pub(super) fn receive(socket: BorrowedFd<'_>, count: usize) -> io::Result<Apart> {
        let (tell, came) = channel();
        let (needed, until) = channel();
        let hold = move |socket| {
            let streams = (0..count).map(|_| mounting::receive_descriptor(&socket).ok());
            let streams: Vec<Option<OwnedFd>> = streams.collect();
            drop(socket);
            let _ = tell.send(streams.iter().flatten().count());
            let _ = until.recv();
            let position = |stream: &OwnedFd| lseek(stream, 0, Whence::SeekCur).ok();
            let positions = streams.iter().map(|stream| position(stream.as_ref()?));
            positions.collect::<Vec<_>>()
        };
        Ok(Apart {
            came,
            needed,
            // SAFETY: `hold` holds two ends of channels, which are memory.
            #[expect(unsafe_code)]
            thread: unsafe { spawn_apart(socket, hold) }?,
        })
    }

    /// How many came, once all are there that come.
    pub(super) fn came(&self) -> usize {
        self.came.recv().unwrap_or(0)
    }

    /// Closes the streams. Returns where each was, in the order in which they were to come.
    pub(super) fn close(self) -> Vec<Option<i64>> {
        drop(self.needed);
        self.thread.join().ok().flatten().unwrap_or_default()
    }
}
