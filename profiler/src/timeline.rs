//! The states of all processes over time.
//!
//! Samples show the instants, the kernel's time accounting shows the amounts. Where a process image had one
//! thread, its samples are corrected so that they sum to the amounts that the kernel counted (`accounting`); an
//! image too short for a sample has its exact totals, spread evenly over its life. `docs/waiting.md` has the
//! errors of both.

mod accounting;
mod channels;
mod confined;
mod limit;
pub mod machine;
mod read;
mod sleeps;
mod threads;

use std::sync::Arc;

pub use confined::{Confined, Limit};
use flowtrace_schema::{HostRow, StorageRow};
use machine::Counters;
pub use read::{Parts, from_parts, read};

use crate::model::{FileCalls, FileIndex, MountUse, ProcessId, Programs};

/// Number of [`State`]s.
pub const STATES: usize = 13;

/// State of a process: the strongest of the states of its threads, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum State {
    /// On a CPU.
    Cpu,
    /// Ready to run, and waiting for a CPU.
    Queue,
    /// Blocked in a file call.
    File,
    /// Blocked on a page of memory that is read from storage.
    Fault,
    /// Blocked writing into a channel that is full.
    Out,
    /// Blocked reading from a channel that is empty.
    In,
    /// Blocked until a child ends.
    Child,
    /// Blocked on a lock.
    Lock,
    /// Blocked until time has passed.
    Sleep,
    /// Stopped by job control.
    Stopped,
    /// Blocked on anything else.
    Other,
    /// Stopped by the tracer.
    Tracer,
    /// Nothing is known.
    Unknown,
}

impl State {
    /// All of them in the order of their numbers.
    pub const ALL: [State; STATES] = [
        State::Cpu,
        State::Queue,
        State::File,
        State::Fault,
        State::Out,
        State::In,
        State::Child,
        State::Lock,
        State::Sleep,
        State::Stopped,
        State::Other,
        State::Tracer,
        State::Unknown,
    ];

    /// Waiting for others in the sense of Battré et al., Assumption 5: for a channel or a child.
    /// Everything else that is known is processing.
    pub const fn is_waiting(self) -> bool {
        matches!(self, State::Out | State::In | State::Child)
    }

    /// Processing, by the same assumption.
    pub const fn is_processing(self) -> bool {
        !self.is_waiting() && !matches!(self, State::Unknown)
    }

    /// Processing of its own: a process that waits for a lock waits for the work of another one.
    pub const fn is_own(self) -> bool {
        self.is_processing() && !matches!(self, State::Lock)
    }

    /// On a CPU, or only lacking one.
    pub const fn is_active(self) -> bool {
        matches!(self, State::Cpu | State::Queue)
    }

    /// Waiting for storage.
    pub const fn is_storage(self) -> bool {
        matches!(self, State::File | State::Fault)
    }

    /// Doing something itself, and not waiting in any way for something to do: the holder of the lock of a
    /// queue may wait for work.
    pub const fn is_at_work(self) -> bool {
        self.is_active() || self.is_storage()
    }

    /// Name in results for machines.
    pub const fn name(self) -> &'static str {
        match self {
            State::Cpu => "cpu",
            State::Queue => "run_queue",
            State::File => "storage",
            State::Fault => "fault",
            State::Out => "wait_out",
            State::In => "wait_in",
            State::Child => "wait_child",
            State::Lock => "lock",
            State::Sleep => "sleep",
            State::Stopped => "stopped",
            State::Other => "other",
            State::Tracer => "tracer",
            State::Unknown => "unknown",
        }
    }
}

/// Shares of the states in some time; they sum to 1.
pub type Shares = [f64; STATES];

/// An interval in which a process was in one state, as far as samples show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// Begin, ns.
    pub from: i64,
    /// End, ns.
    pub to: i64,
    /// The observed state.
    pub state: State,
    /// Channel that it waited for: place in [`Timeline::channels`].
    pub channel: Option<u32>,
    /// Process id of the child that it waited for, where it was one.
    pub child_pid: Option<i64>,
    /// The process that ended the wait, where the scheduler reported it.
    pub waker: Option<ProcessId>,
    /// Samples that agree on the state; 0: none, it follows from the time accounting.
    pub samples: u32,
    /// True if another thread slept while this one waited for a channel or child.
    sleeps: bool,
    /// True if it waited for channels until a time limit, although other processes could have written.
    is_in_vain: bool,
    /// Row of [`Timeline::mixes`] with the corrected shares of the states.
    mix: u32,
}

impl Piece {
    /// Length of the part that lies in a time, ns.
    pub fn overlap(&self, from: i64, to: i64) -> i64 {
        (self.to.min(to) - self.from.max(from)).max(0)
    }
}

/// A process over time.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The process.
    pub process: ProcessId,
    /// Begin, ns.
    pub from: i64,
    /// End, or of one without a known end the end of the run, ns.
    pub to: i64,
    /// Its life from begin to end, without gaps.
    pub pieces: Vec<Piece>,
    /// Time in each state, ns; sums to its life.
    pub totals: Shares,
    /// True if the program that it ran longest only runs others.
    pub is_orchestrator: bool,
    /// Number of samples of the process.
    pub samples: u64,
    /// Machine that it ran on.
    pub host: Option<Arc<str>>,
    /// Working directory of its last image.
    pub cwd: Option<Arc<str>>,
    /// Time accounting of its images, summed.
    pub accounting: TimeAccounting,
    /// The part of its machine that it may use; `None`: all.
    pub confined: Option<Arc<Confined>>,
}

impl Instance {
    /// Time on a CPU, ns: as the kernel accounted it, else from samples.
    pub fn cpu_ns(&self) -> f64 {
        match self.accounting.is_complete {
            true => self.accounting.on_cpu_ns as f64,
            false => self.totals[State::Cpu as usize],
        }
    }
}

/// Storage of the traced files, as far as it shows what a wait for them can have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Not known, or somewhere else: on a network, behind a daemon.
    #[default]
    Anywhere,
    /// On disks of the machine, whose counters show the times in which they had requests.
    Disks,
    /// In memory.
    Memory,
}

impl Place {
    /// The place of directories, by the types of their filesystems (proc_pid_mountinfo(5)).
    pub(crate) fn of<'a>(types: impl Iterator<Item = Option<&'a str>>) -> Place {
        let place = |kind: Option<&str>| match kind {
            Some("tmpfs" | "ramfs") => Place::Memory,
            Some("ext2" | "ext3" | "ext4" | "xfs" | "btrfs" | "f2fs" | "bcachefs" | "zfs") => {
                Place::Disks
            }
            _ => Place::Anywhere,
        };
        let places: Vec<Place> = types.map(place).collect();
        match &places[..] {
            [] => Place::Anywhere,
            all if all.contains(&Place::Anywhere) => Place::Anywhere,
            all if all.contains(&Place::Disks) => Place::Disks,
            _ => Place::Memory,
        }
    }
}

/// A process over the time of one of its programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The process.
    pub process: ProcessId,
    /// Place in [`Programs::stints`].
    pub program: usize,
    /// Begin, ns.
    pub from: i64,
    /// End, ns.
    pub to: i64,
}

/// Sums over the images of a process of the times that the kernel counted; thread time, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeAccounting {
    /// On a CPU.
    pub on_cpu_ns: i64,
    /// Ready to run.
    pub run_queue_ns: i64,
    /// Blocked on storage.
    pub storage_ns: i64,
    /// Blocked on anything else.
    pub wait_ns: i64,
    /// Stopped by the tracer.
    pub tracer_ns: i64,
    /// Life of all threads: the sum of the five.
    pub thread_ns: i64,
    /// True if all of these are known for every image.
    pub is_complete: bool,
    /// Page faults that read from storage.
    pub major_faults: i64,
    /// Number of times that a thread gave up its CPU by waiting.
    pub voluntary_switches: i64,
    /// Most threads of an image.
    pub threads: i64,
    /// Largest resident memory of an image, bytes.
    pub max_rss_bytes: i64,
    /// Thread time sampled in locks, ns.
    pub lock_ns: i64,
    /// The part of `lock_ns` in locks in the memory of an image of several threads, which only these share as
    /// a rule, ns.
    pub thread_lock_ns: i64,
    /// The part of `thread_lock_ns` in waits that lasted for more than half of the image's life, ns: for the
    /// end of the other threads, or for work.
    pub thread_idle_ns: i64,
    /// The rest of `thread_lock_ns`, of threads that share work with others: without those that only pass
    /// data on, ns.
    pub thread_wait_ns: i64,
    /// Life of the threads that only pass data on, ns.
    pub thread_help_ns: i64,
    /// Thread time sampled in all states, ns.
    pub sampled_ns: i64,
    /// Number of times that a thread had to give up its CPU to others.
    pub involuntary_switches: i64,
    /// Calls on files of traced mounts that flowtrace answered, and not the kernel.
    pub mount: MountUse,
}

/// A pipe or socket and the processes at its ends.
#[derive(Clone, Debug, Default)]
pub struct Channel {
    /// Id in the database.
    pub channel_id: i64,
    /// pipe, fifo, socketpair, unix, tcp, udp.
    pub kind: Arc<str>,
    /// Path or addresses.
    pub name: Option<Arc<str>>,
    /// Processes that may have written, each with begin and end, ns.
    pub writers: Vec<(ProcessId, i64, i64)>,
    /// Processes that may have read, likewise.
    pub readers: Vec<(ProcessId, i64, i64)>,
    /// Processes that kept a pipe open for writing and wrote nothing, as `sleep` in `(sleep 9; echo) | cat`:
    /// the pipe's reader waits until they end or another process writes.
    pub write_holders: Vec<(ProcessId, i64, i64)>,
    /// Processes that kept it open for reading and read nothing, as `sleep` in `seq 99999 | (sleep 9; wc)`:
    /// the pipe's writer waits meanwhile.
    pub read_holders: Vec<(ProcessId, i64, i64)>,
    /// Of a network connection, the times in which a process waited to read data that was on its way: the
    /// sender was blocked writing, or had closed the connection. Ordered by receiver, then time; those of one
    /// receiver do not overlap.
    pub under_way: Vec<UnderWay>,
    /// True if the channel carries tokens for free places to run instead of data, as the jobserver of make
    /// does; then it has neither writers nor readers.
    pub is_token: bool,
}

/// A time in which data was on its way through a network, and only the network could deliver it sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnderWay {
    /// The process that waited for the data.
    pub receiver: ProcessId,
    /// Begin, ns.
    pub from: i64,
    /// End, ns.
    pub to: i64,
    /// The process that sent the data.
    pub sender: ProcessId,
    /// True if the sender was blocked writing.
    pub is_full: bool,
}

impl Channel {
    /// Returns true if the channel leaves the machine, or may: the cause of a slow one is then the network.
    pub fn is_network(&self) -> bool {
        matches!(&*self.kind, "tcp" | "udp")
    }
}

/// A wait of a process for the lock of a file that another one freed (`flock(2)`, `fcntl(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// The process that waited.
    pub process: ProcessId,
    /// Begin, ns.
    pub from: i64,
    /// End, ns: it had the lock.
    pub to: i64,
    /// The process that freed it.
    pub by: ProcessId,
    /// The file.
    pub file: FileIndex,
}

/// All processes of a trace over time.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// True if the scheduler reported the states of threads; else they are sampled.
    pub exact: bool,
    /// True if the run goes on, or was cut short: then [`Timeline::span`] ends where the trace is complete.
    pub is_partial: bool,
    /// True if the run goes on.
    pub is_live: bool,
    /// Zero of the times that people see, ns: [`crate::model::Workflow::begins_ns`].
    pub begins_ns: i64,
    /// The life of each process of the workflow, in the same order.
    pub instances: Vec<Instance>,
    /// The programs that the processes ran, with their times.
    pub programs: Programs,
    /// For each program of `programs`, in the same order: true if it only runs others. Such programs take no
    /// part in the search for bottlenecks.
    pub only_runs: Vec<bool>,
    /// Waits for storage by step, split by the fate of their requests; empty: not recorded.
    pub storage: Vec<StorageRow>,
    /// Time of a call's way to flowtrace and back, ns ([`crate::model::MountCosts`]).
    pub way_ns: Option<i64>,
    /// Storage of the traced files.
    pub place: Place,
    /// Calls on files that were recorded.
    pub file_calls: FileCalls,
    /// Pipes and sockets.
    pub channels: Vec<Channel>,
    /// Waits for the locks of files whose calls were seen, in the order of processes and time.
    pub lock_waits: Vec<LockWait>,
    /// Counters of the machines.
    pub counters: Counters,
    /// The machines.
    pub hosts: Vec<HostRow>,
    /// The part of its machine that the steps of the run may use; `None`: all, or it is not known.
    pub limit: Option<Limit>,
    /// Begin of the run and end of its command, ns: processes that it left behind may live longer. Of a run
    /// that goes on, or was cut short, the time up to which the trace is complete
    /// ([`crate::model::Workflow::complete_ns`]).
    pub span: (i64, i64),
    mixes: Vec<Shares>,
}

impl Timeline {
    /// A process over time.
    pub fn instance(&self, process: ProcessId) -> &Instance {
        &self.instances[process.0 as usize]
    }

    /// The part of a process's life in which it ran a program: a place in [`Programs::stints`].
    pub fn part(&self, program: usize) -> Part {
        let stint = &self.programs.stints[program];
        let instance = self.instance(stint.process);
        let from = stint.from_ns.clamp(instance.from, instance.to);
        Part {
            process: stint.process,
            program,
            from,
            to: stint.to_ns.clamp(from, instance.to),
        }
    }

    /// Shares of the states in a piece.
    pub fn shares(&self, piece: &Piece) -> &Shares {
        &self.mixes[piece.mix as usize]
    }

    /// Length of the run, ns.
    pub fn length(&self) -> i64 {
        (self.span.1 - self.span.0).max(0)
    }

    /// CPUs of all machines; `None`: not recorded. The run may use less ([`Timeline::cores`]).
    pub fn cpus(&self) -> Option<i64> {
        let known: Vec<i64> = self.hosts.iter().filter_map(|host| host.cpus).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    }

    /// Returns true if there are samples at all.
    pub fn is_sampled(&self) -> bool {
        self.instances.iter().any(|instance| instance.samples > 0)
    }

    /// Time of a process in each state within an interval, ns.
    pub fn within(&self, process: ProcessId, from: i64, to: i64) -> Shares {
        let mut sums = [0.0; STATES];
        for piece in self.pieces_within(process, from, to) {
            let length = piece.overlap(from, to) as f64;
            for (sum, share) in sums.iter_mut().zip(self.shares(piece)) {
                *sum += share * length;
            }
        }
        sums
    }

    /// The pieces of a process that lie in an interval, in order.
    pub fn pieces_within(&self, process: ProcessId, from: i64, to: i64) -> &[Piece] {
        let pieces = &self.instance(process).pieces;
        let first = pieces.partition_point(|piece| piece.to <= from);
        let last = pieces.partition_point(|piece| piece.from < to);
        &pieces[first..last.max(first)]
    }
}

/// Sum of the shares of the states that `of` names.
pub fn sum_of(shares: &Shares, of: impl Fn(State) -> bool) -> f64 {
    State::ALL
        .iter()
        .zip(shares)
        .filter(|(state, _)| of(**state))
        .map(|(_, share)| share)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_on_disks_only_where_all_are_known_to_be() {
        let of = |types: &[&str]| Place::of(types.iter().map(|kind| Some(*kind)));
        assert_eq!(of(&["ext4", "xfs"]), Place::Disks);
        assert_eq!(of(&["tmpfs", "ext4"]), Place::Disks);
        assert_eq!(of(&["tmpfs"]), Place::Memory);
        assert_eq!(of(&["ext4", "nfs4"]), Place::Anywhere);
        assert_eq!(of(&[]), Place::Anywhere);
        assert_eq!(Place::of([None].into_iter()), Place::Anywhere);
    }
}
