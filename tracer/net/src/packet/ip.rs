//! IPv4 (RFC 791) and IPv6 (RFC 8200) with their extension headers, up to the ports.

use flowtrace_schema::{Way, marks};

use super::bytes::{u16_at, u32_at, v4, v6};
use super::parsed::{Parsed, Skip};
use super::tcp::{self, Tcp};

/// Most extension headers of one packet.
const MOST_HEADERS: usize = 16;

/// Reads a packet of which `wire` bytes were on the wire.
pub(super) fn parse(packet: &[u8], wire: usize) -> Result<Parsed, Skip> {
    match packet.first().ok_or(Skip::Cut)? >> 4 {
        4 => version_4(packet, wire),
        6 => version_6(packet, wire),
        _ => Err(Skip::Broken),
    }
}

/// Payload of IP.
struct Transport<'a> {
    protocol: u8,
    /// Captured part of the payload.
    bytes: &'a [u8],
    /// Its length on the wire.
    length: usize,
    fragment: Fragment,
    /// Number of the packet of which this may be a fragment.
    number: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fragment {
    Whole,
    First,
    Later,
}

impl Fragment {
    /// From the field of flags and offset, with the flag "more" at bit `more`, and the offset above it or
    /// below.
    fn of(offset: u16, is_more: bool) -> Fragment {
        match (offset, is_more) {
            (0, false) => Fragment::Whole,
            (0, true) => Fragment::First,
            _ => Fragment::Later,
        }
    }
}

fn version_4(packet: &[u8], wire: usize) -> Result<Parsed, Skip> {
    if packet.len() < 20 {
        return Err(Skip::Cut);
    }
    let header = usize::from(packet[0] & 15) * 4;
    let total = match u16_at(packet, 2) {
        // Too long for the field: the kernel passes large packets before it cuts them.
        Some(0) | None => wire,
        Some(total) => usize::from(total),
    };
    if header < 20 || total < header || total > wire {
        return Err(Skip::Broken);
    }
    let fragment = u16_at(packet, 6).unwrap_or(0);
    let fragment = Fragment::of(fragment & 0x1fff, fragment & 0x2000 != 0);
    let (src, dst) = (v4(&packet[12..]), v4(&packet[16..]));
    let transport = Transport {
        protocol: packet[9],
        bytes: within(packet, header, total),
        length: total - header,
        fragment,
        number: u16_at(packet, 4).map_or(0, u32::from),
    };
    let (src, dst) = src.zip(dst).ok_or(Skip::Cut)?;
    transport.parse(src, dst)
}

fn version_6(packet: &[u8], wire: usize) -> Result<Parsed, Skip> {
    if packet.len() < 40 {
        return Err(Skip::Cut);
    }
    let mut total = match u16_at(packet, 4) {
        Some(0) | None => wire,
        Some(length) => 40 + usize::from(length),
    };
    if total > wire {
        return Err(Skip::Broken);
    }
    let (src, dst) = v6(&packet[8..]).zip(v6(&packet[24..])).ok_or(Skip::Cut)?;
    let mut protocol = packet[6];
    let mut offset = 40;
    let (mut fragment, mut number) = (Fragment::Whole, 0);
    let mut is_cut = false;
    for _ in 0..MOST_HEADERS {
        let header = packet.get(offset..).unwrap_or_default();
        let is_extension = matches!(protocol, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140);
        if !is_extension || fragment == Fragment::Later {
            break;
        }
        let [next, length, ..] = *header else {
            is_cut = true;
            break;
        };
        let length = match protocol {
            44 => {
                let Some(field) = u16_at(header, 2) else {
                    is_cut = true;
                    break;
                };
                fragment = Fragment::of(field >> 3, field & 1 != 0);
                number = u32_at(header, 4).unwrap_or(0);
                8
            }
            51 => (usize::from(length) + 2) * 4,
            _ => (usize::from(length) + 1) * 8,
        };
        if protocol == 0
            && u16_at(packet, 4) == Some(0)
            && let Some(jumbo) = jumbo(header.get(..length).unwrap_or(header))
        {
            total = 40 + jumbo as usize;
            if total > wire {
                return Err(Skip::Broken);
            }
        }
        offset += length;
        protocol = next;
        if offset > total {
            return Err(Skip::Broken);
        }
    }
    if is_cut {
        // The chain goes on in bytes that were not captured: neither protocol nor ports are known.
        return Err(Skip::Cut);
    }
    let transport = Transport {
        protocol,
        bytes: within(packet, offset, total),
        length: total - offset,
        fragment,
        number,
    };
    transport.parse(src, dst)
}

/// The length of a jumbogram (RFC 2675), from the options of a hop-by-hop header.
fn jumbo(header: &[u8]) -> Option<u32> {
    let mut at = 2;
    while at < header.len() {
        match header[at] {
            0 => at += 1,
            0xc2 => return u32_at(header, at + 2),
            _ => at += 2 + usize::from(*header.get(at + 1)?),
        }
    }
    None
}

/// The part of a packet between its headers and its end, as far as it was captured.
fn within(packet: &[u8], from: usize, to: usize) -> &[u8] {
    let to = to.min(packet.len());
    packet.get(from..to).unwrap_or_default()
}

impl Transport<'_> {
    fn parse(&self, src: std::net::Ipv6Addr, dst: std::net::Ipv6Addr) -> Result<Parsed, Skip> {
        let mut parsed = Parsed {
            src,
            dst,
            ports: None,
            packet_number: None,
            protocol: self.protocol,
            payload_bytes: self.length as u32,
            marks: 0,
            way: Way::Unknown,
            tcp: None,
        };
        if self.fragment != Fragment::Whole {
            parsed.marks |= marks::FRAGMENT;
            parsed.packet_number = Some(self.number);
        }
        if self.fragment == Fragment::Later {
            parsed.marks |= marks::LATER;
            return Ok(parsed);
        }
        let header = match self.protocol {
            6 => return self.tcp(parsed),
            17 => 8,
            132 => 12,
            1 | 58 => 8,
            _ => return Ok(parsed),
        };
        if self.length < header {
            return Err(Skip::Broken);
        }
        parsed.payload_bytes = (self.length - header) as u32;
        if matches!(self.protocol, 17 | 132) {
            parsed.ports = self.ports();
            if parsed.ports.is_none() {
                parsed.marks |= marks::CUT;
            }
        }
        Ok(parsed)
    }

    fn tcp(&self, mut parsed: Parsed) -> Result<Parsed, Skip> {
        if self.length < 20 {
            return Err(Skip::Broken);
        }
        parsed.ports = self.ports();
        match tcp::parse(self.bytes) {
            Some(Tcp { header, .. }) if !(20..=self.length).contains(&header) => {
                return Err(Skip::Broken);
            }
            Some(tcp) => {
                parsed.payload_bytes = (self.length - tcp.header) as u32;
                if tcp.header > self.bytes.len() {
                    parsed.marks |= marks::CUT;
                }
                parsed.tcp = Some(tcp);
            }
            None => {
                // Options that were not captured count as payload here; the mark says so.
                parsed.payload_bytes = (self.length - 20) as u32;
                parsed.marks |= marks::CUT;
            }
        }
        Ok(parsed)
    }

    fn ports(&self) -> Option<(u16, u16)> {
        u16_at(self.bytes, 0).zip(u16_at(self.bytes, 2))
    }
}
