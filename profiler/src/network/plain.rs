//! Pairs whose messages are all of one size: there a message is a repetition by itself, and the
//! sizes say nothing of where an iteration begins.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ahash::AHashMap;

use super::messages::{self, Message};
use super::run::Node;

/// Share of a pair's messages that have the usual size, percent.
const USUAL_PERCENT: usize = 90;
/// The same while some messages are still in pieces.
const PIECES_PERCENT: usize = 75;
/// Messages that leave together at most.
const MOST_TOGETHER: u64 = 10_000;
/// Pieces of one message at most.
const MOST_PIECES: usize = 256;
/// Fewer messages have no usual size.
const LEAST: usize = 3;
/// Numbers of messages in both directions that are in step differ by no more, per cent and one.
const STEP_PERCENT: usize = 2;

/// The messages of one ordered pair, all of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The size, bytes.
    pub bytes: u64,
    /// Indices of the messages of that size among all.
    pub messages: Vec<usize>,
    /// When each was sent, ns.
    pub times_ns: Vec<i64>,
}

/// The size that most messages have, with how many have it.
pub(super) fn usual(sizes: impl IntoIterator<Item = u64>) -> Option<(u64, usize)> {
    let mut counts: AHashMap<u64, usize> = AHashMap::new();
    for size in sizes {
        *counts.entry(size).or_default() += 1;
    }
    // Of two that are as frequent the larger one, so that the answer is always the same.
    counts.into_iter().max_by_key(|&(size, n)| (n, size))
}

/// The ordered pairs whose messages are alike. A greeting or a farewell of another size is left out.
pub fn pairs(messages: &[Message]) -> BTreeMap<(Node, Node), Plain> {
    let mut found = BTreeMap::new();
    for (pair, mut list) in messages::by_pair(messages) {
        let Some((bytes, n)) = usual(list.iter().map(|&i| messages[i].bytes)) else {
            continue;
        };
        if n < LEAST || n * 100 < list.len() * USUAL_PERCENT {
            continue;
        }
        list.retain(|&i| messages[i].bytes == bytes);
        let plain = Plain {
            bytes,
            times_ns: list.iter().map(|&i| messages[i].sent_ns.0).collect(),
            messages: list,
        };
        found.insert(pair, plain);
    }
    found
}

/// Whether two counts are in step.
pub fn are_in_step(a: usize, b: usize) -> bool {
    a.abs_diff(b) * 100 <= a.max(b) * STEP_PERCENT + 100
}

/// Messages as they were written where nearly all have one size: a push in the middle of a write (a
/// full buffer, a lack of window) cuts it, and messages that wait for the one before leave together.
/// Pieces next to each other that make the usual size, or a multiple of it, exactly are as many
/// messages. The messages are of one direction of one connection, in the order of their bytes.
pub(super) fn joined(pieces: &[Message]) -> Cow<'_, [Message]> {
    if pieces.len() < LEAST {
        return pieces.into();
    }
    let Some((bytes, n)) = usual(pieces.iter().map(|piece| piece.bytes)) else {
        return pieces.into();
    };
    if bytes == 0 || n == pieces.len() || n < LEAST || n * 100 < pieces.len() * PIECES_PERCENT {
        return pieces.into();
    }
    let mut whole: Vec<Message> = Vec::with_capacity(pieces.len());
    // The pieces since the last whole message, and their bytes.
    let mut open: Vec<Message> = Vec::new();
    let mut sum = 0;
    for &piece in pieces {
        // Segments of the usual size each are one long message.
        if piece.bytes == bytes * u64::from(piece.segments) {
            close(&mut open, bytes, &mut whole);
            whole.push(piece);
            sum = 0;
            continue;
        }
        if piece.bytes == bytes && sum > 0 && begins_here(&open, bytes, whole.is_empty()) {
            close(&mut open, bytes, &mut whole);
            sum = 0;
        }
        sum += piece.bytes;
        open.push(piece);
        if sum % bytes == 0 && sum / bytes <= MOST_TOGETHER {
            whole.extend((0..sum / bytes).filter_map(|k| cut(&open, k * bytes, bytes)));
            open.clear();
            sum = 0;
        }
    }
    whole.append(&mut open);
    whole.into()
}

/// Whether a message of the usual size that comes whole begins behind the open pieces: the last of them make
/// whole messages, or there is but a greeting so far.
fn begins_here(open: &[Message], bytes: u64, is_young: bool) -> bool {
    let mut sum = 0;
    let mut makes_whole = |piece: &Message| {
        sum += piece.bytes;
        sum % bytes == 0
    };
    is_young && open.len() == 1 || open.iter().rev().take(MOST_PIECES).any(&mut makes_whole)
}

/// Ends the open pieces where a message of the usual size begins: as many of the last of them as make whole
/// messages are these. A greeting before them, or what was left of one, is by itself.
fn close(open: &mut Vec<Message>, bytes: u64, whole: &mut Vec<Message>) {
    let mut rest: u64 = open.iter().map(|piece| piece.bytes).sum();
    for first in 0..open.len() {
        if rest.is_multiple_of(bytes) && rest / bytes <= MOST_TOGETHER {
            whole.extend_from_slice(&open[..first]);
            whole.extend((0..rest / bytes).filter_map(|k| cut(&open[first..], k * bytes, bytes)));
            open.clear();
            return;
        }
        rest -= open[first].bytes;
    }
    whole.append(open);
}

/// The message of so many bytes from an offset on in pieces next to each other.
fn cut(pieces: &[Message], from: u64, bytes: u64) -> Option<Message> {
    let mut at = 0;
    let ends = pieces.iter().map(|piece| {
        at += piece.bytes;
        at
    });
    let ends: Vec<u64> = ends.collect();
    let holding = |byte: u64| ends.partition_point(|&end| end <= byte);
    let (first, last) = (holding(from), holding(from + bytes - 1));
    let (begin, end) = (pieces.get(first)?, pieces.get(last)?);
    Some(Message {
        sent_ns: (begin.sent_ns.0, end.sent_ns.1),
        received_ns: (begin.received_ns.0, end.received_ns.1),
        bytes,
        first_bytes: begin.first_bytes.min(bytes),
        segments: (last - first + 1) as u32,
        seq: pieces.first()?.seq.wrapping_add(from as u32),
        ..*begin
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(sizes: &[u64]) -> Vec<Message> {
        let message = |(i, &bytes): (usize, &u64)| Message {
            src: 0,
            dst: 1,
            sent_ns: (i as i64, i as i64),
            bytes,
            segments: 1,
            ..Message::default()
        };
        sizes.iter().enumerate().map(message).collect()
    }

    #[test]
    fn pieces_that_make_the_usual_size_are_one_message() {
        let sizes = [1, 20, 20, 9, 11, 20, 20, 20, 20, 4, 20, 20, 20, 20, 20, 20];
        let pieces = messages(&sizes);
        let whole = joined(&pieces);
        let bytes: Vec<u64> = whole.iter().map(|m| m.bytes).collect();
        assert_eq!(bytes[..9], [1, 20, 20, 20, 20, 20, 20, 20, 4]);
        assert_eq!(bytes[9..], [20; 6]);
        assert_eq!((whole[3].sent_ns, whole[3].segments), ((3, 4), 2));
        // Without a usual size nothing is put together.
        let mixed = messages(&[5, 15, 20, 7, 13, 20]);
        assert_eq!(joined(&mixed), mixed);
        assert!(joined(&[]).is_empty());
    }

    #[test]
    fn a_greeting_does_not_keep_the_pieces_behind_it_apart() {
        // The first messages outgrow the window of a young connection.
        let made = |head: &[u64], segments: u32| {
            let mut made = messages(&[head, &[20; 20]].concat());
            for message in &mut made {
                message.segments = segments;
            }
            made
        };
        for segments in [1, 3] {
            let whole = joined(&made(&[1, 14, 6, 15, 5], segments)).into_owned();
            assert_eq!(whole.len(), 23);
            assert_eq!(
                (whole[0].bytes, whole[1].bytes, whole[2].bytes),
                (1, 20, 20)
            );
            assert_eq!((whole[1].sent_ns, whole[2].sent_ns), ((1, 2), (3, 4)));
            assert_eq!(joined(&made(&[1, 20, 14, 6, 15, 5], segments)).len(), 24);
        }
        // In the middle of a stream a whole message's worth may lie across two.
        assert_eq!(joined(&made(&[20, 20, 10, 20, 10], 3)).len(), 24);
    }

    #[test]
    fn messages_that_left_together_are_counted_apart() {
        // The third is cut where the buffer was full.
        let mut made = messages(&[20, 20, 20, 40, 20, 20, 45, 15, 20, 20, 20, 20, 20, 20]);
        let whole = joined(&made);
        assert_eq!(whole.iter().map(|m| m.bytes).collect::<Vec<_>>(), [20; 16]);
        assert_eq!((whole[7].sent_ns, whole[9].sent_ns), ((6, 6), (6, 7)));
        // Two full segments are one message of twice the size.
        made[3].segments = 2;
        assert_eq!(joined(&made)[3].bytes, 40);
    }

    #[test]
    fn a_greeting_is_no_message_of_the_pair() {
        let mut sizes = vec![1];
        sizes.extend([2000; 30]);
        let found = pairs(&messages(&sizes));
        let plain = &found[&(0, 1)];
        assert_eq!((plain.bytes, plain.messages.len()), (2000, 30));
        assert!(pairs(&messages(&[1, 2, 3, 4])).is_empty());
        assert!(are_in_step(300, 301) && !are_in_step(300, 320) && are_in_step(1, 2));
    }
}
