//! Internet sockets as the kernel describes them: sock_diag(7), a family of netlink
//! (include/uapi/linux/inet_diag.h, `struct tcp_info` of tcp.h).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};

use flowtrace_net::flows::{TCP, TcpInfo};

use crate::proc::netlink::{self, Received, attributes, messages, u16_at, u32_at, u64_at};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `NLM_F_DUMP`: all sockets.
const DUMP: u16 = 0x300;
const DONE: u16 = 3;
/// The groups that get the ends of TCP connections (`SKNLGRP_INET_TCP_DESTROY`, of IPv6), and those of UDP
/// sockets.
const TCP_ENDS: u32 = 1 << 0 | 1 << 2;
const UDP_ENDS: u32 = 1 << 1 | 1 << 3;

/// `INET_DIAG_INFO`, `INET_DIAG_CONG`, `INET_DIAG_PROTOCOL`.
const INFO: u16 = 2;
const CONGESTION: u16 = 4;
const PROTOCOL: u16 = 10;

/// States of connections that have counters: not of listening sockets, and not of the rest of closed ones
/// (`TCP_TIME_WAIT`).
const STATES: u32 = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;

/// `struct inet_diag_sockid`, and the fields before it in `struct inet_diag_msg`.
const ID: usize = 4;
const COOKIE: usize = ID + 40;
const MESSAGE: usize = 72;

/// A socket as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) protocol: u8,
    pub(crate) local: SocketAddr,
    /// `None`: any.
    pub(crate) peer: Option<SocketAddr>,
    /// The kernel's number of the socket, which no other socket has before the machine starts again.
    pub(crate) cookie: Option<NonZeroU64>,
    /// Its inode; `None`: no process has it open any more.
    pub(crate) inode: Option<u64>,
    pub(crate) info: Option<TcpInfo>,
    pub(crate) congestion: Option<String>,
}

/// Reads the known part of `struct tcp_info`, which grows with the kernel.
fn tcp_info(bytes: &[u8]) -> TcpInfo {
    let microseconds = |us: u64| us.saturating_mul(1000);
    let known = |at: usize| u32_at(bytes, at).filter(|us| !matches!(*us, 0 | u32::MAX));
    TcpInfo {
        rtt_ns: known(68).map(|us| microseconds(us.into())),
        retransmits: u32_at(bytes, 100).map(u64::from),
        bytes_acked: u64_at(bytes, 120),
        bytes_received: u64_at(bytes, 128),
        min_rtt_ns: known(148).map(|us| microseconds(us.into())),
        delivery_rate: u64_at(bytes, 160).filter(|rate| *rate > 0),
        busy_ns: u64_at(bytes, 168).map(microseconds),
        rwnd_limited_ns: u64_at(bytes, 176).map(microseconds),
        sndbuf_limited_ns: u64_at(bytes, 184).map(microseconds),
    }
}

/// Asks about the sockets of the network namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Diag {
    asking: netlink::Socket,
    /// Socket on which the ends of connections are reported; `None`: the kernel does not report them.
    ends: Option<netlink::Socket>,
    buffer: Vec<u8>,
}

impl Diag {
    /// Opens the sockets. The ends of datagram sockets are reported only if `wants_udp`.
    pub(crate) fn open(wants_udp: bool) -> io::Result<Diag> {
        let groups = if wants_udp {
            TCP_ENDS | UDP_ENDS
        } else {
            TCP_ENDS
        };
        Ok(Diag {
            asking: netlink::Socket::open(libc::NETLINK_SOCK_DIAG, 0)?,
            ends: netlink::Socket::open(libc::NETLINK_SOCK_DIAG, groups).ok(),
            buffer: vec![0; 64 << 10],
        })
    }

    /// Becomes readable when a connection has ended.
    pub(crate) fn ends(&self) -> Option<BorrowedFd<'_>> {
        self.ends.as_ref().map(AsFd::as_fd)
    }

    /// All sockets of a protocol that are connected, of UDP all that have an address.
    pub(crate) fn all(&mut self, protocol: u8, each: &mut dyn FnMut(Described)) -> io::Result<()> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            self.asking.send(&request(family as u8, protocol))?;
            self.answers(protocol, each)?;
        }
        Ok(())
    }

    fn answers(&mut self, protocol: u8, each: &mut dyn FnMut(Described)) -> io::Result<()> {
        loop {
            match self.asking.receive(&mut self.buffer)? {
                Received::Bytes(length) => {
                    if describe(&self.buffer[..length], protocol, each) {
                        return Ok(());
                    }
                }
                Received::Nothing => {}
                // The kernel answers during the request.
                Received::Empty => return Ok(()),
            }
        }
    }

    /// Connections that have ended since the last time, and datagram sockets if these are wanted.
    pub(crate) fn ended(&mut self, each: &mut dyn FnMut(Described)) -> io::Result<()> {
        let Some(ends) = &self.ends else {
            return Ok(());
        };
        loop {
            match ends.receive(&mut self.buffer)? {
                Received::Bytes(length) => {
                    describe(&self.buffer[..length], TCP, each);
                }
                Received::Nothing => {}
                Received::Empty => return Ok(()),
            }
        }
    }
}

/// `struct inet_diag_req_v2` behind its header.
fn request(family: u8, protocol: u8) -> Vec<u8> {
    let (wanted, states) = match protocol {
        TCP => (1 << (INFO - 1) | 1 << (CONGESTION - 1), STATES),
        _ => (0, u32::MAX),
    };
    let mut body = vec![family, protocol, wanted, 0];
    body.extend(states.to_ne_bytes());
    body.resize(56, 0);
    netlink::message(SOCK_DIAG_BY_FAMILY, netlink::REQUEST | DUMP, &body)
}

/// Calls `each` with the sockets in an answer; true if it was the last.
pub(crate) fn describe(answer: &[u8], protocol: u8, each: &mut dyn FnMut(Described)) -> bool {
    for message in messages(answer) {
        match message.kind {
            DONE | netlink::ERROR => return true,
            SOCK_DIAG_BY_FAMILY => {
                if let Some(described) = socket(message.body, protocol) {
                    each(described);
                }
            }
            _ => {}
        }
    }
    false
}

fn socket(body: &[u8], mut protocol: u8) -> Option<Described> {
    let family = *body.first()?;
    let port = |at: usize| u16_at(body, at).map(u16::from_be);
    let address = |at: usize| -> Option<IpAddr> {
        let bytes = body.get(at..at + 16)?;
        match i32::from(family) {
            libc::AF_INET => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
            libc::AF_INET6 => {
                let octets: [u8; 16] = bytes.try_into().ok()?;
                Some(Ipv6Addr::from(octets).to_canonical())
            }
            _ => None,
        }
    };
    let local = SocketAddr::new(address(ID + 4)?, port(ID)?);
    let peer = SocketAddr::new(address(ID + 20)?, port(ID + 2)?);
    let inode = u32_at(body, MESSAGE - 4)?;
    let (mut info, mut congestion) = (None, None);
    for (kind, value) in attributes(body.get(MESSAGE..)?) {
        match kind {
            // The report of an end has the protocol, before the rest.
            PROTOCOL => protocol = *value.first()?,
            INFO if protocol == TCP => info = Some(tcp_info(value)),
            CONGESTION => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                congestion = Some(String::from_utf8_lossy(name).into_owned());
            }
            _ => {}
        }
    }
    Some(Described {
        protocol,
        local,
        peer: (peer.port() != 0).then_some(peer),
        cookie: u64_at(body, COOKIE).and_then(NonZeroU64::new),
        inode: (inode != 0).then(|| inode.into()),
        info,
        congestion,
    })
}

#[cfg(test)]
mod tests {
    use flowtrace_net::flows::UDP;

    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    fn inode(descriptor: &impl AsRawFd) -> u64 {
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        std::fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn a_connection_is_described_at_both_ends_and_at_its_end() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let mut diag = Diag::open(true).unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, peer) = listener.accept().unwrap();
            client.write_all(&[1; 5000]).unwrap();
            server.read_exact(&mut [0; 5000]).unwrap();
            let mut found = Vec::new();
            diag.all(TCP, &mut |socket| found.push(socket)).unwrap();
            let of = |inode| {
                let mut ours = found.iter().filter(|socket| socket.inode == Some(inode));
                (ours.next().unwrap(), ours.count())
            };
            let (at_client, 0) = of(inode(&client)) else {
                panic!("described twice");
            };
            assert_eq!(at_client.local, peer);
            assert_eq!(at_client.peer, server.local_addr().ok());
            assert!(at_client.info.unwrap().min_rtt_ns.is_some());
            assert!(
                at_client
                    .congestion
                    .as_ref()
                    .is_some_and(|name| !name.is_empty())
            );
            let (at_server, _) = of(inode(&server));
            assert_eq!(at_server.info.unwrap().bytes_received, Some(5000));
            drop((client, server));
            let mut ended = Vec::new();
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while !ended.iter().any(|end: &Described| end.local == peer) {
                diag.ended(&mut |socket| ended.push(socket)).unwrap();
                assert!(
                    std::time::Instant::now() < deadline,
                    "the end was not reported"
                );
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let end = ended.iter().find(|end| end.local == peer).unwrap();
            assert_eq!(end.cookie, at_client.cookie);
            assert!(at_client.cookie.is_some() && at_client.cookie != at_server.cookie);
            // The FIN counts as one.
            assert!(matches!(end.info.unwrap().bytes_acked, Some(5000..=5002)));
        }
    }

    #[test]
    fn sockets_of_datagrams_have_inodes() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut found = Vec::new();
        let mut diag = Diag::open(true).unwrap();
        diag.all(UDP, &mut |socket| found.push(socket)).unwrap();
        let ours = found.iter().find(|s| s.inode == Some(inode(&socket)));
        assert_eq!(ours.unwrap().local, socket.local_addr().unwrap());
        assert_eq!(ours.unwrap().peer, None);
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (cookie, local) = (ours.unwrap().cookie, socket.local_addr().unwrap());
        socket.send_to(&[1], other.local_addr().unwrap()).unwrap();
        drop(socket);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let mut ended = Vec::new();
        while !ended.iter().any(|end: &Described| end.cookie == cookie) {
            diag.ended(&mut |socket| ended.push(socket)).unwrap();
            assert!(
                std::time::Instant::now() < deadline,
                "the end was not reported"
            );
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let end = ended.iter().find(|end| end.cookie == cookie).unwrap();
        assert_eq!((end.protocol, end.local.port()), (UDP, local.port()));
    }
}
