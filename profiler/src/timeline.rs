//! What every process was doing, at every moment: the states of processes over time.
//!
//! Samples say when, the books say how much. Where a process image had one thread, its samples are
//! corrected so that they sum to what the kernel counted (`books`); an image too short for a
//! sample has its exact totals, spread evenly over its life. `docs/waiting.md` has the errors of
//! both.

mod books;
mod channels;
mod confined;
mod limit;
pub mod machine;
mod read;
mod threads;

use std::sync::Arc;

pub use confined::{Confined, Limit};
use flowtrace_schema::{HostRow, StorageRow};
use machine::Counters;
pub use read::{Parts, from_parts, read};

use crate::model::{FileCalls, FileIndex, ProcessId, Programs, ViewUse};

/// Number of [`State`]s.
pub const STATES: usize = 13;

/// What a process is doing: the strongest of what its threads do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum State {
    /// On a processor.
    Cpu,
    /// Ready to run, and waiting for a processor.
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
    /// Held by the tracer.
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

    /// Processing that is its own: who waits for a lock waits for somebody's work, whoever that is.
    pub const fn is_own(self) -> bool {
        self.is_processing() && !matches!(self, State::Lock)
    }

    /// On a processor, or only lacking one.
    pub const fn is_active(self) -> bool {
        matches!(self, State::Cpu | State::Queue)
    }

    /// Waiting for storage.
    pub const fn is_storage(self) -> bool {
        matches!(self, State::File | State::Fault)
    }

    /// Doing something itself, and not waiting in whatever way for something to do: who has the lock of a queue may wait for work.
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

/// A stretch of time in which a process did one thing, as far as was seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// Begin, ns.
    pub from: i64,
    /// End, ns.
    pub to: i64,
    /// What was seen.
    pub state: State,
    /// Channel that it waited for: place in [`Timeline::channels`].
    pub channel: Option<u32>,
    /// Process id of the child that it waited for, where it was one.
    pub child_pid: Option<i64>,
    /// Who ended the wait, where the scheduler told.
    pub waker: Option<ProcessId>,
    /// Looks that agree on it; 0: none, it follows from the books.
    pub samples: u32,
    /// Row of [`Timeline::mixes`] that says what this was in truth.
    mix: u32,
}

impl Piece {
    /// Length of its part in a time, ns.
    pub fn overlap(&self, from: i64, to: i64) -> i64 {
        (self.to.min(to) - self.from.max(from)).max(0)
    }
}

/// A process over time.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Which.
    pub process: ProcessId,
    /// Begin, ns.
    pub from: i64,
    /// End, or of one without a known end the end of the run, ns.
    pub to: i64,
    /// Its life from begin to end, without gaps.
    pub pieces: Vec<Piece>,
    /// Time in each state, ns; sums to its life.
    pub totals: Shares,
    /// Whether what it ran longest only runs others.
    pub is_orchestrator: bool,
    /// Looks at it.
    pub samples: u64,
    /// Machine that it ran on.
    pub host: Option<Arc<str>>,
    /// Working directory of its last image.
    pub cwd: Option<Arc<str>>,
    /// Books of its images, summed.
    pub books: Books,
    /// The part of its machine that it may use; `None`: all.
    pub confined: Option<Arc<Confined>>,
}

impl Instance {
    /// Time on a CPU, ns: as the kernel accounted it, else from samples.
    pub fn cpu_ns(&self) -> f64 {
        match self.books.is_complete {
            true => self.books.on_cpu_ns as f64,
            false => self.totals[State::Cpu as usize],
        }
    }
}

/// Where the traced files are, as far as that tells what a wait for them can have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Not known, or somewhere else: on a network, behind a daemon.
    #[default]
    Anywhere,
    /// On disks of the machine, whose counters tell whether they had requests.
    Disks,
    /// In memory.
    Memory,
}

impl Place {
    /// Where directories are, by the types of their filesystems (proc_pid_mountinfo(5)).
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
    /// Which.
    pub process: ProcessId,
    /// Place in [`Programs::stints`].
    pub program: usize,
    /// Begin, ns.
    pub from: i64,
    /// End, ns.
    pub to: i64,
}

/// Sums of what the kernel counted for the images of a process; thread time, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Books {
    /// On a processor.
    pub on_cpu_ns: i64,
    /// Ready to run.
    pub run_queue_ns: i64,
    /// Blocked on storage.
    pub storage_ns: i64,
    /// Blocked on anything else.
    pub wait_ns: i64,
    /// Held by the tracer.
    pub tracer_ns: i64,
    /// Life of all threads: the sum of the five.
    pub thread_ns: i64,
    /// Whether all of them are known for every image.
    pub is_complete: bool,
    /// Page faults that read from storage.
    pub major_faults: i64,
    /// Times a thread gave up its processor by waiting.
    pub voluntary_switches: i64,
    /// Most threads of an image.
    pub threads: i64,
    /// Largest resident memory of an image, bytes.
    pub max_rss_bytes: i64,
    /// Thread time sampled in locks, ns.
    pub lock_ns: i64,
    /// Of that in locks in the memory of an image of several threads, which only these share as a rule, ns.
    pub thread_lock_ns: i64,
    /// Of that in waits that lasted for more than half of the image's life, ns: for the end of the other threads, or for something
    /// to do.
    pub thread_idle_ns: i64,
    /// The others of these waits, of threads that share work with others: not those that only hand data on, ns.
    pub thread_wait_ns: i64,
    /// Life of those that only hand data on, ns.
    pub thread_help_ns: i64,
    /// Thread time sampled in all, ns.
    pub sampled_ns: i64,
    /// Times a thread had to give up its processor to others.
    pub involuntary_switches: i64,
    /// Calls on files of traced views that flowtrace answered, where the kernel does not.
    pub view: ViewUse,
}

/// A pipe or socket and who held its ends.
#[derive(Clone, Debug, Default)]
pub struct Channel {
    /// Id in the database.
    pub channel_id: i64,
    /// pipe, fifo, socketpair, unix, tcp, udp.
    pub kind: Arc<str>,
    /// Path or addresses.
    pub name: Option<Arc<str>>,
    /// Who may have written, from when to when.
    pub writers: Vec<(ProcessId, i64, i64)>,
    /// Who may have read.
    pub readers: Vec<(ProcessId, i64, i64)>,
    /// Who kept a pipe open for writing and wrote nothing, as `sleep` in `(sleep 9; echo) | cat`: until they end
    /// or somebody writes its reader waits.
    pub write_keepers: Vec<(ProcessId, i64, i64)>,
    /// Who kept it open for reading and read nothing, as `sleep` in `seq 99999 | (sleep 9; wc)`: its writer waits meanwhile.
    pub read_keepers: Vec<(ProcessId, i64, i64)>,
    /// Of a network connection, when somebody waited to read what was on its way: who sent it was blocked writing, or had closed
    /// the connection. In the order of receivers, then time; those of one are apart.
    pub under_way: Vec<UnderWay>,
    /// Whether it hands out places to run instead of carrying data, as the jobserver of make does; then it
    /// has neither writers nor readers.
    pub is_token: bool,
}

/// A time in which data was on its way through a network, and nobody but the network could bring it sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnderWay {
    /// Who waited for it.
    pub receiver: ProcessId,
    /// Begin, ns.
    pub from: i64,
    /// End, ns.
    pub to: i64,
    /// Who sent it.
    pub sender: ProcessId,
    /// Whether the sender was blocked writing.
    pub is_full: bool,
}

impl Channel {
    /// Whether it leaves the machine, or may: a slow one is then a matter of the network.
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
    /// What threads did was told by the scheduler, not by samples.
    pub exact: bool,
    /// Whether the run goes on, or was cut short: then [`Timeline::span`] ends where the trace is complete.
    pub is_partial: bool,
    /// Whether it goes on.
    pub is_live: bool,
    /// The moment that people count from, ns: [`crate::model::Workflow::begins_ns`].
    pub begins_ns: i64,
    /// One for each process of the workflow, in the same order.
    pub instances: Vec<Instance>,
    /// What the processes ran when.
    pub programs: Programs,
    /// Of each of them, in their order, whether it only runs others: such take no part in the search for
    /// bottlenecks.
    pub only_runs: Vec<bool>,
    /// Waits for storage by step, split by what became of their requests; empty: not told.
    pub storage: Vec<StorageRow>,
    /// What the way of a call to flowtrace and back takes, ns ([`crate::model::View`]).
    pub way_ns: Option<i64>,
    /// Where the traced files are.
    pub place: Place,
    /// What was seen of the calls on files.
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
    /// Begin of the run and end of its command, ns: processes that it left behind may live longer. Of a run that goes on, or was
    /// cut short, up to when the trace is complete ([`crate::model::Workflow::complete_ns`]).
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

    /// What a stretch was, in shares.
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

    /// Whether there are samples at all.
    pub fn is_sampled(&self) -> bool {
        self.instances.iter().any(|instance| instance.samples > 0)
    }

    /// Time of a process in each state within a stretch of time, ns.
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

    /// The pieces of a process that lie in a stretch of time, in order.
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
