//! Answering a request.

use std::sync::Arc;

use nix::errno::Errno;
use zerocopy::{Immutable, IntoBytes};

use super::abi::OutHeader;
use super::buffer::Outgoing;
use super::device::Device;

/// The answer to one request. One that is dropped unsent is `EIO`, so nobody waits forever.
pub(crate) struct Reply<'a> {
    device: &'a Arc<dyn Device>,
    unique: u64,
    memory: &'a mut Outgoing,
    is_due: bool,
}

impl<'a> Reply<'a> {
    /// The answer to request `unique`, which came from `device` and goes back there.
    pub(super) fn new(
        device: &'a Arc<dyn Device>,
        unique: u64,
        memory: &'a mut Outgoing,
    ) -> Reply<'a> {
        Reply {
            device,
            unique,
            memory,
            is_due: true,
        }
    }

    /// There is nothing to say.
    pub(crate) fn ok(self) {
        self.filled(0);
    }

    /// The call failed.
    pub(crate) fn error(mut self, errno: Errno) {
        self.send(-(errno as i32), 0);
    }

    /// Nothing, or the errno.
    pub(crate) fn done(self, result: Result<(), Errno>) {
        match result {
            Ok(()) => self.ok(),
            Err(errno) => self.error(errno),
        }
    }

    /// A body of fixed size.
    pub(crate) fn body(self, body: &(impl IntoBytes + Immutable)) {
        self.two(body, &[]);
    }

    /// A body of fixed size and some bytes.
    pub(crate) fn two(self, body: &(impl IntoBytes + Immutable), data: &[u8]) {
        let body = body.as_bytes();
        let length = body.len() + data.len();
        if length > self.memory.capacity() {
            return self.error(Errno::EIO);
        }
        let (first, second) = self.memory.body(length).split_at_mut(body.len());
        first.copy_from_slice(body);
        second.copy_from_slice(data);
        self.filled(length);
    }

    /// Bytes.
    pub(crate) fn data(self, data: &[u8]) {
        self.two(&(), data);
    }

    /// Where an answer of at most `size` bytes can be put before [`Reply::filled`]. Less when no
    /// answer can be as long.
    pub(crate) fn space(&mut self, size: usize) -> &mut [u8] {
        let size = size.min(self.memory.capacity());
        self.memory.body(size)
    }

    /// The first `length` bytes of the space are the answer.
    pub(crate) fn filled(mut self, length: usize) {
        self.send(0, length);
    }

    /// No answer is expected.
    pub(crate) fn none(mut self) {
        self.is_due = false;
    }

    /// The answer comes later, from any thread.
    pub(crate) fn later(mut self) -> Deferred {
        self.is_due = false;
        Deferred {
            device: Arc::clone(self.device),
            unique: self.unique,
        }
    }

    fn send(&mut self, error: i32, length: usize) {
        self.is_due = false;
        let message = self.memory.message(self.unique, error, length);
        // Fails when the caller was killed or the mount is gone: nobody waits then.
        let _ = self.device.send(message);
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        if self.is_due {
            self.send(-(Errno::EIO as i32), 0);
        }
    }
}

/// An answer that is still due.
#[derive(Debug)]
pub(crate) struct Deferred {
    device: Arc<dyn Device>,
    unique: u64,
}

impl Deferred {
    /// Number of the request.
    pub(crate) fn unique(&self) -> u64 {
        self.unique
    }

    /// Answers with nothing, or with the errno.
    pub(crate) fn done(self, result: Result<(), Errno>) {
        let header = OutHeader {
            len: size_of::<OutHeader>() as u32,
            error: result.err().map_or(0, |errno| -(errno as i32)),
            unique: self.unique,
        };
        let _ = self.device.send(header.as_bytes());
    }
}
