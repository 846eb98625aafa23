//! Packets from the kernel: an AF_PACKET socket with a TPACKET_V3 ring
//! (Documentation/networking/packet_mmap.rst).
//!
//! The order of calls lets no packet of another interface in and loses none silently: the socket
//! begins without a protocol, and gets one only when filter and ring are there.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use flowtrace_schema::{Way, marks};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::SocketError;

use super::interfaces::{ARPHRD_ETHER, ARPHRD_LOOPBACK, Interface};
use flowtrace_net::filter::{self, Filter};

mod map;

use map::Map;

/// Bytes of a block; the kernel passes whole blocks.
const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 16;
/// Blocks of a ring of all interfaces, of which there may be many.
const BLOCKS_OF_ALL: usize = 8;
const FRAME: usize = 2048;
/// Time after which the kernel passes a block that is not full.
pub(super) const RETIRE_MS: u32 = 20;

/// Linux 6.3; not in the headers of libc.
const TP_STATUS_GSO_TCP: u32 = 1 << 8;

/// A packet in a block of the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingFrame<'a> {
    /// `CLOCK_REALTIME` of the kernel.
    pub(super) unix_ns: i64,
    /// Index of its interface.
    pub(super) interface: u32,
    pub(super) bytes: &'a [u8],
    pub(super) wire_bytes: u32,
    pub(super) way: Way,
    pub(super) marks: u8,
}

/// Counters of the kernel since the last reading.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Packets that passed the filter, dropped ones included.
    pub(super) packets: u64,
    pub(super) drops: u64,
}

/// A capturing socket.
#[derive(Debug)]
pub(super) struct Ring {
    socket: OwnedFd,
    map: Map,
    next: usize,
    blocks: usize,
    /// True if it captures all interfaces, present and future.
    is_of_all: bool,
    /// True if the interface was down or away since.
    had_error: bool,
}

impl Ring {
    /// Captures all packets of `interface` from now on.
    pub(super) fn open(interface: &Interface, snap: u32, wanted: &Filter) -> io::Result<Ring> {
        Ring::of(Some(interface), snap, wanted)
    }

    /// Captures all packets of any interface of this thread's network namespace, future ones, too.
    pub(super) fn open_all(snap: u32, wanted: &Filter) -> io::Result<Ring> {
        Ring::of(None, snap, wanted)
    }

    fn of(interface: Option<&Interface>, snap: u32, wanted: &Filter) -> io::Result<Ring> {
        // Frames of Ethernet whole; of other kinds only the part behind the link layer.
        let kind = if interface.is_none_or(Interface::is_ethernet) {
            libc::SOCK_RAW
        } else {
            libc::SOCK_DGRAM
        };
        let socket = map::packet_socket(kind | libc::SOCK_CLOEXEC)?;
        let fd = socket.as_raw_fd();
        map::set(
            fd,
            libc::PACKET_VERSION,
            &libc::tpacket_versions::TPACKET_V3,
        )?;
        filter::attach(socket.as_fd(), &wanted.program(snap))?;
        if interface.is_some_and(Interface::is_loopback) {
            // Each packet passes twice on loopback; older kernels do not know that option.
            const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
            let _ = map::set(fd, PACKET_IGNORE_OUTGOING, &1_i32);
        }
        let blocks = match interface {
            Some(_) => BLOCKS,
            None => BLOCKS_OF_ALL,
        };
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: FRAME as u32,
            tp_frame_nr: (BLOCK / FRAME * blocks) as u32,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        map::set(fd, libc::PACKET_RX_RING, &request)?;
        let map = Map::new(socket.as_fd(), BLOCK * blocks)?;
        map::bind(fd, interface.map_or(0, |interface| interface.index))?;
        Ok(Ring {
            socket,
            map,
            next: 0,
            blocks,
            is_of_all: interface.is_none(),
            had_error: false,
        })
    }

    /// Waits for a block, at most for `timeout`. An interface that goes down or away is an error of the
    /// socket until the error is read (`packet_notifier`, net/packet/af_packet.c): until then, every wait
    /// would end at once.
    pub(super) fn wait(&mut self, timeout: PollTimeout) {
        let mut waiting = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut waiting, timeout);
        let is_error = |found: PollFlags| found.contains(PollFlags::POLLERR);
        if waiting[0].revents().is_some_and(is_error) {
            let _ = getsockopt(&self.socket, SocketError);
            self.had_error = true;
        }
    }

    /// True if its interface is gone: the kernel then binds the socket to none, for good. An interface that
    /// is only down comes back.
    pub(super) fn is_orphan(&self) -> bool {
        self.had_error && map::bound(self.socket.as_raw_fd()).is_ok_and(|index| index == -1)
    }

    /// True if it may have packets of several interfaces.
    pub(super) fn is_of_all(&self) -> bool {
        self.is_of_all
    }

    /// The interfaces of packets in the next block that are not known, with their kinds.
    pub(super) fn interfaces(&self, is_known: impl Fn(u32) -> bool) -> Vec<(u32, u16)> {
        let mut found = Vec::new();
        if let Some(block) = self.ready() {
            walk(block, |offset, _| {
                let address = Address::at(block, offset);
                let of = address.map(|address| (address.interface, address.kind));
                found.extend(of.filter(|of| !is_known(of.0)));
            });
            found.sort_unstable();
            found.dedup_by_key(|of| of.0);
        }
        found
    }

    /// The next block, if the kernel has passed it.
    fn ready(&self) -> Option<&[u8]> {
        let at = self.next * BLOCK;
        let status = self.map.status(at + STATUS).load(Ordering::Acquire);
        (status & libc::TP_STATUS_USER != 0).then(|| self.map.bytes(at, BLOCK))
    }

    /// Calls `each` with the packets of the next block, and gives the block back to the kernel; false if
    /// there is none yet.
    pub(super) fn block(&mut self, mut each: impl FnMut(RingFrame<'_>)) -> bool {
        let Some(block) = self.ready() else {
            return false;
        };
        walk(block, |offset, header| {
            if let Some(frame) = frame(block, offset, header) {
                each(frame);
            }
        });
        let status = self.map.status(self.next * BLOCK + STATUS);
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
        true
    }

    /// Counters of the kernel since the last reading.
    pub(super) fn counts(&self) -> Counts {
        match map::statistics(self.socket.as_raw_fd()) {
            Ok(statistics) => Counts {
                packets: statistics.tp_packets.into(),
                drops: statistics.tp_drops.into(),
            },
            Err(_) => Counts::default(),
        }
    }
}

/// Walks over the packets of a block: offset and header of each.
fn walk(block: &[u8], mut each: impl FnMut(usize, &[u8])) {
    let mut offset = number(block, FIRST) as usize;
    for _ in 0..number(block, PACKETS) {
        let Some(header) = block.get(offset..offset + size_of::<libc::tpacket3_hdr>()) else {
            break;
        };
        each(offset, header);
        match number(header, 0) as usize {
            0 => break,
            next => offset += next,
        }
    }
}

/// The packet whose header is at `offset`; `None`: a packet that is captured twice.
fn frame<'a>(block: &'a [u8], offset: usize, header: &[u8]) -> Option<RingFrame<'a>> {
    let (seconds, ns) = (number(header, 4), number(header, 8));
    let (mut captured, mut wire_bytes) = (number(header, 12), number(header, 16));
    let status = number(header, 20);
    let mac = usize::from(short(header, 24));
    let net = usize::from(short(header, 26));
    let address = Address::at(block, offset)?;
    let is_loopback = address.kind == ARPHRD_LOOPBACK;
    let way = match address.way {
        libc::PACKET_OUTGOING if is_loopback => return None,
        // On loopback every packet is sent and received.
        _ if is_loopback => Way::Unknown,
        libc::PACKET_OUTGOING => Way::Out,
        libc::PACKET_OTHERHOST => Way::Other,
        libc::PACKET_HOST | libc::PACKET_BROADCAST | libc::PACKET_MULTICAST => Way::In,
        _ => Way::Unknown,
    };
    let mut marks_of = 0;
    if status & TP_STATUS_GSO_TCP != 0 {
        marks_of |= marks::SEGMENTS;
    }
    let mut begin = if mac > 0 { mac } else { net };
    if address.kind == ARPHRD_ETHER || is_loopback {
        if status & libc::TP_STATUS_VLAN_VALID != 0 {
            marks_of |= marks::VLAN;
            // The tag was removed, and was on the wire.
            wire_bytes = wire_bytes.saturating_add(4);
        }
    } else {
        // The bytes before IP there are of an unknown kind.
        let link = net.saturating_sub(begin) as u32;
        begin += link as usize;
        captured = captured.saturating_sub(link);
        wire_bytes = wire_bytes.saturating_sub(link);
    }
    let begin = offset + begin;
    let end = begin.checked_add(captured as usize)?;
    Some(RingFrame {
        unix_ns: i64::from(seconds) * 1_000_000_000 + i64::from(ns),
        interface: address.interface,
        bytes: block.get(begin..end)?,
        wire_bytes,
        way,
        marks: marks_of,
    })
}

/// `struct sockaddr_ll`, which is behind the header of each packet.
#[derive(Clone, Copy, Debug)]
struct Address {
    interface: u32,
    /// `ARPHRD_` number.
    kind: u16,
    way: u8,
}

impl Address {
    fn at(block: &[u8], offset: usize) -> Option<Address> {
        let at = offset + align(size_of::<libc::tpacket3_hdr>());
        let address = block.get(at..at + 12)?;
        Some(Address {
            interface: number(address, 4),
            kind: short(address, 8),
            way: address[10],
        })
    }
}

/// `struct tpacket_block_desc`: version and offset of private data, then the header of the block.
const STATUS: usize = 8;
const PACKETS: usize = 12;
const FIRST: usize = 16;

fn number(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    u32::from_ne_bytes(four.unwrap_or_default())
}

fn short(bytes: &[u8], at: usize) -> u16 {
    let two = bytes.get(at..at + 2).and_then(|b| b.try_into().ok());
    u16::from_ne_bytes(two.unwrap_or_default())
}

/// `TPACKET_ALIGN`.
const fn align(length: usize) -> usize {
    length.next_multiple_of(16)
}

/// The reason why a capture could not begin, in words.
pub(super) fn reason(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => "it needs CAP_NET_RAW".into(),
        Some(Errno::ENODEV | Errno::ENXIO) => "there is no such interface".into(),
        Some(Errno::ENETDOWN) => "the interface is down".into(),
        _ => error.to_string(),
    }
}
