//! The headers of a frame: link layer, IP, and the first fields of TCP, UDP and SCTP.
//!
//! Lengths are those in the headers, not the captured ones: Ethernet pads short frames, and captures cut long
//! ones.

use flowtrace_schema::marks;

mod bytes;
mod ip;
mod link;
mod parsed;
pub(crate) mod tcp;

pub use link::Link;
pub(crate) use parsed::{Parsed, Skip};
pub(crate) use tcp::{SynOptions, Tcp};

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
