//! A trace in memory: what ran and what it did to which file.
//!
//! The database has a row per process *image*; people think of *processes*: the chain of images
//! that one pid ran, joined here by `prev_upid`. Everything keeps its place in the vectors of
//! [`Workflow`]; the ids below are those places.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use flowtrace_schema::{LossRow, NetworkTotals, RunRow, TracedDirectoryRow, Upid};

/// The same on every Linux.
const SIGPIPE: i64 = 13;

mod access;
mod activity;
mod descent;
mod ends;
mod names;
mod naming;
mod parts;
mod programs;
mod way;

pub use access::{Access, Relation, Return};
pub use activity::{Activity, Doing, HeldEnd, Side, Span};
pub(crate) use descent::Descent;
pub use ends::ChannelEnds;
pub use names::Names;
pub use parts::Part;
pub use programs::{Programs, Stint};
pub use way::Way;

/// A process: place in [`Workflow::processes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

/// What was seen of the calls on files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileCalls {
    /// Opens at most.
    None,
    /// Of data, but not of names, attributes and locks: the kernel layer with nothing mounted.
    Data,
    /// What a view is asked.
    #[default]
    All,
}

/// A file: place in [`Workflow::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIndex(pub u32);

/// Everything about one trace.
#[derive(Clone, Debug, Default)]
pub struct Workflow {
    /// The recordings in the file.
    pub runs: Vec<RunRow>,
    /// The directories whose file calls were recorded.
    pub directories: Vec<TracedDirectoryRow>,
    /// What is known to be missing, the worst first.
    pub losses: Vec<LossRow>,
    /// The process images; those of one process stand together, in the order of execution.
    pub images: Vec<Image>,
    /// The processes in the order of their first image's id, which is the order of discovery.
    pub processes: Vec<Process>,
    /// The files in the order of their ids.
    pub files: Vec<File>,
    /// The names that they had.
    pub names: Names,
    /// What each process did to each file: successful calls, summed over its images; ordered by
    /// process, then file.
    pub accesses: Vec<Access>,
    /// Of them, what programs did that were not the last of their process; ordered by process, then file,
    /// then program.
    pub parts: Vec<Part>,
    /// The names of processes in which several programs worked.
    pub joint_rules: HashMap<ProcessId, Arc<str>>,
    /// What processes did to files in which they found what others had written after them; ordered by
    /// process, then file.
    pub returns: Vec<Return>,
    /// What went through pipes and sockets, summed for each pair of processes; in order.
    pub streams: Vec<Stream>,
    /// Who held which end of a pipe or socket.
    pub ends: ChannelEnds,
    /// What calls on traced views waited for.
    pub view: View,
    /// Who waited for files by looking for them; in order.
    pub polls: Vec<Poll>,
    /// What was captured of the network; `None`: nothing.
    pub network: Option<NetworkTotals>,
    /// Programs that were executed and are files of the trace, each pair once, in order.
    pub executions: Vec<(ProcessId, FileIndex)>,
    /// Last moment known, ns: the end of the run, or of the last event of a run cut short.
    pub last_ns: i64,
    /// Up to when everything that was recorded is there, ns: to the last moment, but for a run that goes on or was cut short.
    pub complete_ns: i64,
    /// Whether it is still being recorded.
    pub is_live: bool,
}

/// What the calls on traced views waited for, where flowtrace answers them and not the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// What the way of a call to flowtrace and back takes in this run, at its quickest, ns; `None`: too few calls followed
    /// each other to tell.
    pub way_ns: Option<i64>,
    /// By process; empty where the kernel answers.
    pub of: Vec<ViewUse>,
}

/// The calls of a process on traced views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewUse {
    /// How many.
    pub calls: i64,
    /// Time in answers that were too quick for a device to have had a part in them, ns.
    pub quick_ns: i64,
    /// Time in the other answers, ns.
    pub slow_ns: i64,
    /// Of that in calls that end when the device has the data (`fsync(2)`), ns.
    pub sync_ns: i64,
}

/// What a pid ran between two execs.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Id in the database.
    pub upid: i64,
    /// Process that it belongs to.
    pub process: ProcessId,
    /// Whether it began by a fork, as a copy of its parent.
    pub is_fork: bool,
    /// Whether it began by an exec; neither: it was found running.
    pub is_exec: bool,
    /// Executable.
    pub exe: Option<Arc<str>>,
    /// Arguments, quoted for a shell.
    pub command: Option<Arc<str>>,
    /// Name of the workflow step.
    pub rule: Arc<str>,
    /// Begin, ns.
    pub start_ns: i64,
    /// End by exec or exit, ns; `None`: not seen.
    pub end_ns: Option<i64>,
    /// CPU time of its own threads, ns: time on a CPU, or user and system time.
    pub cpu_ns: Option<i64>,
    /// Time its threads were ready to run and waited for a CPU, ns.
    pub run_queue_ns: Option<i64>,
    /// Time its threads were blocked on storage, ns.
    pub storage_ns: Option<i64>,
    /// Time its threads were blocked on anything else, ns.
    pub wait_ns: Option<i64>,
    /// Peak resident memory, bytes.
    pub max_rss_bytes: Option<i64>,
    /// Threads that lived in it.
    pub threads: Option<i64>,
    /// Working directory when it began.
    pub cwd: Option<Arc<str>>,
    /// Machine that ran it.
    pub host: Option<Arc<str>>,
    /// Time its threads were held by the tracer, ns.
    pub tracer_ns: Option<i64>,
    /// Whether it moved data or computed before it became another by an exec.
    pub has_worked: bool,
    /// Its calls that read.
    pub reads: Moved,
    /// Its calls that write.
    pub writes: Moved,
    /// Share of its CPU time that it was in the kernel; `None`: not known.
    pub kernel_share: Option<f64>,
}

/// What calls of one direction moved, on all files, pipes and sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Calls; 0 also where they were not counted.
    pub calls: i64,
    /// Bytes.
    pub bytes: i64,
}

/// A process: the images of one pid from fork to exit.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Places of its images.
    pub images: Range<usize>,
    /// Process id.
    pub pid: i64,
    /// Process that forked it.
    pub parent: Option<ProcessId>,
    /// Begin of the first image, ns.
    pub start_ns: i64,
    /// End of the last image, ns; `None`: not seen.
    pub end_ns: Option<i64>,
    /// Exit code.
    pub exit_code: Option<i64>,
    /// Signal that ended it.
    pub exit_signal: Option<i64>,
    /// CPU time, ns; `None`: known for none of its images.
    pub cpu_ns: Option<i64>,
    /// Bytes it read from files, pipes and sockets.
    pub read_bytes: Option<i64>,
    /// Bytes it wrote to them.
    pub write_bytes: Option<i64>,
    /// When job control had stopped it, as far as was seen: intervals in order, ns.
    pub stops: Vec<(i64, i64)>,
}

/// A file: an inode.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// Id in the database.
    pub file_id: i64,
    /// Last name it had; `None`: never known by name.
    pub path: Option<Arc<str>>,
    /// Whether it holds data: neither directory, device nor absent.
    pub is_regular: bool,
    /// Size when last seen, bytes.
    pub size_bytes: Option<i64>,
    /// Whether only its being opened was seen.
    pub only_opens: bool,
    /// Whether that is so and it belongs to the machine, not to the workflow, which has not made it: what was
    /// done to it is left out.
    pub is_system: bool,
}

/// Data that one process may have sent to another through pipes or sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Who wrote; where both did, or nobody knows, the process that began first.
    pub from: ProcessId,
    /// Who read.
    pub to: ProcessId,
    /// Whether it went through sockets.
    pub is_socket: bool,
    /// Which way it went: of pipes always forth.
    pub way: Way,
    /// Bytes that went through sockets forth and back, counted or else captured; `None`: not known.
    pub moved: Option<(i64, i64)>,
    /// No more bytes than these; `None`: not known.
    pub at_most_bytes: Option<i64>,
    /// And no less: they were counted, and can have gone no other way.
    pub is_exact: bool,
    /// Payload of the captured packets of these sockets, forth and back; `None`: none were.
    pub captured: Option<(i64, i64)>,
    /// When both held it, ns.
    pub first_ns: i64,
    /// When the last of them gave it up, ns.
    pub last_ns: i64,
}

/// A wait for a file by looking for it now and then, or for a lock by trying to get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// Who looked, or tried.
    pub poller: ProcessId,
    /// The first look, ns.
    pub from_ns: i64,
    /// When the file was there, or the lock was free, ns.
    pub made_ns: i64,
    /// Who made it or moved it there, or had the lock.
    pub by: ProcessId,
    /// It is a lock.
    pub is_lock: bool,
}

impl Default for ProcessId {
    fn default() -> Self {
        ProcessId(u32::MAX)
    }
}

impl Default for FileIndex {
    fn default() -> Self {
        FileIndex(u32::MAX)
    }
}

impl Workflow {
    /// A process by its id.
    pub fn process(&self, id: ProcessId) -> &Process {
        &self.processes[id.0 as usize]
    }

    /// The rule of every image, as [`Trace::store_rules`](flowtrace_schema::Trace::store_rules) takes them.
    pub fn rules(&self) -> impl Iterator<Item = (Upid, String)> {
        let rule = |image: &Image| {
            let upid = Upid(u32::try_from(image.upid).ok()?);
            Some((upid, image.rule.to_string()))
        };
        self.images.iter().filter_map(rule)
    }

    /// Paths of the traced directories.
    pub(crate) fn roots(&self) -> Vec<&str> {
        let directories = self.directories.iter();
        directories
            .map(|directory| directory.path.as_str())
            .collect()
    }

    /// A file by its id.
    pub fn file(&self, index: FileIndex) -> &File {
        &self.files[index.0 as usize]
    }

    /// Bytes that each process received and sent through sockets to others of the run; `None`: that was not counted.
    pub fn socket_bytes(&self) -> HashMap<ProcessId, Option<(i64, i64)>> {
        let mut sums = HashMap::new();
        for stream in self.streams.iter().filter(|stream| stream.is_socket) {
            let back = stream.moved.map(|(forth, back)| (back, forth));
            for (end, moved) in [(stream.from, back), (stream.to, stream.moved)] {
                let sum = sums.entry(end).or_insert(Some((0_i64, 0_i64)));
                *sum = sum
                    .zip(moved)
                    .map(|(sum, own)| (sum.0.saturating_add(own.0), sum.1.saturating_add(own.1)));
            }
        }
        sums
    }

    /// True where data also went the other way between the ends of a stream.
    pub fn is_answered(&self, stream: &Stream) -> bool {
        let key = |stream: &Stream| (stream.from, stream.to);
        let back = (stream.to, stream.from);
        stream.way == Way::Both || self.streams.binary_search_by_key(&back, key).is_ok()
    }

    /// The file with this id in the trace.
    pub fn file_with(&self, file_id: i64) -> Option<&File> {
        let at = self
            .files
            .binary_search_by_key(&file_id, |file| file.file_id);
        at.ok().map(|at| &self.files[at])
    }

    /// The images of a process in the order of execution.
    pub fn images(&self, id: ProcessId) -> &[Image] {
        &self.images[self.process(id).images.clone()]
    }

    /// Where in [`Workflow::images`] each image stands, by the ids in the database.
    pub fn image_places(&self) -> HashMap<i64, usize> {
        let images = self.images.iter().enumerate();
        images.map(|(place, image)| (image.upid, place)).collect()
    }

    /// The process of each image, by the ids in the database.
    pub fn process_of_images(&self) -> HashMap<i64, ProcessId> {
        let images = self.images.iter();
        images.map(|image| (image.upid, image.process)).collect()
    }

    /// What a process was in the end.
    pub fn last_image(&self, id: ProcessId) -> &Image {
        &self.images[self.process(id).images.end - 1]
    }

    /// The ids of all processes.
    pub fn process_ids(&self) -> impl Iterator<Item = ProcessId> + use<> {
        (0..self.processes.len() as u32).map(ProcessId)
    }

    /// The process forked by no one in the trace that began first.
    pub fn root(&self) -> Option<ProcessId> {
        self.process_ids()
            .filter(|&id| self.process(id).parent.is_none())
            .min_by_key(|&id| (self.process(id).start_ns, id))
    }

    /// Whether the recording has no end: it was killed, or still goes on.
    pub fn is_cut_short(&self) -> bool {
        self.runs.iter().any(|run| run.end_ns.is_none())
    }

    /// Whether rows are missing that could not be stored, as on a full disk. Any row may be one of
    /// them: a count is then a lower bound, and the oldest process need not be the command.
    pub fn is_incomplete(&self) -> bool {
        let is_of_store = |loss: &LossRow| loss.source == "store" && loss.value > 0;
        self.losses.iter().any(is_of_store)
    }

    /// Whether pipes and files outside the traced directories were seen, these at least by their being opened: the
    /// calls that make them were stopped, or told of.
    pub fn sees_outside(&self) -> bool {
        let unseen = ["topology_not_seen", "topology_left_out"];
        let is_unseen = |loss: &LossRow| loss.value > 0 && unseen.contains(&&*loss.counter);
        self.runs.iter().all(RunRow::sees_descriptors) && !self.losses.iter().any(is_unseen)
    }

    /// What was seen of the calls on files.
    pub fn file_calls(&self) -> FileCalls {
        if self.directories.iter().any(TracedDirectoryRow::is_seen) {
            FileCalls::All
        } else if self.runs.iter().any(RunRow::sees_file_calls) {
            FileCalls::Data
        } else {
            FileCalls::None
        }
    }

    /// Whether nobody recorded what ran. The processes that there are then are those at the ends of
    /// captured flows, found running: neither the command nor all that it started.
    pub fn lacks_processes(&self) -> bool {
        !self.runs.is_empty() && !self.runs.iter().any(RunRow::sees_processes)
    }

    /// The process of the command itself; `None` where that is not known.
    fn command_process(&self) -> Option<&Process> {
        let has_command = self.runs.iter().any(|run| run.command.is_some());
        let is_known = has_command && !self.lacks_processes() && !self.is_incomplete();
        let root = self.root().filter(|_| is_known);
        root.map(|root| self.process(root))
    }

    /// The moment that people count from, ns: when the run's first process, the command, began. The
    /// recording begins a little sooner, and stored times count from there. Without a command, where
    /// rows are missing or no process was recorded, the begin of the recording, 0.
    ///
    /// Everything that shows a moment to people, or takes one from them, counts from here.
    pub fn begins_ns(&self) -> i64 {
        self.command_process().map_or(0, |command| command.start_ns)
    }

    /// How long the command ran, ns: its own process, not what it left behind. Without a command,
    /// without its end, where rows are missing or no process was recorded, until the last moment known.
    ///
    /// Of several runs: from the begin of the first to the end of the last.
    pub fn duration_ns(&self) -> i64 {
        if self.runs.len() > 1 {
            let begin = self.runs.iter().map(|run| run.start_ns).min();
            return self.last_ns.saturating_sub(begin.unwrap_or(0));
        }
        let command = self.command_process().filter(|_| !self.is_cut_short());
        command
            .and_then(Process::duration_ns)
            .unwrap_or(self.last_ns.saturating_sub(self.begins_ns()))
    }

    /// The children of every process, in the order of their start.
    pub fn children(&self) -> Vec<Vec<ProcessId>> {
        let mut children = vec![Vec::new(); self.processes.len()];
        for id in self.process_ids() {
            if let Some(parent) = self.process(id).parent {
                children[parent.0 as usize].push(id);
            }
        }
        for list in &mut children {
            list.sort_by_key(|&id| (self.process(id).start_ns, id));
        }
        children
    }
}

impl Process {
    /// How long job control had stopped it within a time, ns.
    pub fn stopped_within(&self, from_ns: i64, to_ns: i64) -> i64 {
        let within = |&(from, to): &(i64, i64)| (to.min(to_ns) - from.max(from_ns)).max(0);
        self.stops.iter().map(within).sum()
    }

    /// Whether it ended by a signal or with another code than 0. SIGPIPE does not count: whoever
    /// read the pipe had enough, as `head` in `sort | head` does.
    pub fn has_failed(&self) -> bool {
        self.exit_signal.map_or_else(
            || self.exit_code.is_some_and(|code| code != 0),
            |signal| signal != SIGPIPE,
        )
    }

    /// Whether somebody ended it, by a signal that is sent, and that no program gets for what it does itself: HUP, INT, QUIT,
    /// KILL, USR1, USR2, TERM.
    pub fn was_killed(&self) -> bool {
        const SENT: [i64; 7] = [1, 2, 3, 9, 10, 12, 15];
        self.exit_signal
            .is_some_and(|signal| SENT.contains(&signal))
    }

    /// Whether it ended because nobody read its pipe any more.
    pub fn was_cut_off(&self) -> bool {
        self.exit_signal == Some(SIGPIPE)
    }

    /// Life time, ns; `None` when the end was not seen.
    pub fn duration_ns(&self) -> Option<i64> {
        self.end_ns.map(|end| end.saturating_sub(self.start_ns))
    }
}
