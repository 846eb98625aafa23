//! The device over which the kernel sends requests.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::unistd::{read, write};
use zerocopy::IntoBytes;

use super::abi::{InHeader, OutHeader};
use super::buffer::{Incoming, Outgoing};
use super::reply::{Carrier, Late, Reply, Then};
use super::request::{self, Body};
use crate::fs::sys::device;

/// Source of requests and destination of replies: `/dev/fuse`, or a script of a test.
pub(crate) trait Device: Debug + Send + Sync {
    /// Waits for a request; returns its length.
    ///
    /// # Errors
    /// `ENODEV` if the mount is gone, `ECONNABORTED` if it was ended by force.
    fn receive(&self, message: &mut [u8]) -> Result<usize, Errno>;

    /// Sends a reply.
    ///
    /// # Errors
    /// `ENOENT` if no process waits for it any more.
    fn send(&self, message: &[u8]) -> Result<(), Errno>;
}

/// An open `/dev/fuse` that belongs to a mount.
#[derive(Debug)]
pub(crate) struct KernelDevice(OwnedFd);

impl KernelDevice {
    pub(crate) fn new(fd: OwnedFd) -> KernelDevice {
        KernelDevice(fd)
    }

    /// Another descriptor of the same mount, with its own queue of received requests.
    ///
    /// # Errors
    /// If `/dev/fuse` cannot be opened.
    pub(crate) fn another(&self) -> io::Result<KernelDevice> {
        device::another(self.0.as_fd()).map(KernelDevice)
    }
}

impl AsFd for KernelDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Device for KernelDevice {
    fn receive(&self, message: &mut [u8]) -> Result<usize, Errno> {
        read(&self.0, message)
    }

    fn send(&self, message: &[u8]) -> Result<(), Errno> {
        write(&self.0, message).map(drop)
    }
}

/// Answers requests.
pub(crate) trait Serve: Send + Sync {
    /// Answers one request.
    fn serve(&self, header: &InHeader, body: Body<'_>, reply: Reply<'_>);
}

/// Serves the requests of `device`, with at most `largest` bytes of data in a message, until the mount is
/// gone.
///
/// # Errors
/// Any other error of the device.
pub(crate) fn serve(
    device: &Arc<dyn Device>,
    largest: usize,
    server: &impl Serve,
) -> Result<(), Errno> {
    let mut incoming = Incoming::new(largest);
    let mut outgoing = Outgoing::new(largest);
    loop {
        let length = match device.receive(incoming.space()) {
            Ok(length) => length,
            // The kernel cancelled the request before it was read.
            Err(Errno::ENOENT | Errno::EINTR | Errno::EAGAIN) => continue,
            Err(Errno::ENODEV | Errno::ECONNABORTED) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        if let Ok((header, body)) = request::parse(incoming.message(length)) {
            let mut carrier = Written {
                device,
                memory: &mut outgoing,
            };
            server.serve(&header, body, Reply::new(&mut carrier, header.unique));
        }
    }
}

/// An answer that is written to the device.
struct Written<'a> {
    device: &'a Arc<dyn Device>,
    memory: &'a mut Outgoing,
}

impl Carrier for Written<'_> {
    fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    fn body(&mut self, length: usize) -> &mut [u8] {
        self.memory.body(length)
    }

    fn send(&mut self, unique: u64, error: i32, length: usize) {
        let message = self.memory.message(unique, error, length);
        // Fails if the caller was killed or the mount is gone: no process waits then.
        let _ = self.device.send(message);
    }

    fn then(&mut self, then: Then) {
        then();
    }

    fn later(&mut self) -> Arc<dyn Late> {
        Arc::new(Later(Arc::clone(self.device)))
    }
}

/// Answers that are written to the device later.
#[derive(Debug)]
struct Later(Arc<dyn Device>);

impl Late for Later {
    fn answer(&self, unique: u64, error: i32) {
        let header = OutHeader {
            len: size_of::<OutHeader>() as u32,
            error,
            unique,
        };
        let _ = self.0.send(header.as_bytes());
    }
}
