//! What the segments of a connection were as messages (5.4.1).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ahash::AHashMap;

use super::plain;
use super::run::{FIN, Mode, Node, PSH, Packet, Run, Unknown};

/// A run of pushed segments of at least this many bytes may be one message: Linux pushes every
/// full send buffer (65 160 bytes).
const FULL_BUFFER: u64 = 64_000;

/// One message of an ordered pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Sender.
    pub src: Node,
    /// Receiver.
    pub dst: Node,
    /// Connection.
    pub flow: u32,
    /// First and last segment at the sender, ns; the receiver's when the sender has no capture.
    pub sent_ns: (i64, i64),
    /// First and last segment at the receiver, ns; the sender's when it has no capture.
    pub received_ns: (i64, i64),
    /// Payload, bytes.
    pub bytes: u64,
    /// Payload of its first segment, bytes.
    pub first_bytes: u64,
    /// Segments.
    pub segments: u32,
    /// Sequence number of its first byte.
    pub seq: u32,
}

impl Message {
    /// Time between the first and the last segment at the receiver, ns (5.5.5).
    pub fn transfer_ns(&self) -> i64 {
        self.received_ns.1 - self.received_ns.0
    }

    /// Bytes per second while it came in; `None` for a single segment. The first segment's bytes
    /// had come before the clock started and are left out; the thesis counts them.
    pub fn bandwidth(&self, mode: Mode) -> Option<f64> {
        let ns = self.transfer_ns();
        let bytes = match mode {
            Mode::Thesis => self.bytes,
            Mode::Default => self.bytes - self.first_bytes,
        };
        (self.segments > 1 && ns > 0).then(|| bytes as f64 / (ns as f64 / 1e9))
    }
}

/// Cuts the data segments of one direction of a connection where the library's writes ended: at a
/// push or FIN, which belongs to the message that it ends. A pushed run of a full buffer goes on.
#[derive(Clone, Debug, Default)]
struct Cutter {
    open: Option<Message>,
    run_bytes: u64,
}

impl Cutter {
    fn segment(&mut self, packet: &Packet, done: &mut Vec<Message>) {
        if packet.payload > 0 {
            let message = self.open.get_or_insert_with(|| Message {
                src: packet.src,
                dst: packet.dst,
                flow: packet.flow,
                sent_ns: (packet.t_ns, packet.t_ns),
                first_bytes: u64::from(packet.payload),
                seq: packet.seq,
                ..Message::default()
            });
            message.sent_ns.1 = packet.t_ns;
            message.bytes += u64::from(packet.payload);
            message.segments += 1;
            self.run_bytes += u64::from(packet.payload);
        }
        if packet.flags & (PSH | FIN) != 0 {
            let is_full = self.run_bytes >= FULL_BUFFER && packet.flags & FIN == 0;
            self.run_bytes = 0;
            if !is_full {
                done.extend(self.open.take());
            }
        }
    }
}

/// The messages of the wanted directions (sender, receiver) in the stream of a process, by the mode's
/// rule. Messages to oneself are none.
fn sent_in(run: &Run, stream: Node, is_wanted: impl Fn(Node, Node) -> bool) -> Vec<Message> {
    let is_wanted = |src: Node, dst: Node| src != dst && is_wanted(src, dst);
    let mut done = Vec::new();
    match run.settings.mode {
        Mode::Default => {
            let mut cutters: AHashMap<(u32, Node), Cutter> = AHashMap::new();
            for packet in run.stream(stream) {
                let says_something = packet.payload > 0 || packet.flags & (PSH | FIN) != 0;
                if !says_something || packet.is_again || !is_wanted(packet.src, packet.dst) {
                    continue;
                }
                let key = (packet.flow, packet.dst);
                let cutter = cutters.entry(key).or_default();
                cutter.segment(packet, &mut done);
                // There may be a million connections, one after the other.
                if packet.flags & FIN != 0 {
                    cutters.remove(&key);
                }
            }
            done.extend(cutters.into_values().filter_map(|cutter| cutter.open));
            done = whole(done);
        }
        Mode::Thesis => {
            let mut open: HashMap<(Node, Node), Message> = HashMap::new();
            for packet in run.stream(stream).filter(|p| p.is_data()) {
                let (src, dst) = (packet.src, packet.dst);
                if is_wanted(src, dst) {
                    let message = open.entry((src, dst)).or_insert_with(|| Message {
                        src,
                        dst,
                        flow: packet.flow,
                        sent_ns: (packet.t_ns, packet.t_ns),
                        first_bytes: u64::from(packet.payload),
                        seq: packet.seq,
                        ..Message::default()
                    });
                    message.sent_ns.1 = packet.t_ns;
                    message.bytes += u64::from(packet.payload);
                    message.segments += 1;
                }
                done.extend(open.remove(&(dst, src)).filter(|_| src != dst));
            }
            done.extend(open.into_values());
        }
    }
    for message in &mut done {
        message.received_ns = message.sent_ns;
    }
    done
}

/// Messages of each direction of each connection, with pieces put together.
fn whole(mut done: Vec<Message>) -> Vec<Message> {
    let stream = |message: &Message| (message.flow, message.dst);
    // Within a stream they stay in the order of their bytes.
    done.sort_by_key(stream);
    let streams = done.chunk_by(|a, b| stream(a) == stream(b));
    let mut whole = Vec::with_capacity(done.len());
    for stream in streams {
        whole.extend_from_slice(&plain::joined(stream));
    }
    whole
}

/// All messages of the interval in the order of sending, with their times at both ends where both
/// were captured.
///
/// # Errors
/// When the interval holds no packet.
pub fn messages(run: &Run) -> Result<Arc<[Message]>, Unknown> {
    run.need_packets()?;
    // Most questions begin with them.
    Ok(match run.memo() {
        Some(memo) => Arc::clone(memo.messages.get_or_init(|| cut(run).into())),
        None => cut(run).into(),
    })
}

fn cut(run: &Run) -> Vec<Message> {
    let mut all = Vec::new();
    for me in run.all().filter(|&me| run.is_own(me)) {
        // Of who has no capture the partners' captures hold what they were sent.
        let is_known_here = |src: Node, dst: Node| src == me || dst == me && !run.is_own(src);
        all.extend(sent_in(run, me, is_known_here));
    }
    add_arrivals(run, &mut all);
    all.sort_by_key(|message| {
        (
            message.sent_ns,
            message.src,
            message.dst,
            message.flow,
            message.seq,
        )
    });
    all
}

/// Finds the first and last segment of each message in the receiver's capture, by sequence number.
fn add_arrivals(run: &Run, messages: &mut [Message]) {
    // With the place of the message that was found last.
    let mut by_direction: AHashMap<(u32, Node, Node), (usize, Vec<&mut Message>)> = AHashMap::new();
    for message in messages.iter_mut() {
        if run.has_both_ends(message.src, message.dst) {
            let key = (message.flow, message.src, message.dst);
            by_direction.entry(key).or_default().1.push(message);
        }
    }
    for receiver in run.all() {
        for packet in run.stream(receiver) {
            if packet.dst != receiver || !packet.is_data() {
                continue;
            }
            let key = (packet.flow, packet.src, packet.dst);
            let Some((at, list)) = by_direction.get_mut(&key) else {
                continue;
            };
            // Segments come nearly in order; the search goes on from the message before.
            let holds =
                |message: &Message| u64::from(packet.seq.wrapping_sub(message.seq)) < message.bytes;
            let near = (*at..list.len()).take(64).find(|&i| holds(list[i]));
            let Some(i) = near.or_else(|| (0..*at).rev().take(64).find(|&i| holds(list[i]))) else {
                continue;
            };
            *at = i;
            let message = &mut list[i];
            if packet.seq == message.seq {
                message.received_ns.0 = packet.t_ns;
            }
            let end = packet
                .seq
                .wrapping_add(packet.payload)
                .wrapping_sub(message.seq);
            if u64::from(end) == message.bytes {
                message.received_ns.1 = packet.t_ns;
            }
        }
    }
    for message in messages {
        // Seen in part: the interval ends between the two captures.
        if message.received_ns.1 < message.received_ns.0 {
            message.received_ns.1 = message.received_ns.0;
        }
    }
}

/// The places of the messages of each ordered pair.
pub(super) fn by_pair(messages: &[Message]) -> BTreeMap<(Node, Node), Vec<usize>> {
    let mut lists: AHashMap<(Node, Node), Vec<usize>> = AHashMap::new();
    for (i, message) in messages.iter().enumerate() {
        lists.entry((message.src, message.dst)).or_default().push(i);
    }
    lists.into_iter().collect()
}

/// Messages by ordered pair, the most first.
pub fn counts(messages: &[Message]) -> Vec<(Node, Node, u64)> {
    let mut counts: HashMap<(Node, Node), u64> = HashMap::new();
    for message in messages {
        *counts.entry((message.src, message.dst)).or_default() += 1;
    }
    let mut counts: Vec<_> = counts
        .into_iter()
        .map(|((src, dst), n)| (src, dst, n))
        .collect();
    counts.sort_by_key(|&(src, dst, n)| (std::cmp::Reverse(n), src, dst));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::run::ACK;
    use crate::network::testing::{data, delayed_run_of, run_of};

    #[test]
    fn a_push_ends_a_message_and_a_full_buffer_does_not() {
        let part = |t, bytes| Packet {
            flags: ACK,
            ..data(t, 0, 1, bytes)
        };
        let mut packets = vec![part(0, 1448), data(1, 0, 1, 10), data(2, 0, 1, 10)];
        // 100 kB in one write: a push at 65 160 bytes does not end it.
        packets.extend((0..44).map(|i| part(10 + i, 1448)));
        packets.push(data(54, 0, 1, 1448));
        packets.extend((0..24).map(|i| part(60 + i, 1448)));
        packets.push(data(90, 0, 1, 88));
        let found = messages(&run_of(2, &packets)).unwrap();
        let sizes: Vec<_> = found.iter().map(|m| (m.bytes, m.segments)).collect();
        assert_eq!(sizes, [(1458, 2), (10, 1), (65_160 + 24 * 1448 + 88, 70)]);
        assert_eq!(found[0].bandwidth(Mode::Default), Some(10.0 / 1e-9));
        assert_eq!(found[1].bandwidth(Mode::Default), None);
    }

    #[test]
    fn turns_end_with_an_answer() {
        let packets = [
            data(0, 0, 1, 10),
            data(1, 0, 1, 10),
            data(2, 1, 0, 5),
            data(3, 0, 1, 10),
        ];
        let run = run_of(2, &packets).with(|s| s.mode = Mode::Thesis);
        let found = messages(&run).unwrap();
        assert_eq!(counts(&found), [(0, 1, 2), (1, 0, 1)]);
        assert_eq!(
            counts(&messages(&run_of(2, &packets)).unwrap()),
            [(0, 1, 3), (1, 0, 1)]
        );
    }

    #[test]
    fn repetitions_are_no_messages_and_arrivals_come_from_the_other_end() {
        let packets = [data(0, 0, 1, 10), data(100, 1, 0, 20), data(300, 0, 1, 10)];
        let run = delayed_run_of(2, &packets, 7);
        let found = messages(&run).unwrap();
        let times: Vec<_> = found
            .iter()
            .map(|m| m.received_ns.0 - m.sent_ns.0)
            .collect();
        assert_eq!(times, [7, 7, 7]);
    }
}
