//! Answers to requests.

use std::fmt::Debug;
use std::sync::Arc;

use nix::errno::Errno;
use zerocopy::{Immutable, IntoBytes};

/// Sends the answer to one request to the kernel.
pub(crate) trait Carrier {
    /// Largest answer.
    fn capacity(&self) -> usize;

    /// Memory for the first `length` bytes of the answer; `length` is at most the capacity.
    fn body(&mut self, length: usize) -> &mut [u8];

    /// Sends the answer to request `unique`: `length` bytes of the body.
    fn send(&mut self, unique: u64, error: i32, length: usize);

    /// Does something once the kernel has the answer that was sent.
    fn then(&mut self, then: Then);

    /// The answer comes later.
    fn later(&mut self) -> Arc<dyn Late>;
}

/// Action after an answer.
pub(crate) type Then = Box<dyn FnOnce()>;

/// Sends answers without a body to the kernel, from any thread.
pub(crate) trait Late: Debug + Send + Sync {
    /// Sends the answer to request `unique`.
    fn answer(&self, unique: u64, error: i32);
}

/// The answer to one request. If it is dropped unsent, the answer is `EIO`, so that no process waits forever.
pub(crate) struct Reply<'a> {
    carrier: &'a mut dyn Carrier,
    unique: u64,
    is_due: bool,
}

impl<'a> Reply<'a> {
    /// The answer to request `unique`.
    pub(super) fn new(carrier: &'a mut dyn Carrier, unique: u64) -> Reply<'a> {
        Reply {
            carrier,
            unique,
            is_due: true,
        }
    }

    /// Answers with success and no body.
    pub(crate) fn ok(self) {
        self.filled(0);
    }

    /// Answers with an error.
    pub(crate) fn error(mut self, errno: Errno) {
        self.send(-(errno as i32), 0);
    }

    /// Answers with success and no body, or with the errno.
    pub(crate) fn done(self, result: Result<(), Errno>) {
        match result {
            Ok(()) => self.ok(),
            Err(errno) => self.error(errno),
        }
    }

    /// Answers with a body of fixed size.
    pub(crate) fn body(self, body: &(impl IntoBytes + Immutable)) {
        self.two(body, &[]);
    }

    /// Answers with a body of fixed size and some bytes.
    pub(crate) fn two(self, body: &(impl IntoBytes + Immutable), data: &[u8]) {
        let body = body.as_bytes();
        let length = body.len() + data.len();
        if length > self.carrier.capacity() {
            return self.error(Errno::EIO);
        }
        let (first, second) = self.carrier.body(length).split_at_mut(body.len());
        first.copy_from_slice(body);
        second.copy_from_slice(data);
        self.filled(length);
    }

    /// Answers with bytes.
    pub(crate) fn data(self, data: &[u8]) {
        self.two(&(), data);
    }

    /// Memory for an answer of at most `size` bytes, to be filled before [`Reply::filled`]. It is smaller if
    /// no answer can be as long.
    pub(crate) fn space(&mut self, size: usize) -> &mut [u8] {
        let size = size.min(self.carrier.capacity());
        self.carrier.body(size)
    }

    /// Answers with the first `length` bytes of the space.
    pub(crate) fn filled(mut self, length: usize) {
        self.send(0, length);
    }

    /// As [`Reply::filled`]; `then` is called once the kernel has the answer. It must not wait for the
    /// kernel, which may have given this thread the next request by then.
    pub(crate) fn filled_then(mut self, length: usize, then: impl FnOnce() + 'static) {
        self.send(0, length);
        self.carrier.then(Box::new(then));
    }

    /// Sends no answer, because none is expected.
    pub(crate) fn none(mut self) {
        self.is_due = false;
    }

    /// The answer comes later, from any thread.
    pub(crate) fn later(mut self) -> Deferred {
        self.is_due = false;
        Deferred {
            carrier: self.carrier.later(),
            unique: self.unique,
        }
    }

    fn send(&mut self, error: i32, length: usize) {
        self.is_due = false;
        self.carrier.send(self.unique, error, length);
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
    carrier: Arc<dyn Late>,
    unique: u64,
}

impl Deferred {
    /// Number of the request.
    pub(crate) fn unique(&self) -> u64 {
        self.unique
    }

    /// Answers with success and no body, or with the errno.
    pub(crate) fn done(self, result: Result<(), Errno>) {
        let error = result.err().map_or(0, |errno| -(errno as i32));
        self.carrier.answer(self.unique, error);
    }
}
