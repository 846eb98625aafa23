//! Messages of one size that left when the receiver allowed it.
//!
//! A sender may have to wait for the receiver's window, the congestion window, or a full buffer. Then
//! writes that wait leave together and are cut where the free space ends, so that pushes do not show
//! the writes. But a segment that left without a wait begins a write. The segments between two such
//! instants, a *burst*, are a whole number of writes. If bursts show a size, and (nearly) all others
//! are exact multiples of it, the program writes messages of that size. A burst has as many of them as
//! fit. Programs of several sizes have bursts that are no such multiples, and single writes of other
//! sizes; their messages stay as they are.

use super::{Message, pieces};
use crate::quantile;

/// Segments that left between two pushes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    pub(super) message: Message,
    /// True if the first segment did not have to wait.
    pub(super) is_free: bool,
}

/// Least number of bursts of one size that make it the program's.
const LEAST: usize = 3;
/// Most bursts that are no multiple of the size, percent: a program that waits for free space in its
/// buffer may be woken late, in the middle of a write.
const ODD_PERCENT: usize = 10;
/// Most adjacent bursts that are a multiple only together.
const MOST_TOGETHER: usize = 4;
/// Most messages for each segment: 256 bytes each where segments have 64 kB. More follow from a length that is not
/// true, and would need memory without a bound.
const MOST_EACH: u64 = 256;
/// Bytes that every receiver accepts at once, ten segments (RFC 6928). Less than that did not wait, so
/// that its pushes are those of the program.
const TAKEN_AT_ONCE: u64 = 10 * 1448;

/// The messages of one direction of a connection, if they have one size but do not show it; `None` if
/// the pushes show them as well. The pieces are in the order of their bytes.
pub(super) fn counted(pieces: &[Piece]) -> Option<Vec<Message>> {
    let bursts: Vec<&[Piece]> = pieces.chunk_by(|_, next| !next.is_free).collect();
    let size = size(&bursts)?;
    let segments: u64 = pieces.iter().map(|p| u64::from(p.message.segments)).sum();
    if bytes(pieces) / size > MOST_EACH * segments {
        return None;
    }
    let mut found = Vec::with_capacity(pieces.len());
    let (first, rest) = bursts.split_first()?;
    with_greeting(first, size, &mut found);
    let mut rest = rest;
    while let Some((burst, others)) = rest.split_first() {
        let sum = |k: usize| rest[..k].iter().map(|burst| bytes(burst)).sum::<u64>();
        let most = rest.len().min(MOST_TOGETHER);
        match (1..=most).find(|&k| sum(k).is_multiple_of(size)) {
            Some(k) => {
                divide(rest[..k].iter().copied().flatten(), size, &mut found);
                rest = &rest[k..];
                continue;
            }
            // After the last burst the program may send more.
            None if others.is_empty() => divide(*burst, size, &mut found),
            None => found.extend(burst.iter().map(|piece| piece.message)),
        }
        rest = others;
    }
    Some(found)
}

/// The size of the messages in these bursts, bytes, if all have one size.
fn size(bursts: &[&[Piece]]) -> Option<u64> {
    // A greeting may come before the first burst, and the last one is incomplete.
    let within = bursts.get(1..bursts.len().checked_sub(1)?)?;
    let may_have_waited = |burst: &&[Piece]| burst.len() > 1 && bytes(burst) >= TAKEN_AT_ONCE;
    if !bursts.iter().any(may_have_waited) {
        return None;
    }
    let (size, count) = quantile::usual(within.iter().map(|burst| bytes(burst)))?;
    // An iteration of several writes repeats too, but no single write is as long.
    let whole = bursts.iter().copied().flatten();
    let written = whole.filter(|piece| piece.message.bytes == size).count();
    if written < count.max(LEAST) || size == 0 {
        return None;
    }
    let odd = within.iter().filter(|s| !bytes(s).is_multiple_of(size));
    // A piece that left alone was written so.
    let longer = within.iter().filter(|s| s.len() == 1 && bytes(s) > size);
    let is_few = |few: usize| few * 100 <= within.len() * ODD_PERCENT;
    (is_few(odd.count()) && is_few(longer.count())).then_some(size)
}

fn divide<'a>(pieces: impl IntoIterator<Item = &'a Piece>, size: u64, found: &mut Vec<Message>) {
    let messages = pieces.into_iter().map(|piece| piece.message);
    pieces::divide(messages, size, found);
}

fn bytes(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.message.bytes).sum()
}

/// Divides the burst that begins a connection, or the interval. Its first pieces may be a greeting, or
/// the rest of a message that began before.
fn with_greeting(burst: &[Piece], size: u64, found: &mut Vec<Message>) {
    let mut rest = bytes(burst);
    for (at, piece) in burst.iter().enumerate() {
        if rest.is_multiple_of(size) && burst.len() > 1 {
            return divide(&burst[at..], size, found);
        }
        rest -= piece.message.bytes;
        found.push(piece.message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Noise;

    /// Pieces of these sizes. In each list, all after the first had to wait.
    fn pieces(bursts: &[&[u64]]) -> Vec<Piece> {
        let mut seq = 1u32;
        let mut made = Vec::new();
        for (t, burst) in bursts.iter().enumerate() {
            for (i, &bytes) in burst.iter().enumerate() {
                let message = Message {
                    dst: 1,
                    sent_ns: (1000 * t as i64 + i as i64, 1000 * t as i64 + i as i64),
                    bytes,
                    segments: 1,
                    seq,
                    ..Message::default()
                };
                seq = seq.wrapping_add(bytes as u32);
                let is_free = i == 0;
                made.push(Piece { message, is_free });
            }
        }
        made
    }

    fn sizes(messages: &[Message]) -> Vec<u64> {
        messages.iter().map(|message| message.bytes).collect()
    }

    #[test]
    fn a_burst_that_waited_is_as_many_messages_as_fit() {
        let mut made: Vec<&[u64]> = vec![&[1], &[7_240, 7_240, 5_520]];
        made.extend([&[20_000][..]; 10]);
        made.extend([
            &[20_000, 12_768, 65_160, 22_072][..],
            &[65_160, 30_840],
            &[5_000, 19_000, 22_000],
        ]);
        let made = pieces(&made);
        let found = counted(&made).unwrap();
        let mut expected = vec![1];
        expected.extend([20_000; 1 + 10 + 6]);
        // This burst has another size and stays as it was. The last one may be incomplete.
        expected.extend([65_160, 30_840, 20_000, 20_000, 6_000]);
        assert_eq!(sizes(&found), expected);
        for pair in found.windows(2) {
            let end = pair[0].seq.wrapping_add(pair[0].bytes as u32);
            assert_eq!(pair[1].seq, end, "none is lost");
        }
        assert_eq!((found[1].segments, found[1].sent_ns), (3, (1000, 1002)));
    }

    #[test]
    fn a_length_that_is_not_true_is_not_divided() {
        let mut made: Vec<&[u64]> = vec![&[1], &[7_240, 7_240, 5_520]];
        made.extend([&[20_000][..]; 10]);
        made.push(&[20_000, 12_768, 7_232]);
        assert!(counted(&pieces(&made)).is_some());
        made.push(&[4_000_000_000; 2]);
        assert!(counted(&pieces(&made)).is_none());
    }

    #[test]
    fn a_greeting_may_leave_with_the_first_messages() {
        let made = pieces(&[
            &[33, 7_240, 12_760],
            &[20_000],
            &[20_000],
            &[20_000],
            &[20_000],
        ]);
        let found = sizes(&counted(&made).unwrap());
        assert_eq!(found, [33, 20_000, 20_000, 20_000, 20_000, 20_000]);
    }

    #[test]
    fn a_writer_that_is_woken_late_does_not_hide_the_size() {
        let mut made = vec![&[20_000][..]; 30];
        made[12] = &[65_160, 20_000, 3_000];
        made[13] = &[65_160, 26_680];
        let found = sizes(&counted(&pieces(&made)).unwrap());
        assert_eq!(found, [20_000; 28 + 9]);
    }

    #[test]
    fn small_messages_do_not_wait() {
        let made = vec![
            &[1_000][..],
            &[1_000, 500, 500],
            &[1_000],
            &[1_000],
            &[700, 300],
        ];
        assert!(counted(&pieces(&made)).is_none());
        assert!(counted(&[]).is_none());
        assert!(counted(&pieces(&[&[20_000, 20_000]])).is_none());
    }

    /// Equal writes that were merged and cut anywhere are counted exactly, whatever their size.
    #[test]
    fn equal_writes_are_counted_exactly_wherever_they_were_cut() {
        let mut noise = Noise(41);
        for trial in 0..300 {
            let size = 500 + (noise.uniform() * 60_000.0) as u64;
            let mut bursts: Vec<Vec<u64>> = vec![vec![1]];
            let mut count = 1;
            for _ in 0..10 + (noise.uniform() * 40.0) as usize {
                let is_waiting = noise.uniform() < 0.4;
                let writes = if is_waiting {
                    2 + (noise.uniform() * 60.0) as u64
                } else {
                    1
                };
                count += writes as usize;
                let mut left = writes * size;
                let mut burst = Vec::new();
                while left > 0 {
                    let space = 1 + (noise.uniform() * 65_160.0) as u64;
                    // The first piece leaves at once, as far as there is free space.
                    let most = if burst.is_empty() { size } else { left };
                    let piece = if is_waiting { space.min(most) } else { left };
                    burst.push(piece);
                    left -= piece;
                }
                bursts.push(burst);
            }
            let bursts: Vec<&[u64]> = bursts.iter().map(Vec::as_slice).collect();
            if let Some(found) = counted(&pieces(&bursts)) {
                assert_eq!(found.len(), count, "trial {trial}, size {size}");
            } else {
                let single = bursts.iter().filter(|burst| **burst == [size]).count();
                let most = bursts.iter().map(|burst| burst.iter().sum::<u64>()).max();
                assert!(
                    single < LEAST || most < Some(TAKEN_AT_ONCE),
                    "trial {trial}: {single} single writes of {size}"
                );
            }
        }
    }

    /// A repeated unit may be an iteration of several writes.
    #[test]
    fn an_iteration_is_no_message() {
        let rounds: Vec<&[u64]> = vec![&[8_000, 4_000, 20_000, 20_000, 64_000]; 40];
        assert!(counted(&pieces(&rounds)).is_none());
    }

    /// Writes of several sizes are not put together, even if the sizes have a common divisor.
    #[test]
    fn writes_of_several_sizes_stay_as_they_are() {
        let mut noise = Noise(97);
        for trial in 0..300 {
            let unit = [1, 8, 1_000, 10_000][trial % 4];
            let kinds: Vec<u64> = (0..2 + trial % 5)
                .map(|k| unit * (1 + k as u64 + (noise.uniform() * 60_000.0 / unit as f64) as u64))
                .collect();
            let bursts: Vec<Vec<u64>> = (0..60)
                .map(|_| {
                    let writes = 1 + (noise.uniform() * 3.0) as usize;
                    let one = |_| kinds[(noise.uniform() * kinds.len() as f64) as usize];
                    (0..writes).map(one).collect()
                })
                .collect();
            let bursts: Vec<&[u64]> = bursts.iter().map(Vec::as_slice).collect();
            let written = pieces(&bursts);
            if let Some(found) = counted(&written) {
                assert_eq!(found.len(), written.len(), "trial {trial}: {kinds:?}");
            }
        }
    }
}
