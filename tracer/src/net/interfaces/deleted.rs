//! Interfaces that are deleted, or leave their network namespace, as rtnetlink(7) reports them.

use std::collections::HashMap;
use std::io;

use crate::proc::netlink::{self, Received, attributes, messages, u32_at};

/// `RTMGRP_LINK`.
const LINKS: u32 = 1;
const RTM_DELLINK: u16 = 17;
/// `struct ifinfomsg`, the offset of its index, and `IFLA_IFNAME`.
const MESSAGE: usize = 16;
const INDEX: usize = 4;
const NAME: u16 = 3;

/// Listener for deleted interfaces of the network namespace in which it was opened.
#[derive(Debug)]
pub(in crate::net) struct Deleted {
    socket: netlink::Socket,
    buffer: Vec<u8>,
    all: HashMap<u32, Deletion>,
}

/// An interface that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::net) struct Deletion {
    /// Time when that was noticed.
    pub(in crate::net) t_ns: i64,
    /// Its name then.
    pub(in crate::net) name: Option<String>,
}

impl Deleted {
    pub(in crate::net) fn open() -> io::Result<Deleted> {
        Ok(Deleted {
            socket: netlink::Socket::open(libc::NETLINK_ROUTE, LINKS)?,
            buffer: vec![0; 64 << 10],
            all: HashMap::new(),
        })
    }

    /// Reads the reports until `t_ns`.
    pub(in crate::net) fn read(&mut self, t_ns: i64) {
        while let Ok(received @ (Received::Bytes(_) | Received::Nothing)) =
            self.socket.receive(&mut self.buffer)
        {
            if let Received::Bytes(length) = received {
                for (index, name) in deletions(&self.buffer[..length]) {
                    self.all.insert(index, Deletion { t_ns, name });
                }
            }
        }
    }

    /// All so far, by index.
    pub(in crate::net) fn all(&self) -> &HashMap<u32, Deletion> {
        &self.all
    }
}

/// Index and name of each interface whose end a datagram reports.
fn deletions(datagram: &[u8]) -> impl Iterator<Item = (u32, Option<String>)> {
    messages(datagram).filter_map(|message| {
        // A bridge reports the loss of a port in its own family.
        let is_whole = message.body.first() == Some(&(libc::AF_UNSPEC as u8));
        if message.kind != RTM_DELLINK || !is_whole {
            return None;
        }
        let index = u32_at(message.body, INDEX)?;
        let mut names = attributes(message.body.get(MESSAGE..)?);
        let name = names.find(|(kind, _)| *kind == NAME).map(|(_, value)| {
            let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        });
        Some((index, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_has_index_and_name() {
        let reported = |kind, family, index: u32| {
            let mut body = vec![family, 0, 1, 0];
            body.extend(index.to_ne_bytes());
            body.resize(MESSAGE, 0);
            body.extend(netlink::attribute(1, &[2; 6]));
            body.extend(netlink::attribute(NAME, b"veth7\0"));
            netlink::message(kind, 0, &body)
        };
        let datagram = [
            reported(RTM_DELLINK, 0, 7),
            // A new interface, and a port of a bridge.
            reported(16, 0, 8),
            reported(RTM_DELLINK, 7, 9),
        ]
        .concat();
        let found: Vec<_> = deletions(&datagram).collect();
        assert_eq!(found, [(7, Some("veth7".to_owned()))]);
        for length in 0..datagram.len() {
            assert!(deletions(&datagram[..length]).count() <= 1);
        }
    }
}
