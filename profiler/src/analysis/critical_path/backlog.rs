//! Readers that are behind their writers: data that lies in the pipe between them.
//!
//! A reader that is slower than its writers does not wait. It is still busy with the data in the pipe when
//! the last writer has ended. But it could not end sooner than the data was written, so a slower writer
//! delays every item. Single bytes are not observed. So reader and writers are taken to move items evenly,
//! from the instant at which the pipe was last empty (the reader's last wait) to their ends: `reader(f) ≥
//! writer(f)` for every share `f` of the items.

use super::waits::Waits;
use crate::model::{Doing, ProcessId, Side, Span};

/// Shortest backlog that is known between two samples, ns.
const LEAST: i64 = 60_000_000;
/// Most pairs of instants for one reader.
const MOST: usize = 64;
/// Number of instants for a program that starts no process.
const EVEN: usize = 16;

/// An item on its way through a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) writer: ProcessId,
    /// Instant at which the item had been written, ns.
    pub(super) written_ns: i64,
    /// Instant at which the reader began with the item, ns.
    pub(super) read_ns: i64,
}

impl Waits<'_> {
    /// The items that a reader found in its pipes without having waited for them, in order. None if the
    /// reader kept up with its writers, or the writers waited for it.
    pub(super) fn backlog(&self, reader: ProcessId) -> Vec<Item> {
        let writers = self.writers(reader);
        let lives = writers.iter().map(|&writer| self.life(writer));
        let Some((born, written)) = lives.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else {
            return Vec::new();
        };
        let (start, end) = self.life(reader);
        // Before the first writer began, the pipe was empty.
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
        // A writer that waited for space in the pipe did not write at its own speed.
        let was_blocked = |writer: &ProcessId| {
            let mut spans = self.activity.of(*writer).iter();
            spans.any(|span| span.to_ns > empty && is_wait(span, Side::Write))
        };
        let is_blocked = last.is_some_and(|span| is_wait(span, Side::Write));
        // A process without samples may have waited all the time.
        let seen = self.activity.of(reader).iter();
        let seen = seen.map(|span| (span.to_ns.min(written) - span.from_ns.max(empty)).max(0));
        let is_unseen = seen.sum::<i64>() * 2 < written - empty;
        if !is_behind(empty) || is_unseen || is_blocked || writers.iter().any(was_blocked) {
            return Vec::new();
        }
        let given = self.given(writers, (empty, written));
        let taken = self.taken(reader, (empty, end));
        let step = taken.len().div_ceil(MOST).max(1);
        let item = |place: usize| {
            // The first item was there as soon as it was written, the last one when all were written.
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

    /// The instants at which items were written, with their writers. If several writers follow each other,
    /// these are their ends; if one writer starts processes, the ends of those; else the instants are even.
    fn given(&self, writers: &[ProcessId], (from, to): (i64, i64)) -> Vec<(i64, ProcessId)> {
        let is_within = |at: &i64| (from + 1..=to).contains(at);
        if let &[writer] = writers {
            let deaths = self.deaths(writer).iter().copied().filter(is_within);
            let instants = or_evenly(deaths.collect(), (from, to));
            return instants.into_iter().map(|at| (at, writer)).collect();
        }
        let ends = writers.iter().map(|&writer| (self.life(writer).1, writer));
        let mut ends: Vec<_> = ends.filter(|(at, _)| is_within(at)).collect();
        ends.sort_unstable();
        ends
    }

    /// The instants at which a reader began with items: the begins of the processes that it started, else
    /// even instants.
    fn taken(&self, reader: ProcessId, (from, to): (i64, i64)) -> Vec<i64> {
        let is_within = |at: &i64| (from..to).contains(at);
        let births = self.births(reader).iter().copied().filter(is_within);
        let mut instants = or_evenly(births.collect(), (from, to));
        instants.retain(is_within);
        instants
    }
}

/// These instants, or the ends of equal parts if there are too few to show a habit.
fn or_evenly(instants: Vec<i64>, (from, to): (i64, i64)) -> Vec<i64> {
    if instants.len() >= 3 {
        return instants;
    }
    let part = |n: usize| from + (i128::from(to - from) * n as i128 / EVEN as i128) as i64;
    (1..=EVEN).map(part).collect()
}
