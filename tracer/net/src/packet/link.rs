//! Headers before IP (<https://www.tcpdump.org/linktypes.html>).

use flowtrace_schema::Way;

use super::bytes::u16_at;
use super::parsed::Skip;

/// Link layer of the frames of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Ethernet (1).
    Ethernet,
    /// PPP, with the address and control bytes of HDLC or without (9, 50).
    Ppp,
    /// Cisco HDLC (104).
    CiscoHdlc,
    /// BSD loopback, the address family in the byte order of the host (0).
    Null,
    /// OpenBSD loopback, the address family in network order (108).
    Loop,
    /// IP itself, version by its first bits (101, 228, 229).
    Raw,
    /// Linux cooked capture (113).
    Cooked1,
    /// Linux cooked capture, second version (276).
    Cooked2,
}

impl Link {
    /// The link type of a LINKTYPE_ number; some systems write 12 and 14 for 101.
    pub const fn of(number: u16) -> Option<Link> {
        Some(match number {
            0 => Link::Null,
            1 => Link::Ethernet,
            9 | 50 => Link::Ppp,
            104 => Link::CiscoHdlc,
            12 | 14 | 101 | 228 | 229 => Link::Raw,
            108 => Link::Loop,
            113 => Link::Cooked1,
            276 => Link::Cooked2,
            _ => return None,
        })
    }
}

/// Begin of IP in a frame.
pub(super) struct Inner {
    pub(super) offset: usize,
    pub(super) has_tag: bool,
    pub(super) way: Way,
}

/// Most VLAN tags of one frame.
const MOST_TAGS: usize = 4;

pub(super) fn inner(link: Link, frame: &[u8]) -> Result<Inner, Skip> {
    let at = |offset| Inner {
        offset,
        has_tag: false,
        way: Way::Unknown,
    };
    match link {
        Link::Raw => Ok(at(0)),
        Link::Null | Link::Loop => {
            let family: [u8; 4] = frame.get(..4).ok_or(Skip::Cut)?.try_into().expect("4");
            // Written by a host of either byte order; families are small numbers.
            let family = u32::from_be_bytes(family);
            let family = family.min(family.swap_bytes());
            // AF_INET; AF_INET6 of Linux, NetBSD, FreeBSD and Darwin.
            match family {
                2 | 10 | 24 | 28 | 30 => Ok(at(4)),
                _ => Err(Skip::NotIp),
            }
        }
        Link::Ethernet => by_type(frame, 12, Way::Unknown),
        Link::CiscoHdlc => by_type(frame, 2, Way::Unknown),
        Link::Ppp => {
            let begins = if frame.starts_with(&[0xff, 0x03]) {
                2
            } else {
                0
            };
            tagged(frame, ppp(frame, begins)?, begins + 2)
        }
        Link::Cooked1 => {
            let way = way(u16_at(frame, 0).ok_or(Skip::Cut)?);
            by_type(frame, 14, way)
        }
        Link::Cooked2 => {
            let kind = *frame.get(10).ok_or(Skip::Cut)?;
            let kind_of = u16_at(frame, 0).ok_or(Skip::Cut)?;
            let mut inner = tagged(frame, kind_of, 20)?;
            inner.way = way(kind.into());
            Ok(inner)
        }
    }
}

/// `sll_pkttype` of packet(7).
const fn way(kind: u16) -> Way {
    match kind {
        0..=2 => Way::In,
        3 => Way::Other,
        4 => Way::Out,
        _ => Way::Unknown,
    }
}

/// Place of the header that an EtherType at `at` announces.
fn by_type(frame: &[u8], at: usize, way: Way) -> Result<Inner, Skip> {
    let kind = u16_at(frame, at).ok_or(Skip::Cut)?;
    let mut inner = tagged(frame, kind, at + 2)?;
    inner.way = way;
    Ok(inner)
}

/// The EtherType of the PPP protocol at `at`.
fn ppp(frame: &[u8], at: usize) -> Result<u16, Skip> {
    match u16_at(frame, at).ok_or(Skip::Cut)? {
        0x0021 => Ok(0x0800),
        0x0057 => Ok(0x86dd),
        _ => Err(Skip::NotIp),
    }
}

/// Place of IP behind EtherType `kind`, whose header begins at `offset`.
fn tagged(frame: &[u8], mut kind: u16, mut offset: usize) -> Result<Inner, Skip> {
    let mut tags = 0;
    while matches!(kind, 0x8100 | 0x88a8 | 0x9100) {
        if tags == MOST_TAGS {
            return Err(Skip::Broken);
        }
        kind = u16_at(frame, offset + 2).ok_or(Skip::Cut)?;
        offset += 4;
        tags += 1;
    }
    if kind == 0x8864 {
        // A PPPoE session: its header, then the PPP protocol.
        kind = ppp(frame, offset + 6)?;
        offset += 8;
    }
    match kind {
        0x0800 | 0x86dd if offset <= frame.len() => Ok(Inner {
            offset,
            has_tag: tags > 0,
            way: Way::Unknown,
        }),
        0x0800 | 0x86dd => Err(Skip::Cut),
        _ => Err(Skip::NotIp),
    }
}
