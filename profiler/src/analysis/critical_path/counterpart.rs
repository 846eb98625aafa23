//! Finds the process at the other side of a channel that a process waited at.

use std::cmp::Reverse;

use super::waits::{Waits, slack_ns};
use crate::model::{Doing, OpenEnd, ProcessId, Side, Span};

impl Waits<'_> {
    /// The process that ended a wait at channels, among those that had the other side open when the wait
    /// ended. The candidates are compared by these criteria, in order: any activity at that time; not
    /// itself waiting for this process; known to have moved data, before one that may have and one that had
    /// both ends open; paired with this process by the amount of data; and most busy time during the wait,
    /// because a process that itself waits ends no other wait. `but` is excluded.
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
                let was_open = end.from_ns < span.to_ns && end.to_ns >= span.to_ns - slack;
                let is_asked_for = end.process != process && Some(end.process) != but;
                if !is_asked_for || !is_other_side(end, side) || !was_open {
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
                .or_else(|| self.pipe_holder(process, span, (at, count))),
        }
    }

    /// The process that kept a full pipe open for reading at the end of a wait for space in it, although it
    /// read nothing: the one that began last, as `sleep` in `(sleep 9; wc)`.
    fn pipe_holder(
        &self,
        process: ProcessId,
        span: &Span,
        channels: (u32, u32),
    ) -> Option<ProcessId> {
        let slack = slack_ns(span.error_ns);
        self.idle_others(process, channels, Side::Write)
            .filter(|end| end.from_ns < span.to_ns && end.to_ns >= span.to_ns - slack)
            .max_by_key(|end| (end.from_ns, Reverse(end.process)))
            .map(|end| end.process)
    }

    /// The process that closed a pipe at the end of a wait for it, as the last of its writers, although it
    /// wrote nothing: a shell that runs `{ a; b; }` keeps the pipe open until b has ended.
    fn closer(&self, process: ProcessId, span: &Span, channels: (u32, u32)) -> Option<ProcessId> {
        let slack = slack_ns(span.error_ns);
        self.idle_others(process, channels, Side::Read)
            .filter(|end| (end.to_ns - span.to_ns).abs() <= slack)
            .max_by_key(|end| (end.to_ns, Reverse(end.process)))
            .map(|end| end.process)
    }

    /// The other ends of the pipes at which the process waited on this side, only of processes that moved
    /// no data.
    fn idle_others(
        &self,
        process: ProcessId,
        (at, count): (u32, u32),
        side: Side,
    ) -> impl Iterator<Item = &OpenEnd> {
        let waited = self.activity.channels(at, count).iter();
        waited
            .filter(move |(_, waited)| *waited == side)
            .flat_map(|&(channel, _)| self.activity.idle_ends_of(channel))
            .filter(move |end| is_other_side(end, side) && end.process != process)
    }

    /// True if `other` waited for a place of a jobserver, or at a channel of which `process` had the other
    /// side open at that time.
    fn waits_for(&self, other: ProcessId, process: ProcessId, at_ns: i64) -> bool {
        let span = self.span_at(other, at_ns);
        span.is_some_and(|span| {
            span.doing == Doing::Place || self.is_at_channel_of(span, process, at_ns)
        })
    }

    /// True if at that time `other` waited for `process`, or only for children that did.
    pub(super) fn is_kept_by(
        &self,
        other: ProcessId,
        process: ProcessId,
        at_ns: i64,
        depth: u32,
    ) -> bool {
        let Some(span) = self.span_at(other, at_ns) else {
            return false;
        };
        match span.doing {
            Doing::Child(pid) if depth > 0 => {
                let mut children = self.children_at(other, pid, at_ns).peekable();
                children.peek().is_some()
                    && children.all(|child| self.is_kept_by(child, process, at_ns, depth - 1))
            }
            _ => span.waker == Some(process) || self.is_at_channel_of(span, process, at_ns),
        }
    }

    /// True if a process waited at a channel of which `process` had the other side open at that time.
    fn is_at_channel_of(&self, span: &Span, process: ProcessId, at_ns: i64) -> bool {
        let Doing::Channels(at, count) = span.doing else {
            return false;
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

    fn span_at(&self, process: ProcessId, at_ns: i64) -> Option<&Span> {
        let spans = self.activity.of(process);
        let place = spans.partition_point(|span| span.to_ns <= at_ns);
        spans.get(place).filter(|span| span.from_ns <= at_ns)
    }

    fn is_writer(&self, writer: ProcessId, reader: ProcessId) -> bool {
        self.writers(reader).contains(&writer)
    }

    /// Busy time of a process within an interval, ns.
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

/// True if a process that waits at this side of a channel waits for that end.
fn is_other_side(end: &OpenEnd, side: Side) -> bool {
    match side {
        Side::Read => end.writes,
        Side::Write => end.reads,
    }
}
