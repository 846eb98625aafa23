//! Parsed headers of a packet.

use std::net::{IpAddr, Ipv6Addr};

use flowtrace_schema::{Way, marks};

use super::tcp::Tcp;

/// A packet of IP, as far as it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) src: Ipv6Addr,
    pub(crate) dst: Ipv6Addr,
    /// `None`: the protocol has none, or they are in another fragment.
    pub(crate) ports: Option<(u16, u16)>,
    /// Number of the packet of a fragment.
    pub(crate) packet_number: Option<u32>,
    /// Protocol number behind all extension headers.
    pub(crate) protocol: u8,
    pub(crate) payload_bytes: u32,
    /// See [`flowtrace_schema::marks`].
    pub(crate) marks: u8,
    pub(crate) way: Way,
    pub(crate) tcp: Option<Tcp>,
}

/// Reason why a frame is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skip {
    /// It carries another protocol than IP.
    NotIp,
    /// Too little of it was captured to know its addresses.
    Cut,
    /// Its headers contradict themselves or its length.
    Broken,
}

impl Parsed {
    /// True if it is a fragment without the headers behind those of IP.
    pub(crate) fn is_later(&self) -> bool {
        self.marks & marks::LATER != 0
    }

    /// Sender and receiver.
    pub(crate) fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.src.to_canonical(), self.dst.to_canonical())
    }
}
