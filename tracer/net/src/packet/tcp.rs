//! The header of TCP (RFC 9293) and its options (RFC 7323, RFC 2018).

use super::bytes::{u16_at, u32_at};

/// Flags.
pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;

/// Largest shift of a window (RFC 7323, 2.3).
const MOST_SHIFT: u8 = 14;

/// The header of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tcp {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    /// Window as it is in the header, not scaled.
    pub(crate) window: u16,
    /// Its length, options included.
    pub(crate) header: usize,
    pub(crate) timestamps: Option<(u32, u32)>,
    pub(crate) syn: SynOptions,
}

/// Options of a SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SynOptions {
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack: bool,
}

impl Tcp {
    pub(crate) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Reads a header, whose options may be cut; `None` if more is cut.
pub(super) fn parse(bytes: &[u8]) -> Option<Tcp> {
    if bytes.len() < 20 {
        return None;
    }
    let header = usize::from(bytes[12] >> 4) * 4;
    let mut tcp = Tcp {
        seq: u32_at(bytes, 4)?,
        ack: u32_at(bytes, 8)?,
        flags: bytes[13],
        window: u16_at(bytes, 14)?,
        header,
        ..Tcp::default()
    };
    let end = header.clamp(20, bytes.len());
    options(&bytes[20..end], &mut tcp);
    Some(tcp)
}

fn options(mut bytes: &[u8], tcp: &mut Tcp) {
    // Options of nearly every segment of Linux: two of padding, then the timestamps.
    if let [1, 1, 8, 10, value @ ..] = bytes
        && bytes.len() == 12
    {
        tcp.timestamps = u32_at(value, 0).zip(u32_at(value, 4));
        return;
    }
    while let [kind, rest @ ..] = bytes {
        match kind {
            0 => return,
            1 => {
                bytes = rest;
                continue;
            }
            _ => {}
        }
        let Some(&length) = rest.first() else { return };
        let Some(value) = bytes.get(2..usize::from(length)) else {
            return;
        };
        match (kind, value.len()) {
            (2, 2) => tcp.syn.mss = u16_at(value, 0),
            (3, 1) => tcp.syn.window_scale = Some(value[0].min(MOST_SHIFT)),
            (4, 0) => tcp.syn.sack = true,
            (8, 8) => tcp.timestamps = u32_at(value, 0).zip(u32_at(value, 4)),
            _ => {}
        }
        bytes = &bytes[usize::from(length)..];
    }
}
