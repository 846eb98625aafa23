//! The standard streams of a command, opened through a mount that this process serves. A thread has them open
//! in its own descriptor table.
//!
//! Closing such a file is a request to the mount. A process that is killed closes its descriptors before it
//! ends: it would wait for its own answer for ever, and the device of the mount would never close. With a
//! separate table only one thread waits; the others close the device, which ends the mount, and the wait.

use std::convert::Infallible;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use nix::unistd::{Whence, lseek};

use crate::descriptor_table::spawn_apart;
use crate::mounting;

/// Streams in a separate descriptor table. When this is dropped, they are closed shortly after.
#[derive(Debug)]
pub(super) struct Apart {
    /// Number of streams that came.
    came: Receiver<usize>,
    /// Dropped when the streams are not needed any more.
    needed: Sender<Infallible>,
    thread: JoinHandle<Option<Vec<Option<i64>>>>,
}

impl Apart {
    /// Begins to receive `count` streams over a socket, sent by [`mounting::send_descriptor`]; any other byte
    /// stands for a missing stream.
    ///
    /// # Errors
    /// If no thread can be started, or the system refuses it its own table.
    pub(super) fn receive(socket: BorrowedFd<'_>, count: usize) -> io::Result<Apart> {
        let (report, came) = channel();
        let (needed, until) = channel();
        let hold = move |socket| {
            let streams = (0..count).map(|_| mounting::receive_descriptor(&socket).ok());
            let streams: Vec<Option<OwnedFd>> = streams.collect();
            drop(socket);
            let _ = report.send(streams.iter().flatten().count());
            let _ = until.recv();
            let position = |stream: &OwnedFd| lseek(stream, 0, Whence::SeekCur).ok();
            let positions = streams.iter().map(|stream| position(stream.as_ref()?));
            positions.collect::<Vec<_>>()
        };
        Ok(Apart {
            came,
            needed,
            // SAFETY: `hold` owns two ends of channels, which are memory.
            #[expect(unsafe_code)]
            thread: unsafe { spawn_apart(socket, hold) }?,
        })
    }

    /// Number of streams that came; waits until all have come.
    pub(super) fn came(&self) -> usize {
        self.came.recv().unwrap_or(0)
    }

    /// Closes the streams. Returns the position of each, in the order in which they came.
    pub(super) fn close(self) -> Vec<Option<i64>> {
        drop(self.needed);
        self.thread.join().ok().flatten().unwrap_or_default()
    }
}
