//! Pairs whose messages are all of one size: there a message is a repetition by itself, and the
//! sizes say nothing of where an iteration begins.

use std::collections::{BTreeMap, HashMap};

use super::messages::Message;
use super::run::Node;

/// Share of a pair's messages that have the usual size, percent.
const USUAL_PERCENT: usize = 90;
/// The same while some messages are still in pieces.
const PIECES_PERCENT: usize = 75;
/// Messages that leave together at most.
const MOST_TOGETHER: u64 = 64;
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
fn usual(sizes: impl IntoIterator<Item = u64>) -> Option<(u64, usize)> {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for size in sizes {
        *counts.entry(size).or_default() += 1;
    }
    // Of two that are as frequent the larger one, so that the answer is always the same.
    counts.into_iter().max_by_key(|&(size, n)| (n, size))
}

/// The ordered pairs whose messages are alike. A greeting or a farewell of another size is left out.
pub fn pairs(messages: &[Message]) -> BTreeMap<(Node, Node), Plain> {
    let mut lists: BTreeMap<(Node, Node), Vec<usize>> = BTreeMap::new();
    for (i, message) in messages.iter().enumerate() {
        lists.entry((message.src, message.dst)).or_default().push(i);
    }
    let mut found = BTreeMap::new();
    for (pair, mut list) in lists {
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

/// Puts the pieces of messages together: a push in the middle of a write (a full buffer, a lack of
/// window) cuts it, and pieces next to each other that make the usual size exactly are one message.
/// The messages are of one direction of one connection, in the order of their bytes.
pub(super) fn joined(pieces: Vec<Message>) -> Vec<Message> {
    let Some((bytes, n)) = usual(pieces.iter().map(|piece| piece.bytes)) else {
        return pieces;
    };
    let pieces = parted(pieces, bytes, n);
    if n == pieces.len() || n < LEAST || n * 100 < pieces.len() * PIECES_PERCENT {
        return pieces;
    }
    let mut whole: Vec<Message> = Vec::with_capacity(pieces.len());
    // Where the pieces of a message that is not whole yet begin.
    let mut open: Option<usize> = None;
    for piece in pieces {
        if piece.bytes >= bytes {
            open = None;
            whole.push(piece);
            continue;
        }
        let from = *open.get_or_insert(whole.len());
        whole.push(piece);
        let sum: u64 = whole[from..].iter().map(|piece| piece.bytes).sum();
        if sum == bytes {
            let last = *whole.last().unwrap_or(&piece);
            let segments = whole[from..].iter().map(|piece| piece.segments).sum();
            whole.truncate(from + 1);
            whole[from].sent_ns.1 = last.sent_ns.1;
            whole[from].received_ns.1 = last.received_ns.1;
            whole[from].bytes = bytes;
            whole[from].segments = segments;
            open = None;
        } else if sum > bytes {
            open = None;
        }
    }
    whole
}

/// Takes messages apart that left together, for the one before had not left yet: whole multiples of
/// the usual size where nearly all are such. Segments of that size each are one long message instead.
fn parted(pieces: Vec<Message>, bytes: u64, usual: usize) -> Vec<Message> {
    let is_multiple = |piece: &&Message| piece.bytes % bytes.max(1) == 0;
    let multiples = pieces.iter().filter(is_multiple).count();
    if usual * 2 < pieces.len() || multiples * 100 < pieces.len() * USUAL_PERCENT || bytes == 0 {
        return pieces;
    }
    let mut apart = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let count = piece.bytes / bytes;
        let is_long = u64::from(piece.segments) == count;
        if piece.bytes % bytes != 0 || count < 2 || count > MOST_TOGETHER || is_long {
            apart.push(piece);
            continue;
        }
        apart.extend((0..count).map(|k| Message {
            bytes,
            first_bytes: piece.first_bytes.min(bytes),
            segments: (piece.segments / count as u32).max(1),
            seq: piece.seq.wrapping_add((k * bytes) as u32),
            ..piece
        }));
    }
    apart
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
        let whole = joined(messages(&sizes));
        let bytes: Vec<u64> = whole.iter().map(|m| m.bytes).collect();
        assert_eq!(bytes[..9], [1, 20, 20, 20, 20, 20, 20, 20, 4]);
        assert_eq!(bytes[9..], [20; 6]);
        assert_eq!((whole[3].sent_ns, whole[3].segments), ((3, 4), 2));
        // Without a usual size nothing is put together.
        let mixed = messages(&[5, 15, 20, 7, 13, 20]);
        assert_eq!(joined(mixed.clone()), mixed);
        assert_eq!(joined(Vec::new()), []);
    }

    #[test]
    fn messages_that_left_together_are_counted_apart() {
        let mut made = messages(&[20, 40, 20, 60, 20, 20, 20]);
        let whole = joined(made.clone());
        assert_eq!(whole.iter().map(|m| m.bytes).collect::<Vec<_>>(), [20; 10]);
        // Two full segments are one message of twice the size.
        made[1].segments = 2;
        assert_eq!(joined(made)[1].bytes, 40);
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
