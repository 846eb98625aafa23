//! What the segments of a connection were as messages (5.4.1).

use std::collections::BTreeMap;
use std::sync::Arc;

use ahash::AHashMap;

use super::run::{Mode, Node, Run, Unknown};

mod arrivals;
mod cut;
mod pieces;
mod queued;
mod spells;

/// One message of an ordered pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Sender.
    pub src: Node,
    /// Receiver.
    pub dst: Node,
    /// Connection.
    pub flow: u32,
    /// First and last segment at the sender, ns, or its begin where that was the end of the one before; the receiver's when the sender has no capture.
    pub sent_ns: (i64, i64),
    /// First and last segment at the receiver, ns; the sender's when it has no capture.
    pub received_ns: (i64, i64),
    /// Payload, bytes.
    pub bytes: u64,
    /// Payload of its first segment, bytes; 0 where its begin was the end of the one before.
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

    /// What of its time was spent on the way, and what waiting for links and coming in, ns; `base_ns`: least delay of its pair.
    pub fn parts_ns(&self, base_ns: i64) -> (i64, i64) {
        let delay = (self.received_ns.0 - self.sent_ns.0).max(0);
        let on_way = delay.min(base_ns.max(0));
        (on_way, delay - on_way + self.transfer_ns().max(0))
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

/// All messages of the interval in the order of sending, with their times at both ends where both
/// were captured.
///
/// # Errors
/// When the interval holds no packet.
pub fn messages(run: &Run) -> Result<Arc<Vec<Message>>, Unknown> {
    run.need_packets()?;
    // Most questions begin with them.
    Ok(match run.memo() {
        Some(memo) => Arc::clone(memo.messages.get_or_init(|| Arc::new(cut(run)))),
        None => Arc::new(cut(run)),
    })
}

fn cut(run: &Run) -> Vec<Message> {
    let mut all = Vec::new();
    for me in run.all().filter(|&me| run.is_own(me)) {
        // Of who has no capture the partners' captures hold what they were sent.
        let is_known_here = |src: Node, dst: Node| src == me || dst == me && !run.is_own(src);
        let sent = cut::sent_in(run, me, is_known_here);
        // A server has a capture, and its clients have none.
        match all.is_empty() {
            true => all = sent,
            false => all.extend(sent),
        }
    }
    arrivals::add(run, &mut all);
    all.sort_by_key(|message| {
        (
            message.sent_ns,
            message.src,
            message.dst,
            message.flow,
            message.seq,
        )
    });
    if run.settings.mode == Mode::Default {
        queued::begin_earlier(&mut all);
    }
    all
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
    let mut counts: AHashMap<(Node, Node), u64> = AHashMap::new();
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
    use crate::run::{ACK, Packet};
    use crate::testing::{data, delayed_run_of, run_of};

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
