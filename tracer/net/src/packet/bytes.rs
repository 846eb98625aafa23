//! Numbers and addresses in a header.

use std::net::{Ipv4Addr, Ipv6Addr};

pub(super) fn v4(bytes: &[u8]) -> Option<Ipv6Addr> {
    let bytes: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    Some(Ipv4Addr::from(bytes).to_ipv6_mapped())
}

pub(super) fn v6(bytes: &[u8]) -> Option<Ipv6Addr> {
    let bytes: [u8; 16] = bytes.get(..16)?.try_into().ok()?;
    Some(Ipv6Addr::from(bytes))
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}
