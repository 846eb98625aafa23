//! Messages of one size, from the pieces into which a stream of bytes was cut.

use crate::quantile;
use std::borrow::Cow;

use super::Message;

/// Least share of the pieces that have the usual size already, percent.
const USUAL_PERCENT: u64 = 75;
/// Most messages that leave together.
const MOST_TOGETHER: u64 = 10_000;
/// Most pieces of one message.
const MOST_PIECES: usize = 256;
/// Least number of messages with a usual size.
const LEAST: usize = 3;

/// The messages as they were written, if nearly all have one size. A push in the middle of a write
/// (full buffer, closed window) cuts it, and messages that wait for the one before leave together.
/// Adjacent pieces that add up exactly to the usual size or a multiple of it are that number of
/// messages. The messages are of one direction of one connection, in the order of their bytes.
pub(super) fn joined(pieces: &[Message]) -> Cow<'_, [Message]> {
    if pieces.len() < LEAST {
        return pieces.into();
    }
    let Some((bytes, n)) = quantile::usual(pieces.iter().map(|piece| piece.bytes)) else {
        return pieces.into();
    };
    if bytes == 0 || n == pieces.len() || n < LEAST {
        return pieces.into();
    }
    // By bytes as well: if there are few messages, the first may be in more pieces than there are whole
    // messages.
    let sum: u64 = pieces.iter().map(|piece| piece.bytes).sum();
    let is_usual = |part: u64, of: u64| part * 100 >= of * USUAL_PERCENT;
    if !is_usual(n as u64, pieces.len() as u64) && !is_usual(n as u64 * bytes, sum) {
        return pieces.into();
    }
    let mut whole: Vec<Message> = Vec::with_capacity(pieces.len());
    // The pieces since the last whole message, and their bytes.
    let mut open: Vec<Message> = Vec::new();
    let mut sum = 0;
    for &piece in pieces {
        // Several segments of the usual size are one long message.
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
            divide(open.drain(..), bytes, &mut whole);
            sum = 0;
        }
    }
    whole.append(&mut open);
    whole.into()
}

/// True if the piece after the open ones is a whole message of the usual size: the last of the open
/// pieces make whole messages, or only a greeting came so far.
fn begins_here(open: &[Message], bytes: u64, is_young: bool) -> bool {
    let mut sum = 0;
    let mut makes_whole = |piece: &Message| {
        sum += piece.bytes;
        sum % bytes == 0
    };
    is_young && open.len() == 1 || open.iter().rev().take(MOST_PIECES).any(&mut makes_whole)
}

/// Ends the open pieces at a message of the usual size. As many of the last of them as make whole
/// messages become these. A greeting before them, or the rest of a message, is a message by itself.
fn close(open: &mut Vec<Message>, bytes: u64, whole: &mut Vec<Message>) {
    let mut rest: u64 = open.iter().map(|piece| piece.bytes).sum();
    for first in 0..open.len() {
        if rest.is_multiple_of(bytes) && rest / bytes <= MOST_TOGETHER {
            whole.extend(open.drain(..first));
            divide(open.drain(..), bytes, whole);
            return;
        }
        rest -= open[first].bytes;
    }
    whole.append(open);
}

/// Divides adjacent pieces, wherever they were cut, into messages of this size, bytes. The rest after
/// the last whole one is a message as well.
pub(super) fn divide(
    pieces: impl IntoIterator<Item = Message>,
    size: u64,
    found: &mut Vec<Message>,
) {
    let mut open: Option<Message> = None;
    for piece in pieces {
        let mut left = piece.bytes;
        while left > 0 {
            let message = open.get_or_insert_with(|| Message {
                seq: piece.seq.wrapping_add((piece.bytes - left) as u32),
                bytes: 0,
                segments: 0,
                first_bytes: piece.first_bytes.min(size),
                ..piece
            });
            let taken = left.min(size - message.bytes);
            message.bytes += taken;
            // If several messages share a piece, the distribution of its segments over them is not
            // known.
            message.segments += if taken == piece.bytes {
                piece.segments
            } else {
                1
            };
            message.sent_ns.1 = piece.sent_ns.1;
            message.received_ns.1 = piece.received_ns.1;
            left -= taken;
            if message.bytes == size {
                found.extend(open.take());
            }
        }
    }
    found.extend(open);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(sizes: &[u64]) -> Vec<Message> {
        let mut seq = 1u32;
        let message = |(i, &bytes): (usize, &u64)| {
            let message = Message {
                src: 0,
                dst: 1,
                sent_ns: (i as i64, i as i64),
                bytes,
                segments: 1,
                seq,
                ..Message::default()
            };
            seq = seq.wrapping_add(bytes as u32);
            message
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
        // Without a usual size, nothing is put together.
        let mixed = messages(&[5, 15, 20, 7, 13, 20]);
        assert_eq!(joined(&mixed), mixed);
        assert!(joined(&[]).is_empty());
    }

    #[test]
    fn a_greeting_does_not_keep_the_pieces_behind_it_apart() {
        // The first messages are larger than the window of a young connection.
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
            // Without the segments the message has no bandwidth.
            let of_segments = (whole[1].segments, whole[9].segments);
            assert_eq!(of_segments, (2 * segments, segments));
            assert_eq!(joined(&made(&[1, 20, 14, 6, 15, 5], segments)).len(), 24);
        }
        // In the middle of a stream, pieces as long as a message may be parts of two.
        assert_eq!(joined(&made(&[20, 20, 10, 20, 10], 3)).len(), 24);
    }

    #[test]
    fn of_few_messages_the_first_may_be_in_more_pieces_than_there_are_whole_ones() {
        let made = messages(&[1, 7, 7, 6, 7, 7, 6, 20, 20, 20, 20, 20, 20, 20, 20]);
        assert_eq!(joined(&made).len(), 11);
        // Large messages with as many small ones are no pieces.
        let mixed = messages(&[20, 3, 5, 20, 3, 5, 20, 3, 5, 20]);
        assert_eq!(joined(&mixed), mixed);
    }

    #[test]
    fn messages_that_left_together_are_counted_apart() {
        // The third message is cut where the buffer was full.
        let mut made = messages(&[20, 20, 20, 40, 20, 20, 45, 15, 20, 20, 20, 20, 20, 20]);
        let whole = joined(&made);
        assert_eq!(whole.iter().map(|m| m.bytes).collect::<Vec<_>>(), [20; 16]);
        assert_eq!((whole[7].sent_ns, whole[9].sent_ns), ((6, 6), (6, 7)));
        // Two full segments are one message of twice the size.
        made[3].segments = 2;
        assert_eq!(joined(&made)[3].bytes, 40);
    }

    /// A stream cut anywhere has messages of the same bytes. A piece within one message gives it all
    /// its segments.
    #[test]
    fn pieces_are_divided_wherever_they_were_cut() {
        let mut made = messages(&[20, 5, 15, 50, 7]);
        made[2].segments = 3;
        let mut found = Vec::new();
        divide(made, 20, &mut found);
        let of = |m: &Message| (m.bytes, m.segments, m.seq, m.sent_ns);
        let expected = [
            (20, 1, 1, (0, 0)),
            (20, 4, 21, (1, 2)),
            (20, 1, 41, (3, 3)),
            (20, 1, 61, (3, 3)),
            (17, 2, 81, (3, 4)),
        ];
        assert_eq!(found.iter().map(of).collect::<Vec<_>>(), expected);
    }
}
