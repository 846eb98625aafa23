//! One connection of TCP, or the one flow that other protocols have over a pair of ports.

use std::num::NonZeroU64;

use flowtrace_schema::{CaptureId, FlowId, FlowSeen, Way};

use super::seen::Seen;
use crate::packet::{Parsed, SynOptions, Tcp, tcp};

/// Facts about one of the two ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Side {
    /// Sequence number of its SYN.
    pub(super) first_seq: Option<u32>,
    pub(super) syn: SynOptions,
    /// Cookie of the socket there, once it is known.
    pub(super) socket: Option<NonZeroU64>,
}

/// A flow that is followed.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) flow: FlowId,
    /// True if the side that spoke first is the first of the pair.
    pub(super) src_is_low: bool,
    /// `src`, then `dst`.
    pub(super) ends: [Side; 2],
    /// True for an end that has sent its FIN or RST.
    pub(super) ended: [bool; 2],
    /// Totals by capture.
    pub(super) seen: Vec<FlowSeen>,
}

impl Connection {
    pub(super) fn new(flow: FlowId, src_is_low: bool) -> Self {
        Connection {
            flow,
            src_is_low,
            ends: [Side::default(); 2],
            ended: [false; 2],
            seen: Vec::with_capacity(1),
        }
    }

    /// Number of entries that it takes.
    pub(super) fn weight(&self) -> usize {
        1 + self.seen.len()
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended == [true; 2]
    }

    pub(super) fn count(&mut self, seen: Seen, is_back: bool, parsed: &Parsed) {
        let at = self.seen.iter().position(|s| s.capture == seen.capture);
        let at = at.unwrap_or_else(|| {
            self.seen.push(FlowSeen {
                flow: self.flow,
                capture: seen.capture,
                first_ns: seen.t_ns,
                last_ns: seen.t_ns,
                ..FlowSeen::default()
            });
            self.seen.len() - 1
        });
        let sum = &mut self.seen[at];
        // Timestamps of two CPUs may go backwards.
        sum.first_ns = sum.first_ns.min(seen.t_ns);
        sum.last_ns = sum.last_ns.max(seen.t_ns);
        sum.packets[usize::from(is_back)] += 1;
        sum.bytes[usize::from(is_back)] += u64::from(parsed.payload_bytes);
        let (sender, receiver) = (usize::from(is_back), usize::from(!is_back));
        match parsed.way {
            // A packet to a group reaches the members on its own host, too.
            Way::Out if parsed.dst.to_canonical().is_multicast() => sum.local = [true; 2],
            Way::Out => sum.local[sender] = true,
            Way::In => sum.local[receiver] = true,
            Way::Other | Way::Unknown => {}
        }
    }

    /// Shift of the window of a segment: 0 in a SYN, and unless both ends allowed it (RFC 7323, 2.2).
    pub(super) fn shift(&self, tcp: &Tcp, is_back: bool) -> u8 {
        let [src, dst] = self.ends.map(|end| end.syn.window_scale);
        match src.zip(dst) {
            Some((src, dst)) if !tcp.is(tcp::SYN) => {
                if is_back {
                    dst
                } else {
                    src
                }
            }
            _ => 0,
        }
    }

    fn was_seen_by(&self, capture: CaptureId) -> bool {
        self.seen.iter().any(|seen| seen.capture == capture)
    }
}

/// The connection of a packet; `None`: none of them.
pub(super) fn find(
    connections: &[Connection],
    parsed: &Parsed,
    capture: CaptureId,
    is_from_low: bool,
) -> Option<usize> {
    let last = connections.len().checked_sub(1)?;
    // The last one that this capture saw; if it saw none, the first that others saw.
    let current = match connections.iter().rposition(|c| c.was_seen_by(capture)) {
        Some(at) => at,
        None if connections.len() == 1 => last,
        None => 0,
    };
    let asks = |tcp: &Tcp| tcp.is(tcp::SYN) && !tcp.is(tcp::ACK);
    let Some(tcp) = parsed.tcp.filter(asks) else {
        return Some(current);
    };
    let sender = |c: &Connection| usize::from(is_from_low != c.src_is_low);
    let same = |c: &Connection| c.ends[sender(c)].first_seq == Some(tcp.seq);
    connections.iter().rposition(same).or_else(|| {
        // Both sides may ask at the same time (RFC 9293, 3.5): one connection.
        let current_one = &connections[current];
        let asked = sender(current_one);
        let is_simultaneous = current_one.ends[asked].first_seq.is_none()
            && current_one.ends[1 - asked].first_seq.is_some()
            && current_one.ended == [false; 2];
        is_simultaneous.then_some(current)
    })
}
