//! The standard streams of a command, opened through a view that this process serves: a thread holds them in a table
//! of descriptors of its own.
//!
//! Closing such a file is a request to the view. A process that is killed closes what it has before it is gone: it would
//! wait for its own answer, for ever, and the device of the view would never close. Held like this, one thread alone
//! waits: the others close the device, which ends the view, and the wait.

#![expect(unsafe_code)]

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use nix::unistd::{Whence, lseek};

use crate::mounting;
use crate::proc::descriptors::keep_only;

/// Streams that are held apart. Dropped, they are closed a moment later.
#[derive(Debug)]
pub(super) struct Apart {
    /// How many came.
    came: Receiver<usize>,
    /// Dropped when they are needed no more.
    needed: Sender<Infallible>,
    thread: JoinHandle<Vec<Option<i64>>>,
}

impl Apart {
    /// Begins to receive `count` streams over a socket, as [`mounting::send_descriptor`] sends them; any other byte stands
    /// for one that there is not.
    ///
    /// # Errors
    /// When there is no room for a thread, or the system refuses it a table of its own.
    pub(super) fn receive(socket: BorrowedFd<'_>, count: usize) -> io::Result<Apart> {
        let socket = socket.as_raw_fd();
        let (ready, is_ready) = channel();
        let (tell, came) = channel();
        let (needed, until) = channel();
        let hold = move || {
            // What the runtime has to say goes to the standard streams, and to no file that gets their number.
            let kept = [0, 1, 2, socket];
            // SAFETY: of descriptors this thread has the number of the socket alone.
            let own = unsafe { keep_only(&kept) };
            let is_own = own.is_ok();
            let _ = ready.send(own);
            if !is_own {
                return Vec::new();
            }
            // SAFETY: in this thread's table nobody else knows the number.
            let socket = unsafe { OwnedFd::from_raw_fd(socket) };
            let streams = (0..count).map(|_| mounting::receive_descriptor(&socket).ok());
            let streams: Vec<Option<OwnedFd>> = streams.collect();
            drop(socket);
            let _ = tell.send(streams.iter().flatten().count());
            let _ = until.recv();
            let position = |stream: &OwnedFd| lseek(stream, 0, Whence::SeekCur).ok();
            let positions = streams.iter().map(|stream| position(stream.as_ref()?));
            positions.collect()
        };
        let thread = Builder::new().name("apart".into()).spawn(hold)?;
        is_ready.recv().map_err(io::Error::other)??;
        Ok(Apart {
            came,
            needed,
            thread,
        })
    }

    /// How many came, once all are there that come.
    pub(super) fn came(&self) -> usize {
        self.came.recv().unwrap_or(0)
    }

    /// Closes the streams. Returns where each was, in the order in which they were to come.
    pub(super) fn close(self) -> Vec<Option<i64>> {
        drop(self.needed);
        self.thread.join().unwrap_or_default()
    }
}
