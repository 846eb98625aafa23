//! Messages of a program, from the segments of its connections (5.4.1).

use std::collections::BTreeMap;
use std::sync::Arc;

use ahash::AHashMap;

use super::run::{Mode, Node, Run, Unknown};

mod arrivals;
mod bursts;
mod cut;
mod message;
mod pieces;
mod queued;

pub use message::Message;

/// All messages of the interval in the order of sending. They have their times at both ends if both
/// were captured.
///
/// # Errors
/// When the interval holds no packet.
pub fn messages(run: &Run) -> Result<Arc<Vec<Message>>, Unknown> {
    run.need_packets()?;
    // Most analyses begin with the messages.
    Ok(run.once(|| Arc::new(cut(run))))
}

fn cut(run: &Run) -> Vec<Message> {
    let mut all = Vec::new();
    for me in run.all().filter(|&me| run.is_own(me)) {
        // The captures of its partners have the messages to a process without a capture.
        let is_known_here = |src: Node, dst: Node| src == me || dst == me && !run.is_own(src);
        let sent = cut::sent_in(run, me, is_known_here);
        // A server has a capture, while its clients have none.
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
    use crate::run::{ACK, PSH, Packet};
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

    /// Loopback has segments of up to 65 483 bytes, so that one segment and a rest are more than a full
    /// buffer.
    #[test]
    fn a_long_message_ends_where_its_last_segment_is_not_full() {
        let sizes = |segments: &[(u32, bool)]| -> Vec<u64> {
            let packet = |(t, &(bytes, is_pushed)): (usize, &(u32, bool))| Packet {
                flags: if is_pushed { ACK | PSH } else { ACK },
                ..data(t as i64, 0, 1, bytes)
            };
            let packets: Vec<_> = segments.iter().enumerate().map(packet).collect();
            let found = messages(&run_of(2, &packets)).unwrap();
            found.iter().map(|message| message.bytes).collect()
        };
        for size in [65_536, 70_000, 100_000, 130_000, 200_000, 1_000_000] {
            let full = (size / 65_483) as usize;
            let mut write = vec![(65_483, false); full];
            write.push((size - 65_483 * full as u32, true));
            assert_eq!(sizes(&write.repeat(20)), [u64::from(size); 20]);
        }
        // A full buffer in two parts, as offload joins them, and the rest of the write.
        let write = [(14_480, false), (50_680, true), (30_000, true)];
        assert_eq!(sizes(&write.repeat(3)), [95_160; 3]);
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
