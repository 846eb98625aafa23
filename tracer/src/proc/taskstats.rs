//! Taskstats: costs of each thread, reported by the kernel when it ends
//! (Documentation/accounting/taskstats.rst).
//!
//! A record is in our queue before the proc connector announces the same exit.

mod record;

use std::io;

use super::netlink::{self, Received, Socket};
pub(super) use record::{ThreadRecord, records};

/// `NETLINK_GENERIC`.
const PROTOCOL: i32 = 16;
/// The family that knows the others (include/uapi/linux/genetlink.h), and the requests to it.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// `TASKSTATS_CMD_GET` with `TASKSTATS_CMD_ATTR_REGISTER_CPUMASK`: all that ends on these CPUs.
const GET: u8 = 1;
const REGISTER_CPUMASK: u16 = 3;
/// A record is less than 1 KiB, two of them at most come together.
const BUFFER: usize = 8192;

/// A listener.
#[derive(Debug)]
pub(super) struct Taskstats {
    socket: Socket,
    buffer: Box<[u8]>,
}

impl Taskstats {
    /// Gets the costs of every thread of the machine that ends from now on.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`, in namespaces of its own, and on kernels without
    /// `CONFIG_TASKSTATS`.
    pub(super) fn open() -> io::Result<Taskstats> {
        let mut taskstats = Taskstats {
            socket: Socket::open(PROTOCOL, 0)?,
            buffer: vec![0; BUFFER].into(),
        };
        let name = netlink::attribute(FAMILY_NAME, b"TASKSTATS\0");
        let family = taskstats.request(CONTROLLER, GET_FAMILY, &name)?;
        let family = family.ok_or_else(|| io::Error::other("the kernel has no taskstats"))?;
        let cpus = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
        let mut cpus = cpus.trim().as_bytes().to_vec();
        cpus.push(0);
        taskstats.request(family, GET, &netlink::attribute(REGISTER_CPUMASK, &cpus))?;
        Ok(taskstats)
    }

    /// Makes a request and reads the answer; returns the id of a family if that was asked for. The kernel
    /// answers before the request returns.
    fn request(&mut self, family: u16, command: u8, attribute: &[u8]) -> io::Result<Option<u16>> {
        /// `struct genlmsghdr`: command, version, reserved.
        const HEADER: usize = 4;
        let body = [&[command, 1, 0, 0], attribute].concat();
        let flags = netlink::REQUEST | netlink::ACKNOWLEDGE;
        self.socket.send(&netlink::message(family, flags, &body))?;
        let mut id = None;
        loop {
            let length = match self.socket.receive(&mut self.buffer)? {
                Received::Bytes(length) => length,
                Received::Nothing => continue,
                Received::Empty => return Err(io::ErrorKind::TimedOut.into()),
            };
            for message in netlink::messages(&self.buffer[..length]) {
                if message.kind == netlink::ERROR {
                    let answer = netlink::u32_at(message.body, 0).unwrap_or(0).cast_signed();
                    if answer != 0 {
                        return Err(io::Error::from_raw_os_error(answer.saturating_neg()));
                    }
                    return Ok(id);
                }
                let attributes = message.body.get(HEADER..).unwrap_or_default();
                if family == CONTROLLER {
                    let found =
                        netlink::attributes(attributes).find(|(kind, _)| *kind == FAMILY_ID);
                    id = id.or(found.and_then(|(_, id)| netlink::u16_at(id, 0)));
                }
            }
        }
    }

    /// Calls `each` with every record in the queue.
    pub(super) fn receive(&mut self, mut each: impl FnMut(ThreadRecord)) -> io::Result<()> {
        loop {
            match self.socket.receive(&mut self.buffer)? {
                Received::Bytes(length) => records(&self.buffer[..length]).for_each(&mut each),
                Received::Nothing => {}
                Received::Empty => return Ok(()),
            }
        }
    }

    /// Records that were dropped so far because the queue was full.
    pub(super) fn dropped(&self) -> u64 {
        self.socket.dropped()
    }
}

#[cfg(test)]
mod tests;
