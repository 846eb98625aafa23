//! The headers of a frame: link layer, IP, and what TCP, UDP and SCTP begin with.
//!
//! Lengths are those that the headers state, not what was captured: Ethernet pads short frames,
//! and captures cut long ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowtrace_schema::{Way, marks};

mod ip;
mod link;
pub(crate) mod tcp;

pub(crate) use link::Link;
pub(crate) use tcp::{SynOptions, Tcp};

/// A packet of IP, as far as it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) src: Ipv6Addr,
    pub(crate) dst: Ipv6Addr,
    /// `None`: the protocol has none, or they are in another fragment.
    pub(crate) ports: Option<(u16, u16)>,
    /// Of a fragment: the number of its packet.
    pub(crate) packet_number: Option<u32>,
    /// Protocol number behind all extension headers.
    pub(crate) protocol: u8,
    pub(crate) payload_bytes: u32,
    /// See [`marks`].
    pub(crate) marks: u8,
    pub(crate) way: Way,
    pub(crate) tcp: Option<Tcp>,
}

/// Why a frame is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skip {
    /// It carries another protocol than IP.
    NotIp,
    /// Too little of it was captured to know its addresses.
    Cut,
    /// Its headers contradict themselves or its length.
    Broken,
}

/// Reads the headers of `frame`, of which `wire_bytes` were on the wire.
pub(crate) fn parse(link: Link, frame: &[u8], wire_bytes: u32) -> Result<Parsed, Skip> {
    let inner = link::inner(link, frame)?;
    let ip_wire = (wire_bytes as usize)
        .max(frame.len())
        .saturating_sub(inner.offset);
    let mut parsed = ip::parse(&frame[inner.offset..], ip_wire)?;
    parsed.way = inner.way;
    if inner.has_tag {
        parsed.marks |= marks::VLAN;
    }
    Ok(parsed)
}

impl Parsed {
    /// Whether it is a fragment without the headers behind those of IP.
    pub(crate) fn is_later(&self) -> bool {
        self.marks & marks::LATER != 0
    }

    /// Sender and receiver.
    pub(crate) fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.src.to_canonical(), self.dst.to_canonical())
    }
}

fn v4(bytes: &[u8]) -> Option<Ipv6Addr> {
    let bytes: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    Some(Ipv4Addr::from(bytes).to_ipv6_mapped())
}

fn v6(bytes: &[u8]) -> Option<Ipv6Addr> {
    let bytes: [u8; 16] = bytes.get(..16)?.try_into().ok()?;
    Some(Ipv6Addr::from(bytes))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}
