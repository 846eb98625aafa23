//! Rows of captures and packets in the form that a [`crate::Run`] needs.

use ahash::AHashMap;
use flowtrace_schema::{CaptureRow, PacketRow};

use super::chosen::Beside;
use crate::run::{CaptureInput, Node, Packet};

/// An empty capture for each of a trace, and the place of each by id. `beside` has the nodes that are known to be
/// on the host of a capture.
pub(super) fn inputs(
    captures: &[CaptureRow],
    beside: &Beside,
) -> (Vec<CaptureInput>, AHashMap<i64, usize>) {
    let input = |capture: &CaptureRow| CaptureInput {
        name: format!(
            "{} {}",
            capture.host.as_deref().unwrap_or("?"),
            capture.interface
        ),
        nodes: beside
            .get(&capture.capture_id)
            .map_or(Vec::new(), |nodes| nodes.iter().copied().collect()),
        dropped: capture.dropped,
        packets: Vec::new(),
    };
    let places = captures.iter().enumerate();
    let places = places.map(|(at, capture)| (capture.capture_id, at));
    (captures.iter().map(input).collect(), places.collect())
}

pub(super) fn packet(row: &PacketRow, seq: u32, src: Node, dst: Node) -> Packet {
    Packet {
        t_ns: row.t_ns,
        seq,
        ack: row.ack.unwrap_or(0),
        payload: row.payload_bytes,
        wire: row.wire_bytes,
        window: row.window.unwrap_or(0),
        flow: row.flow_id as u32,
        src,
        dst,
        flags: row.flags.unwrap_or(0),
        is_again: false,
    }
}
