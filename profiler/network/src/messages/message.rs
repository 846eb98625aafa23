//! A message, as sender and receiver saw it.

use crate::run::{Mode, Node};

/// One message of an ordered pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Sender.
    pub src: Node,
    /// Receiver.
    pub dst: Node,
    /// Connection.
    pub flow: u32,
    /// Times of the first and last segment at the sender, ns; at the receiver if the sender has no
    /// capture. The first one is the end of the message before if this message follows it without a
    /// pause of the link.
    pub sent_ns: (i64, i64),
    /// Times of the first and last segment at the receiver, ns; at the sender if the receiver has no
    /// capture.
    pub received_ns: (i64, i64),
    /// Payload, bytes.
    pub bytes: u64,
    /// Payload of the first segment, bytes; 0 if the begin is the end of the message before.
    pub first_bytes: u64,
    /// Number of segments.
    pub segments: u32,
    /// Sequence number of the first byte.
    pub seq: u32,
}

impl Message {
    /// Time between the first and the last segment at the receiver, ns (5.5.5).
    pub fn transfer_ns(&self) -> i64 {
        self.received_ns.1 - self.received_ns.0
    }

    /// Latency of the message, and its time waiting for links and coming in, both ns. `base_ns` is the
    /// least delay of its pair.
    pub fn parts_ns(&self, base_ns: i64) -> (i64, i64) {
        let delay = (self.received_ns.0 - self.sent_ns.0).max(0);
        let on_way = delay.min(base_ns.max(0));
        (on_way, delay - on_way + self.transfer_ns().max(0))
    }

    /// Bytes per second while the message came in; `None` for a single segment. The first segment's
    /// bytes arrived before the measured time and are left out. The thesis counts them.
    pub fn bandwidth(&self, mode: Mode) -> Option<f64> {
        let ns = self.transfer_ns();
        let bytes = match mode {
            Mode::Thesis => self.bytes,
            Mode::Default => self.bytes - self.first_bytes,
        };
        (self.segments > 1 && ns > 0).then(|| bytes as f64 / (ns as f64 / 1e9))
    }
}
