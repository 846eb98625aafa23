//! The ends of a library's writes in the segments of a connection.

use std::collections::HashMap;

use ahash::AHashMap;

use super::bursts::{self, Piece};
use super::{Message, pieces};
use crate::run::{ACK, FIN, Mode, Node, PSH, Packet, Run};

/// Least bytes of a run of pushed segments that may be a part of a message: Linux pushes a full send
/// buffer (65 160 bytes) before the write is over.
const FULL_BUFFER: u64 = 64_000;
/// Least payload of a full segment, bytes: every host accepts segments of that size (RFC 9293, 3.7.1).
const LEAST_FULL: u32 = 536;
/// Time after an acknowledgement, ns, from which a send is the program's own. An earlier send may have
/// been released by the acknowledgement. Several times as long as the wake-up of a waiting program.
const OWN_NS: i64 = 200_000;

/// Segments up to a push.
#[derive(Clone, Copy, Debug, Default)]
struct Pushed {
    bytes: u64,
    /// Greatest common divisor of their payloads, bytes.
    divisor: u32,
}

impl Pushed {
    fn add(&mut self, payload: u32) {
        self.bytes += u64::from(payload);
        let (mut rest, mut divisor) = (payload, self.divisor);
        while rest > 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        self.divisor = divisor;
    }

    /// True if the push may come from a full buffer. A buffer is full when its segments are, and full
    /// segments, joined by offload or not, are multiples of one size. A write that is over ends with
    /// the bytes that were left.
    fn may_be_full_buffer(self) -> bool {
        self.bytes >= FULL_BUFFER && self.divisor >= LEAST_FULL
    }
}

/// Cuts the data segments of one direction of a connection at the ends of the library's writes: at a
/// push or FIN, which belongs to the message that it ends. The push of a full buffer ends none.
#[derive(Clone, Debug, Default)]
struct Cutter {
    open: Option<Piece>,
    pushed: Pushed,
    limits: Limits,
}

impl Cutter {
    fn segment(&mut self, packet: &Packet, done: &mut Vec<Piece>) {
        if packet.payload > 0 {
            let is_free = self.limits.are_open(packet);
            let piece = self.open.get_or_insert_with(|| Piece {
                message: begun(packet),
                is_free,
            });
            piece.message.sent_ns.1 = packet.t_ns;
            piece.message.bytes += u64::from(packet.payload);
            piece.message.segments += 1;
            self.pushed.add(packet.payload);
            self.limits.sent = Some(packet.seq.wrapping_add(packet.payload));
        }
        if packet.flags & (PSH | FIN) != 0 {
            let pushed = std::mem::take(&mut self.pushed);
            if packet.flags & FIN != 0 || !pushed.may_be_full_buffer() {
                done.extend(self.open.take());
            }
        }
    }
}

/// Limits of a sender, as its own capture shows them.
#[derive(Clone, Debug, Default)]
struct Limits {
    /// Sequence number after the last byte sent.
    sent: Option<u32>,
    /// The newest acknowledgement, and the right edge of the receiver's window then and before.
    heard: Option<Heard>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    t_ns: i64,
    acked: u32,
    edge: u32,
    edge_before: u32,
}

impl Limits {
    fn hear(&mut self, packet: &Packet) {
        let edge = packet.ack.wrapping_add(packet.window);
        self.heard = Some(Heard {
            t_ns: packet.t_ns,
            acked: packet.ack,
            edge,
            edge_before: self.heard.map_or(edge, |before| before.edge),
        });
    }

    /// True if nothing delayed this segment, so that a write of the program begins with it. All bytes
    /// before it had arrived, the window had space for it before the last segment from the receiver,
    /// and that segment is some time ago.
    fn are_open(&self, packet: &Packet) -> bool {
        let Some(sent) = self.sent else {
            return true;
        };
        self.heard.is_some_and(|heard| {
            let space = heard.edge_before.wrapping_sub(packet.seq) as i32;
            heard.acked.wrapping_sub(sent) as i32 >= 0
                && i64::from(space) >= i64::from(packet.payload)
                && packet.t_ns - heard.t_ns >= OWN_NS
        })
    }
}

/// A message that begins with this segment, without its bytes.
fn begun(packet: &Packet) -> Message {
    Message {
        src: packet.src,
        dst: packet.dst,
        flow: packet.flow,
        sent_ns: (packet.t_ns, packet.t_ns),
        first_bytes: u64::from(packet.payload),
        seq: packet.seq,
        ..Message::default()
    }
}

/// The messages of the wanted directions (sender, receiver) in the stream of a process, by the rule of
/// the mode. Messages of a process to itself do not count.
pub(super) fn sent_in(
    run: &Run,
    stream: Node,
    is_wanted: impl Fn(Node, Node) -> bool,
) -> Vec<Message> {
    let is_wanted = |src: Node, dst: Node| src != dst && is_wanted(src, dst);
    let mut done = match run.settings.mode {
        Mode::Default => by_pushes(run, stream, is_wanted),
        Mode::Thesis => by_turns(run, stream, is_wanted),
    };
    for message in &mut done {
        message.received_ns = message.sent_ns;
    }
    done
}

fn by_pushes(run: &Run, stream: Node, is_wanted: impl Fn(Node, Node) -> bool) -> Vec<Message> {
    let mut done = Vec::new();
    let mut cutters: AHashMap<(u32, Node), Cutter> = AHashMap::new();
    for packet in run.stream(stream) {
        if packet.dst == stream
            && packet.flags & ACK != 0
            && let Some(cutter) = cutters.get_mut(&(packet.flow, packet.src))
        {
            cutter.limits.hear(packet);
        }
        let says_something = packet.payload > 0 || packet.flags & (PSH | FIN) != 0;
        if !says_something || packet.is_again || !is_wanted(packet.src, packet.dst) {
            continue;
        }
        let key = (packet.flow, packet.dst);
        let cutter = cutters.entry(key).or_default();
        cutter.segment(packet, &mut done);
        // Streams are removed at their end, for there may be a million connections, one after the
        // other.
        if packet.flags & FIN != 0 {
            cutters.remove(&key);
        }
    }
    done.extend(cutters.into_values().filter_map(|cutter| cutter.open));
    whole(done)
}

/// Messages of each direction of each connection, with pieces put together.
fn whole(mut done: Vec<Piece>) -> Vec<Message> {
    let stream = |piece: &Piece| (piece.message.flow, piece.message.dst);
    // Messages of a stream stay in the order of their bytes.
    done.sort_by_key(stream);
    let streams = done.chunk_by(|a, b| stream(a) == stream(b));
    let mut whole = Vec::with_capacity(done.len());
    let mut messages: Vec<Message> = Vec::new();
    for stream in streams {
        if let Some(counted) = bursts::counted(stream) {
            whole.extend(counted);
            continue;
        }
        messages.clear();
        messages.extend(stream.iter().map(|piece| piece.message));
        whole.extend_from_slice(&pieces::joined(&messages));
    }
    whole
}

fn by_turns(run: &Run, stream: Node, is_wanted: impl Fn(Node, Node) -> bool) -> Vec<Message> {
    let mut done = Vec::new();
    let mut open: HashMap<(Node, Node), Message> = HashMap::new();
    for packet in run.stream(stream).filter(|p| p.is_data()) {
        let (src, dst) = (packet.src, packet.dst);
        if is_wanted(src, dst) {
            let message = open.entry((src, dst)).or_insert_with(|| begun(packet));
            message.sent_ns.1 = packet.t_ns;
            message.bytes += u64::from(packet.payload);
            message.segments += 1;
        }
        done.extend(open.remove(&(dst, src)).filter(|_| src != dst));
    }
    done.extend(open.into_values());
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::data;

    #[test]
    fn a_segment_is_free_if_neither_window_nor_acknowledgement_delayed_it() {
        const MS: i64 = 1_000_000;
        let sent = |t_ns, seq, payload| Packet {
            seq,
            ..data(t_ns, 0, 1, payload)
        };
        let answer = |t_ns, ack, window| Packet {
            ack,
            window,
            ..data(t_ns, 1, 0, 0)
        };
        let mut cutter = Cutter::default();
        let mut done = Vec::new();
        let mut is_free = |before: Option<Packet>, packet: Packet| {
            if let Some(before) = before {
                cutter.limits.hear(&before);
            }
            cutter.segment(&packet, &mut done);
            done.last().unwrap().is_free
        };
        assert!(is_free(None, sent(0, 0, 100)), "the first");
        assert!(!is_free(None, sent(MS, 100, 100)), "not acknowledged");
        let all = answer(2 * MS, 200, 150);
        assert!(!is_free(Some(all), sent(2 * MS + 9, 200, 100)), "let go");
        let all = answer(4 * MS, 300, 50);
        assert!(is_free(Some(all), sent(5 * MS, 300, 40)));
        // The window was too small until the newest segment from the receiver.
        let more = answer(6 * MS, 340, 500);
        assert!(!is_free(Some(more), sent(9 * MS, 340, 100)), "no space");
    }
}
