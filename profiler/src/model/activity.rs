//! States of processes over time, as samples show them, and the processes at the ends of channels.

use std::ops::Range;

use super::ProcessId;

/// The states of all processes, and the channel ends that they had open, over time.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// Intervals in the order of processes, then time; those of one process do not overlap.
    pub spans: Vec<Span>,
    /// The waits of threads at channels, and those that another process ended, in the same order.
    pub thread_waits: Vec<Span>,
    /// The channels of the waits in [`Doing::Channels`], with the side waited at.
    pub channels: Vec<(i64, Side)>,
    /// Processes at the ends of channels, in the order of channels, then processes.
    pub ends: Vec<OpenEnd>,
    /// Processes that had an end of a pipe or FIFO open and moved nothing through it, as far as is known, in
    /// the same order.
    pub idle_ends: Vec<OpenEnd>,
    /// Places in `spans` of every process.
    pub(crate) of_process: Vec<Range<u32>>,
    /// Times at which a thread of a process was seen to change to another state, or to be in the same state
    /// again after it had run: in the order of processes, then time, ns.
    pub(crate) turns: Vec<(ProcessId, i64)>,
}

/// An interval in which a process was in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The process.
    pub process: ProcessId,
    /// Begin, ns.
    pub from_ns: i64,
    /// End, ns.
    pub to_ns: i64,
    /// The state.
    pub doing: Doing,
    /// Greatest error of begin and end, ns: half the time between two samples.
    pub error_ns: i64,
    /// The other process that ended the wait, where the scheduler reported it, or that freed the lock of a
    /// traced file.
    pub waker: Option<ProcessId>,
    /// True if no thread was busy, and one slept.
    pub sleeps: bool,
}

/// State of a process: that of its busiest thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// A thread ran, was ready to run, was blocked on storage or stopped by the tracer.
    Busy,
    /// Waited for one of several channels: this many, from this place of [`Activity::channels`].
    Channels(u32, u32),
    /// Waited for a child to end: that pid, or any.
    Child(Option<i64>),
    /// Waited for a token, the right to run a job, from a token pipe: the jobserver of make.
    Place,
    /// Waited for a lock.
    Lock,
    /// Slept between two lookups of a file that this process made at this time, ns.
    Poll(ProcessId, i64),
    /// Slept for a time.
    Sleep,
    /// Waited for channels until a time limit, although other processes could have written.
    InVain,
    /// Was stopped by job control.
    Stopped,
    /// Waited for a signal, a terminal or something unknown.
    Other,
}

/// Side of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Reading; a process that waits there waits for a writer.
    Read,
    /// Writing; a process that waits there waits for a reader.
    Write,
}

/// A channel end: a process's open descriptor of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenEnd {
    /// The channel.
    pub channel: i64,
    /// The process.
    pub process: ProcessId,
    /// True if it may have read.
    pub reads: bool,
    /// True if it may have written.
    pub writes: bool,
    /// First seen, ns.
    pub from_ns: i64,
    /// Closed, ns.
    pub to_ns: i64,
    /// True if data is known to have moved; `false`: it may have.
    pub is_used: bool,
    /// True if the process had both ends of the pipe open, and it is not known which of them it used.
    pub is_doubtful: bool,
}

impl Activity {
    /// The states of a process, in the order of time.
    pub fn of(&self, process: ProcessId) -> &[Span] {
        match self.of_process.get(process.0 as usize) {
            Some(range) => &self.spans[range.start as usize..range.end as usize],
            None => &[],
        }
    }

    /// The waits of the threads of a process at channels, and those that another process ended.
    pub fn thread_waits_of(&self, process: ProcessId) -> &[Span] {
        let waits = &self.thread_waits;
        let from = waits.partition_point(|span| span.process < process);
        let count = waits[from..].partition_point(|span| span.process == process);
        &waits[from..from + count]
    }

    /// Distance from a time to the last or next change of state of any thread of a process, ns: a process
    /// that goes on with a wait frees nothing. `None`: no change was seen.
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

    /// Processes that had an end of a channel open.
    pub fn ends_of(&self, channel: i64) -> &[OpenEnd] {
        of_channel(&self.ends, channel)
    }

    /// Processes that had an end of a channel open and moved nothing through it.
    pub fn idle_ends_of(&self, channel: i64) -> &[OpenEnd] {
        of_channel(&self.idle_ends, channel)
    }
}

fn of_channel(ends: &[OpenEnd], channel: i64) -> &[OpenEnd] {
    let from = ends.partition_point(|end| end.channel < channel);
    let count = ends[from..].partition_point(|end| end.channel == channel);
    &ends[from..from + count]
}
