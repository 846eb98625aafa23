//! Readers that are behind their writers: what lies in the pipe between them.
//!
//! Who reads slower than others write does not wait, and is still busy with what lies in the pipe when the last of
//! them has ended. It could not have done so sooner than they wrote it, though: a slower writer delays every item. No
//! byte is seen on its way, so both sides are taken to move items evenly, from the moment at which the pipe was last
//! empty (the reader's last wait) to their ends: `reader(f) ≥ writer(f)` for every share `f` of them.

use super::waits::Waits;
use crate::model::{Doing, ProcessId, Side, Span};

/// Shorter than this nothing of it is known between two looks, ns.
const LEAST: i64 = 60_000_000;
/// Pairs of moments of one reader.
const MOST: usize = 64;
/// Moments of a program that starts nobody.
const EVEN: usize = 16;

/// An item on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) writer: ProcessId,
    /// When it had been written, ns.
    pub(super) written_ns: i64,
    /// When the reader began with it, ns.
    pub(super) read_ns: i64,
}

impl Waits<'_> {
    /// The items that a reader found in its pipes without having waited for them, in order; none where it kept up with its
    /// writers, or they waited for it.
    pub(super) fn backlog(&self, reader: ProcessId) -> Vec<Item> {
        let writers = self.writers(reader);
        let lives = writers.iter().map(|&writer| self.life(writer));
        let Some((born, written)) = lives.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else {
            return Vec::new();
        };
        let (start, end) = self.life(reader);
        // Before the first of them began the pipe was empty.
        let start = start.max(born);
        let is_behind = |empty: i64| written - empty >= LEAST && end - written >= LEAST;
        if !is_behind(start) || self.is_threaded(reader) {
            return Vec::new();
        }
        let is_wait = |span: &Span, side: Side| match span.doing {
            Doing::Channels(at, count) => {
                let mut waited = self.activity.channels(at, count).iter();
                waited.any(|one| one.1 == side)
            }
            _ => false,
        };
        let mut waits = self.activity.of(reader).iter().rev();
        let last = waits.find(|span| matches!(span.doing, Doing::Channels(..)));
        let empty = last.map_or(start, |span| span.to_ns).max(start);
        // Who waited for room in the pipe was not ahead as it liked.
        let had_no_room = |writer: &ProcessId| {
            let mut spans = self.activity.of(*writer).iter();
            spans.any(|span| span.to_ns > empty && is_wait(span, Side::Write))
        };
        let is_held_up = last.is_some_and(|span| is_wait(span, Side::Write));
        // Whom no look saw may have waited all the time.
        let seen = self.activity.of(reader).iter();
        let seen = seen.map(|span| (span.to_ns.min(written) - span.from_ns.max(empty)).max(0));
        let is_unseen = seen.sum::<i64>() * 2 < written - empty;
        if !is_behind(empty) || is_unseen || is_held_up || writers.iter().any(had_no_room) {
            return Vec::new();
        }
        let given = self.given(writers, (empty, written));
        let taken = self.taken(reader, (empty, end));
        let step = taken.len().div_ceil(MOST).max(1);
        let item = |place: usize| {
            // The first item was there as soon as it was written, the last when all were.
            let (written_ns, writer) = *given.get(place * given.len() / taken.len())?;
            let item = Item {
                writer,
                written_ns,
                read_ns: taken[place],
            };
            (item.written_ns <= item.read_ns).then_some(item)
        };
        (0..taken.len()).step_by(step).filter_map(item).collect()
    }

    /// When items were written, and by whom: where several writers follow each other, at their ends; where one starts others,
    /// at the ends of those; else evenly.
    fn given(&self, writers: &[ProcessId], (from, to): (i64, i64)) -> Vec<(i64, ProcessId)> {
        let is_within = |at: &i64| (from + 1..=to).contains(at);
        if let &[writer] = writers {
            let deaths = self.deaths(writer).iter().copied().filter(is_within);
            let moments = or_evenly(deaths.collect(), (from, to));
            return moments.into_iter().map(|at| (at, writer)).collect();
        }
        let ends = writers.iter().map(|&writer| (self.life(writer).1, writer));
        let mut ends: Vec<_> = ends.filter(|(at, _)| is_within(at)).collect();
        ends.sort_unstable();
        ends
    }

    /// When a reader began with items: where it started somebody for each, at the begins of those; else evenly.
    fn taken(&self, reader: ProcessId, (from, to): (i64, i64)) -> Vec<i64> {
        let is_within = |at: &i64| (from..to).contains(at);
        let births = self.births(reader).iter().copied().filter(is_within);
        let mut moments = or_evenly(births.collect(), (from, to));
        moments.retain(is_within);
        moments
    }
}

/// These moments, or where they are too few for a habit the ends of equal parts.
fn or_evenly(moments: Vec<i64>, (from, to): (i64, i64)) -> Vec<i64> {
    if moments.len() >= 3 {
        return moments;
    }
    let part = |n: usize| from + (i128::from(to - from) * n as i128 / EVEN as i128) as i64;
    (1..=EVEN).map(part).collect()
}
