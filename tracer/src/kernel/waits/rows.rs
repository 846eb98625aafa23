//! Rows from the intervals of a thread, in a limited number.
//!
//! Long intervals are rows of their own. Short ones are put together: within a window of time all those of
//! one kind are one row with their total length. The rows of a window follow each other and fill it, so that
//! every sum is exact, and no time is off by more than a window. Windows grow with the age of the thread, so
//! that a long life has few more rows than a short one. A thread that lived shorter than one window has no
//! rows, only sums.

use flowtrace_schema::Waker;

use super::reason::Reason;

/// The shortest window, ns.
const SHORTEST: u64 = 10_000_000;
/// A window is this fraction of the age of the thread.
const PART: u64 = 64;
/// An interval of at least this fraction of a window is a row of its own.
const LONG: u64 = 4;
/// Most kinds of intervals in one window that are distinguished by their waker.
const KINDS: usize = 12;

/// State of a thread over an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) reason: Reason,
    pub(super) waker: Option<Waker>,
}

/// The rows of one thread in one image.
#[derive(Debug)]
pub(super) struct Rows {
    began: u64,
    /// Begin of the window.
    from: u64,
    /// End of its intervals so far.
    to: u64,
    /// In the order of their first appearance; `from` is not used, `to - from` is their length.
    pieces: Vec<Interval>,
    has_rows: bool,
}

impl Rows {
    pub(super) fn new(began: u64) -> Rows {
        Rows {
            began,
            from: began,
            to: began,
            pieces: Vec::new(),
            has_rows: false,
        }
    }

    /// The next interval, which begins where the last one ended.
    pub(super) fn add(&mut self, interval: Interval, emit: &mut impl FnMut(Interval)) {
        let length = interval.to - interval.from;
        if length == 0 {
            return;
        }
        let window = SHORTEST.max((interval.to - self.began.min(interval.to)) / PART);
        if length >= window / LONG {
            self.finish(true, emit);
            self.next_from(interval.to);
            return emit(interval);
        }
        self.to = interval.to;
        self.put(interval);
        if self.to - self.from >= window {
            self.finish(true, emit);
        }
    }

    /// The next interval begins at `at`.
    pub(super) fn next_from(&mut self, at: u64) {
        (self.from, self.to) = (at, at);
        self.has_rows = true;
    }

    fn put(&mut self, mut interval: Interval) {
        let length = interval.to - interval.from;
        if self.pieces.len() >= KINDS {
            interval.waker = None;
        }
        let same = |piece: &&mut Interval| {
            piece.reason == interval.reason && piece.waker == interval.waker
        };
        match self.pieces.iter_mut().find(same) {
            Some(piece) => piece.to += length,
            None => self.pieces.push(interval),
        }
    }

    /// Ends the window. Unless `must` is true, a thread that never filled one has no rows.
    pub(super) fn finish(&mut self, must: bool, emit: &mut impl FnMut(Interval)) {
        let mut at = self.from;
        let is_recorded = must || self.has_rows || self.to - self.began >= SHORTEST;
        for piece in self.pieces.drain(..) {
            let to = at + (piece.to - piece.from);
            if is_recorded {
                self.has_rows = true;
                emit(Interval {
                    from: at,
                    to,
                    ..piece
                });
            }
            at = to;
        }
        self.from = self.to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowtrace_schema::{Activity, Tid, Upid};

    fn rows(intervals: &[(u64, Activity, Option<u32>)]) -> Vec<(u64, u64, Activity, Option<u32>)> {
        let mut found = Vec::new();
        let mut emit = |row: Interval| {
            let waker = row.waker.map(|waker| waker.tid.0);
            found.push((row.from, row.to, row.reason.doing.activity, waker));
        };
        let mut rows = Rows::new(0);
        let mut at = 0;
        for &(length, activity, waker) in intervals {
            let interval = Interval {
                from: at,
                to: at + length,
                reason: activity.into(),
                waker: waker.map(|tid| Waker {
                    upid: Upid(1),
                    tid: Tid(tid),
                }),
            };
            at += length;
            rows.add(interval, &mut emit);
        }
        rows.finish(false, &mut emit);
        found
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn long_intervals_are_rows_and_short_ones_are_put_together() {
        use Activity::{Channel, Running};
        let found = rows(&[
            (MS, Running, None),
            (2 * MS, Channel, Some(5)),
            (MS, Running, None),
            (MS, Channel, Some(6)),
            (2 * MS, Channel, Some(5)),
            (30 * MS, Channel, Some(5)),
            (MS, Running, None),
        ]);
        assert_eq!(
            found,
            [
                (0, 2 * MS, Running, None),
                (2 * MS, 6 * MS, Channel, Some(5)),
                (6 * MS, 7 * MS, Channel, Some(6)),
                (7 * MS, 37 * MS, Channel, Some(5)),
                (37 * MS, 38 * MS, Running, None),
            ]
        );
    }

    #[test]
    fn a_short_life_has_no_rows_and_a_long_one_not_many() {
        use Activity::{Channel, Running};
        assert_eq!(rows(&[(MS, Running, None), (MS, Channel, None)]), []);
        // A minute of a million turns each.
        let turns: Vec<_> = (0..1_200_000)
            .map(|turn| (50_000, [Running, Channel][turn % 2], Some(turn as u32)))
            .collect();
        let found = rows(&turns);
        assert!(found.len() < 8_000, "{} rows", found.len());
        let ran = found.iter().filter(|row| row.2 == Running);
        let ran: u64 = ran.map(|row| row.1 - row.0).sum();
        assert_eq!(ran, 30_000 * MS);
        assert!(found.windows(2).all(|pair| pair[0].1 == pair[1].0));
    }
}
