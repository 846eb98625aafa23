//! Packets from the kernel: an AF_PACKET socket with a TPACKET_V3 ring
//! (Documentation/networking/packet_mmap.rst).
//!
//! The order of calls lets no packet of another interface in and loses none silently: the socket
//! begins without a protocol, and gets one only when filter and ring are there.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use flowtrace_schema::{Way, marks};
use nix::errno::Errno;

use super::filter::{self, Filter};
use super::interfaces::Interface;

mod map;

use map::Map;

/// Bytes of a block; the kernel hands over whole blocks.
const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 16;
const FRAME: usize = 2048;
/// After so long the kernel hands over a block that is not full.
pub(super) const RETIRE_MS: u32 = 20;

/// Linux 6.3; not in the headers of libc.
const TP_STATUS_GSO_TCP: u32 = 1 << 8;

/// A packet in a block of the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingFrame<'a> {
    /// `CLOCK_REALTIME` of the kernel.
    pub(super) unix_ns: i64,
    pub(super) bytes: &'a [u8],
    pub(super) wire_bytes: u32,
    pub(super) way: Way,
    pub(super) marks: u8,
}

/// What the kernel counted since it was asked last.
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
    is_loopback: bool,
}

impl Ring {
    /// Captures what passes `interface` from now on.
    pub(super) fn open(interface: &Interface, snap: u32, wanted: &Filter) -> io::Result<Ring> {
        // Frames of Ethernet as they are; of anything else what is behind the link layer.
        let kind = if interface.is_ethernet() {
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
        if interface.is_loopback() {
            // Each packet passes twice there; older kernels do not know that option.
            const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
            let _ = map::set(fd, PACKET_IGNORE_OUTGOING, &1_i32);
        }
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: FRAME as u32,
            tp_frame_nr: (BLOCK / FRAME * BLOCKS) as u32,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        map::set(fd, libc::PACKET_RX_RING, &request)?;
        let map = Map::new(socket.as_fd(), BLOCK * BLOCKS)?;
        map::bind(fd, interface.index)?;
        Ok(Ring {
            socket,
            map,
            next: 0,
            is_loopback: interface.is_loopback(),
        })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Hands the packets of the next block to `each`, and the block back to the kernel; `false`:
    /// there is none yet.
    pub(super) fn block(&mut self, mut each: impl FnMut(RingFrame<'_>)) -> bool {
        let at = self.next * BLOCK;
        let status = self.map.status(at + STATUS);
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        let block = self.map.bytes(at, BLOCK);
        let count = number(block, PACKETS);
        let mut offset = number(block, FIRST) as usize;
        for _ in 0..count {
            let Some(header) = block.get(offset..offset + size_of::<libc::tpacket3_hdr>()) else {
                break;
            };
            if let Some(frame) = self.frame(block, offset, header) {
                each(frame);
            }
            match number(header, 0) as usize {
                0 => break,
                next => offset += next,
            }
        }
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % BLOCKS;
        true
    }

    /// The packet whose header is at `offset`; `None`: it is one that is captured twice.
    fn frame<'a>(&self, block: &'a [u8], offset: usize, header: &[u8]) -> Option<RingFrame<'a>> {
        let (seconds, ns) = (number(header, 4), number(header, 8));
        let (captured, wire_bytes) = (number(header, 12), number(header, 16));
        let status = number(header, 20);
        let mac = usize::from(short(header, 24));
        let net = usize::from(short(header, 26));
        // Behind the header there is the address, whose kind of packet is the way that it went.
        let address = offset + align(size_of::<libc::tpacket3_hdr>());
        let kind = *block.get(address + 10)?;
        let way = match kind {
            libc::PACKET_OUTGOING if self.is_loopback => return None,
            // On loopback every packet is both.
            _ if self.is_loopback => Way::Unknown,
            libc::PACKET_OUTGOING => Way::Out,
            libc::PACKET_OTHERHOST => Way::Other,
            libc::PACKET_HOST | libc::PACKET_BROADCAST | libc::PACKET_MULTICAST => Way::In,
            _ => Way::Unknown,
        };
        let mut frame_marks = 0;
        if status & TP_STATUS_GSO_TCP != 0 {
            frame_marks |= marks::SEGMENTS;
        }
        if status & libc::TP_STATUS_VLAN_VALID != 0 {
            frame_marks |= marks::VLAN;
        }
        let begin = offset + if mac > 0 { mac } else { net };
        let end = begin.checked_add(captured as usize)?;
        Some(RingFrame {
            unix_ns: i64::from(seconds) * 1_000_000_000 + i64::from(ns),
            bytes: block.get(begin..end)?,
            wire_bytes,
            way,
            marks: frame_marks,
        })
    }

    /// What the kernel counted since the last time.
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

/// Why a capture could not begin, in words.
pub(super) fn reason(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => "it needs CAP_NET_RAW".into(),
        Some(Errno::ENODEV | Errno::ENXIO) => "there is no such interface".into(),
        Some(Errno::ENETDOWN) => "the interface is down".into(),
        _ => error.to_string(),
    }
}
