//! The proc connector: the kernel's own announcements of forks, execs and exits
//! (include/uapi/linux/cn_proc.h).
//!
//! They concern the whole machine, carry process ids of the initial pid namespace, and do not describe the
//! process. An event is in our queue before the announced action goes on: a fork before the new process runs,
//! an exec before the program's first instruction. So the events of a process that is known from another
//! source are in the queue already. Only exits may come late.

mod event;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::prctl;
use nix::unistd::{getpid, gettid};

use event::GROUP;

use super::netlink::{self, Received, Socket};
pub(super) use event::{Event, What, events};

/// `NETLINK_CONNECTOR`.
const PROTOCOL: i32 = 11;
/// `PROC_CN_MCAST_LISTEN` and `PROC_CN_MCAST_IGNORE`.
const LISTEN: u32 = 1;
const IGNORE: u32 = 2;
/// More than any datagram of the connector.
const BUFFER: usize = 4096;

/// A listener.
#[derive(Debug)]
pub(super) struct Connector {
    socket: Socket,
    buffer: Box<[u8]>,
}

impl Connector {
    /// Listens from now on.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN` before Linux 6.6, in a network, user or pid namespace of its own,
    /// and on kernels without `CONFIG_PROC_EVENTS`.
    pub(super) fn open() -> io::Result<Connector> {
        let mut connector = Connector {
            socket: Socket::open(PROTOCOL, GROUP)?,
            buffer: vec![0; BUFFER].into(),
        };
        connector.order(LISTEN)?;
        // The kernel ignores the order silently in other namespaces, and process ids mean something else
        // there. So this thread does something that the connector reports: it sets the name that it has.
        prctl::set_name(&prctl::get_name()?)?;
        let own = What::Renamed {
            tid: gettid().as_raw() as u32,
            pid: getpid().as_raw() as u32,
        };
        let mut heard = Vec::new();
        connector.receive(|event| heard.push(event.what))?;
        if heard.contains(&own) {
            return Ok(connector);
        }
        Err(io::Error::other(
            "the kernel does not report processes outside the initial namespaces",
        ))
    }

    /// Calls `each` with every event in the queue, in the order of the queue.
    pub(super) fn receive(&mut self, mut each: impl FnMut(Event)) -> io::Result<()> {
        loop {
            match self.socket.receive(&mut self.buffer)? {
                Received::Bytes(length) => events(&self.buffer[..length]).for_each(&mut each),
                Received::Nothing => {}
                Received::Empty => return Ok(()),
            }
        }
    }

    /// Events that were dropped so far because the queue was full.
    pub(super) fn dropped(&self) -> u64 {
        self.socket.dropped()
    }

    fn order(&self, order: u32) -> io::Result<()> {
        let mut body = Vec::with_capacity(24);
        // `struct cn_msg`: the module's address, sequence and acknowledgement, length, flags.
        for word in [GROUP, GROUP, 0, 0, size_of::<u32>() as u32] {
            body.extend(word.to_ne_bytes());
        }
        body.extend(order.to_ne_bytes());
        /// `NLMSG_DONE`, by which connector messages go.
        const DONE: u16 = 3;
        self.socket.send(&netlink::message(DONE, 0, &body))
    }
}

impl AsFd for Connector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        // The kernel counts listeners, and makes events as long as there seems to be one; it does not notice
        // that a socket was closed.
        let _ = self.order(IGNORE);
    }
}

#[cfg(test)]
mod tests;
