//! What processes were doing over time, as the samples saw it, and who held the ends of channels.

use std::ops::Range;

use super::ProcessId;

/// What every process was doing, and who held which end of a channel when.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// Intervals in the order of processes, then time; those of one process do not overlap.
    pub spans: Vec<Span>,
    /// The channels of the waits in [`Doing::Channels`], with the side waited at.
    pub channels: Vec<(i64, Side)>,
    /// Who held the ends of channels, in the order of channels, then processes.
    pub ends: Vec<HeldEnd>,
    /// Who held an end of a pipe or FIFO and moved nothing through it, as far as is known, in the same order.
    pub idle_ends: Vec<HeldEnd>,
    /// Places in `spans` of every process.
    pub(crate) of_process: Vec<Range<u32>>,
    /// When any thread of a process was seen to do something else than before, or the same again after it had
    /// run: in the order of processes, then time, ns.
    pub(crate) turns: Vec<(ProcessId, i64)>,
}

/// What a process was doing over an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The process.
    pub process: ProcessId,
    /// Begin, ns.
    pub from_ns: i64,
    /// End, ns.
    pub to_ns: i64,
    /// What it was doing.
    pub doing: Doing,
    /// How far the ends may be off, ns: half the time between two looks.
    pub error_ns: i64,
    /// Another process that ended the wait, where the scheduler told, or who freed the lock of a traced file.
    pub waker: Option<ProcessId>,
}

/// What a process was doing: the busiest of its threads decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// A thread ran, wanted to run, was blocked on storage or held by the tracer.
    Busy,
    /// Waited for one of several channels: this many, from this place of [`Activity::channels`].
    Channels(u32, u32),
    /// Waited for a child to end: that pid, or any.
    Child(Option<i64>),
    /// Waited for a place to run, that a token pipe hands out: the jobserver of make.
    Place,
    /// Waited for a lock.
    Lock,
    /// Slept before it looked again for a file that this process made then, ns.
    Poll(ProcessId, i64),
    /// Slept for a time.
    Sleep,
    /// Was stopped by job control.
    Stopped,
    /// Waited for a signal, a terminal or something unknown.
    Other,
}

/// Side of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Reading; who waits there waits for a writer.
    Read,
    /// Writing; who waits there waits for a reader.
    Write,
}

/// An end of a channel in the hands of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldEnd {
    /// The channel.
    pub channel: i64,
    /// Who held it.
    pub process: ProcessId,
    /// Whether it may have read.
    pub reads: bool,
    /// Whether it may have written.
    pub writes: bool,
    /// First seen, ns.
    pub from_ns: i64,
    /// Given up, ns.
    pub to_ns: i64,
    /// Whether data is known to have moved; `false`: it may have.
    pub is_used: bool,
    /// Whether it held both ends of the pipe, and nothing tells which of them it used.
    pub is_doubtful: bool,
}

impl Activity {
    /// What a process was doing, in the order of time.
    pub fn of(&self, process: ProcessId) -> &[Span] {
        match self.of_process.get(process.0 as usize) {
            Some(range) => &self.spans[range.start as usize..range.end as usize],
            None => &[],
        }
    }

    /// How far from a moment it was that any thread of a process was last, or next, seen to turn to something, ns:
    /// who goes on with a wait lets nobody go. `None`: never seen.
    pub fn nearest_turn_ns(&self, process: ProcessId, at_ns: i64) -> Option<i64> {
        let place = self.turns.partition_point(|&turn| turn < (process, at_ns));
        let near = self.turns[place.saturating_sub(1)..].iter().take(2);
        let of_process = near.filter(|turn| turn.0 == process);
        of_process.map(|turn| (turn.1 - at_ns).abs()).min()
    }

    /// The channels of a wait for several.
    pub fn channels(&self, at: u32, count: u32) -> &[(i64, Side)] {
        let at = at as usize;
        self.channels
            .get(at..at + count as usize)
            .unwrap_or_default()
    }

    /// Who held an end of a channel.
    pub fn ends_of(&self, channel: i64) -> &[HeldEnd] {
        of_channel(&self.ends, channel)
    }

    /// Who held an end of a channel and moved nothing through it.
    pub fn idle_ends_of(&self, channel: i64) -> &[HeldEnd] {
        of_channel(&self.idle_ends, channel)
    }
}

fn of_channel(ends: &[HeldEnd], channel: i64) -> &[HeldEnd] {
    let from = ends.partition_point(|end| end.channel < channel);
    let count = ends[from..].partition_point(|end| end.channel == channel);
    &ends[from..from + count]
}
