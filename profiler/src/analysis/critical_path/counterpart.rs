//! Who was at the other side of a channel that a process waited at.

use std::cmp::Reverse;

use super::waits::{Waits, slack_ns};
use crate::model::{Doing, HeldEnd, ProcessId, Side, Span};

impl Waits<'_> {
    /// Who ended a wait at channels: of those that held the other side when it ended, first who did anything then
    /// at all, then who did not wait for this process itself, then one known to have moved data before one that
    /// may have and one that held both ends, one paired with it by the amount of data, then who was busiest
    /// meanwhile: who waits itself lets nobody go. `but` is not asked for.
    pub(super) fn counterpart(
        &self,
        process: ProcessId,
        span: &Span,
        (at, count): (u32, u32),
        but: Option<ProcessId>,
    ) -> Option<ProcessId> {
        let slack = slack_ns(span.error_ns);
        let mut best = None;
        for &(channel, side) in self.activity.channels(at, count) {
            let doubtful = self.activity.idle_ends_of(channel).iter();
            let doubtful = doubtful.filter(|end| end.is_doubtful);
            for end in self.activity.ends_of(channel).iter().chain(doubtful) {
                let holds = end.from_ns < span.to_ns && end.to_ns >= span.to_ns - slack;
                let is_asked_for = end.process != process && Some(end.process) != but;
                if !is_asked_for || !is_other_side(end, side) || !holds {
                    continue;
                }
                let is_paired = match side {
                    Side::Read => self.is_writer(end.process, process),
                    Side::Write => self.is_writer(process, end.process),
                };
                let key = (
                    Reverse(self.stillness_ns(end.process, span.to_ns, slack)),
                    !self.waits_for(end.process, process, span.to_ns - slack),
                    (end.is_used, !end.is_doubtful),
                    is_paired,
                    self.busy_ns(end.process, span.from_ns, span.to_ns),
                    end.to_ns.min(span.to_ns),
                    Reverse(end.process),
                );
                best = best.max(Some(key));
            }
        }
        let best = best.map(|(.., Reverse(other))| other);
        let is_gone = |id: ProcessId| self.life(id).1 < span.to_ns - slack;
        match best {
            Some(other) if !is_gone(other) => Some(other),
            other => self
                .closer(process, span, (at, count))
                .or(other)
                .or_else(|| self.keeper(process, span, (at, count))),
        }
    }

    /// Who kept a full pipe open for reading at the end of a wait for room in it, though it read nothing: the one that began last, as `sleep`
    /// in `(sleep 9; wc)`.
    fn keeper(&self, process: ProcessId, span: &Span, channels: (u32, u32)) -> Option<ProcessId> {
        let slack = slack_ns(span.error_ns);
        self.idle_others(process, channels, Side::Write)
            .filter(|end| end.from_ns < span.to_ns && end.to_ns >= span.to_ns - slack)
            .max_by_key(|end| (end.from_ns, Reverse(end.process)))
            .map(|end| end.process)
    }

    /// Who closed a pipe at the end of a wait for it as the last of its writers, though it wrote nothing: a
    /// shell that runs `{ a; b; }` keeps it open until b has ended.
    fn closer(&self, process: ProcessId, span: &Span, channels: (u32, u32)) -> Option<ProcessId> {
        let slack = slack_ns(span.error_ns);
        self.idle_others(process, channels, Side::Read)
            .filter(|end| (end.to_ns - span.to_ns).abs() <= slack)
            .max_by_key(|end| (end.to_ns, Reverse(end.process)))
            .map(|end| end.process)
    }

    /// The other ends of the pipes at this side of which the process waited, of those that moved nothing.
    fn idle_others(
        &self,
        process: ProcessId,
        (at, count): (u32, u32),
        side: Side,
    ) -> impl Iterator<Item = &HeldEnd> {
        let waited = self.activity.channels(at, count).iter();
        waited
            .filter(move |(_, waited)| *waited == side)
            .flat_map(|&(channel, _)| self.activity.idle_ends_of(channel))
            .filter(move |end| is_other_side(end, side) && end.process != process)
    }

    /// Whether `other` waited at a channel of which `process` held the other side at that moment, or for a
    /// place.
    fn waits_for(&self, other: ProcessId, process: ProcessId, at_ns: i64) -> bool {
        let spans = self.activity.of(other);
        let place = spans.partition_point(|span| span.to_ns <= at_ns);
        let Some(span) = spans.get(place).filter(|span| span.from_ns <= at_ns) else {
            return false;
        };
        let Doing::Channels(at, count) = span.doing else {
            return span.doing == Doing::Place;
        };
        let mut waited = self.activity.channels(at, count).iter();
        waited.any(|&(channel, side)| {
            self.activity.ends_of(channel).iter().any(|end| {
                end.process == process
                    && is_other_side(end, side)
                    && end.from_ns <= at_ns
                    && end.to_ns >= at_ns
            })
        })
    }

    fn is_writer(&self, writer: ProcessId, reader: ProcessId) -> bool {
        self.writers(reader).contains(&writer)
    }

    /// For how long of an interval a process was busy, ns.
    fn busy_ns(&self, process: ProcessId, from_ns: i64, to_ns: i64) -> i64 {
        let spans = self.activity.of(process);
        let first = spans.partition_point(|span| span.to_ns <= from_ns);
        spans[first..]
            .iter()
            .take_while(|span| span.from_ns < to_ns)
            .filter(|span| span.doing == Doing::Busy)
            .map(|span| span.to_ns.min(to_ns) - span.from_ns.max(from_ns))
            .sum()
    }
}

/// Whether somebody who waits at this side waits for that end.
fn is_other_side(end: &HeldEnd, side: Side) -> bool {
    match side {
        Side::Read => end.writes,
        Side::Write => end.reads,
    }
}
