//! A trace in memory: the processes that ran and what they did to which file.
//!
//! The database has a row per process *image*; people think of *processes*: the chain of images
//! that one pid ran, joined here by `prev_upid`. Everything keeps its place in the vectors of
//! [`Workflow`]; the ids below are those places.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use flowtrace_schema::{LossRow, NetworkTotals, RunRow, TracedDirectoryRow, Upid};

mod access;
mod activity;
mod descent;
mod ends;
mod file;
mod ids;
mod names;
mod naming;
mod parts;
mod process;
mod programs;
mod way;

pub use access::{Access, Part, Relation, Return};
pub use activity::{Activity, Doing, OpenEnd, Side, Span};
pub(crate) use descent::Descent;
pub use ends::ChannelEnds;
pub use file::{File, MountCosts, MountUse};
pub use ids::{FileIndex, ProcessId};
pub use names::Names;
pub(crate) use process::is_failure;
pub use process::{Image, Moved, Process, Unopened};
pub use programs::{Programs, Stint};
pub use way::Way;

/// Calls on files that were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileCalls {
    /// Opens at most.
    None,
    /// All calls on files of the traced directories.
    #[default]
    All,
}

/// Everything about one trace.
#[derive(Clone, Debug, Default)]
pub struct Workflow {
    /// The recordings in the file.
    pub runs: Vec<RunRow>,
    /// The directories whose file calls were recorded.
    pub directories: Vec<TracedDirectoryRow>,
    /// Known losses, the worst first.
    pub losses: Vec<LossRow>,
    /// The process images; those of one process stand together, in the order of execution.
    pub images: Vec<Image>,
    /// The processes in the order of their first image's id, which is the order of discovery.
    pub processes: Vec<Process>,
    /// The files in the order of their ids.
    pub files: Vec<File>,
    /// The names of the files over time.
    pub names: Names,
    /// Successful calls of each process on each file, summed over its images; ordered by process, then file.
    pub accesses: Vec<Access>,
    /// The part of `accesses` by programs that were not the last of their process; ordered by process, then
    /// file, then program.
    pub parts: Vec<Part>,
    /// The names of processes in which several programs worked.
    pub joint_rules: HashMap<ProcessId, Arc<str>>,
    /// Accesses to files in which processes found data that others had written after them; ordered by
    /// process, then file.
    pub returns: Vec<Return>,
    /// Data through pipes and sockets, summed for each pair of processes; in order.
    pub streams: Vec<Stream>,
    /// Processes at each end of a pipe or socket.
    pub ends: ChannelEnds,
    /// Waits of calls on traced mounts.
    pub mount: MountCosts,
    /// Waits of processes that polled for a file or a lock; in order.
    pub polls: Vec<Poll>,
    /// Sums over the captured packets; `None`: nothing was captured.
    pub network: Option<NetworkTotals>,
    /// Programs that were executed and are files of the trace, each pair once, in order.
    pub executions: Vec<(ProcessId, FileIndex)>,
    /// End of the run, or of the last known event of a run cut short, ns.
    pub last_ns: i64,
    /// Time up to which the recording is complete, ns: `last_ns`, except for a run that goes on or was cut
    /// short.
    pub complete_ns: i64,
    /// True if the run is still being recorded.
    pub is_live: bool,
    /// From when on nothing was recorded though the run went on, as [`crate::load::unrecorded`] says it.
    pub unrecorded: Option<String>,
}

/// Data that one process may have sent to another through pipes or sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The writer; where both wrote, or it is not known, the process that began first.
    pub from: ProcessId,
    /// The reader.
    pub to: ProcessId,
    /// True if the data went through sockets.
    pub is_socket: bool,
    /// Direction of the data: through pipes always forth.
    pub way: Way,
    /// Bytes that went through sockets forth and back, counted or else captured; `None`: not known.
    pub moved: Option<(i64, i64)>,
    /// No more bytes than these; `None`: not known.
    pub at_most_bytes: Option<i64>,
    /// True if there were no fewer bytes either: they were counted, and can have gone no other way.
    pub is_exact: bool,
    /// Payload of the captured packets of these sockets, forth and back; `None`: no packets.
    pub captured: Option<(i64, i64)>,
    /// Begin of the time in which both had the channel open, ns.
    pub first_ns: i64,
    /// End of that time, ns.
    pub last_ns: i64,
}

/// A wait of a process that polled for a file until it was there, or for a lock until it was free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The process that polled.
    pub poller: ProcessId,
    /// The first attempt, ns.
    pub from_ns: i64,
    /// Time at which the file was there, or the lock was free, ns.
    pub made_ns: i64,
    /// The process that made the file or moved it there, or had the lock.
    pub by: ProcessId,
    /// True for a lock.
    pub is_lock: bool,
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

    /// Places of the images in [`Workflow::images`], by the ids in the database.
    pub fn image_places(&self) -> HashMap<i64, usize> {
        let images = self.images.iter().enumerate();
        images.map(|(place, image)| (image.upid, place)).collect()
    }

    /// The process of each image, by the ids in the database.
    pub fn process_of_images(&self) -> HashMap<i64, ProcessId> {
        let images = self.images.iter();
        images.map(|image| (image.upid, image.process)).collect()
    }

    /// Place of the image that a process was at a time; its first one before that begins.
    pub(crate) fn image_at(&self, id: ProcessId, ns: i64) -> usize {
        let begun = self
            .images(id)
            .partition_point(|image| image.start_ns <= ns);
        self.process(id).images.start + begun.max(1) - 1
    }

    /// For each image, true if it forked. A fork before an exec does not count for the program after the exec.
    pub(crate) fn have_forked(&self) -> Vec<bool> {
        let mut have_forked = vec![false; self.images.len()];
        for process in &self.processes {
            if let Some(parent) = process.parent {
                have_forked[self.image_at(parent, process.start_ns)] = true;
            }
        }
        have_forked
    }

    /// The last image of a process.
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

    /// Returns true if the recording has no end: it was killed, or still goes on.
    pub fn is_cut_short(&self) -> bool {
        self.runs.iter().any(|run| run.end_ns.is_none())
    }

    /// Returns true if rows are missing that could not be stored, as on a full disk. Any row may be one of
    /// them: a count is then a lower bound, and the oldest process need not be the command.
    pub fn is_incomplete(&self) -> bool {
        let is_of_store = |loss: &LossRow| loss.source == "store" && loss.value > 0;
        self.losses.iter().any(is_of_store)
    }

    /// Returns true if pipes and files outside the traced directories were recorded, the files at least by
    /// their opens: the calls that make them were stopped or reported.
    pub fn sees_outside(&self) -> bool {
        let unseen = ["topology_not_seen", "topology_left_out"];
        let is_unseen = |loss: &LossRow| loss.value > 0 && unseen.contains(&&*loss.counter);
        self.runs.iter().all(RunRow::sees_descriptors) && !self.losses.iter().any(is_unseen)
    }

    /// Calls on files that were recorded.
    pub fn file_calls(&self) -> FileCalls {
        match self.directories.iter().any(TracedDirectoryRow::is_seen) {
            true => FileCalls::All,
            false => FileCalls::None,
        }
    }

    /// Returns true if no source recorded processes. The processes in the trace are then those at the ends of
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

    /// Zero of the times that people see, ns: the begin of the run's first process, the command. The
    /// recording begins a little sooner, and stored times count from there. Without a command, where rows are
    /// missing or no process was recorded, this is the begin of the recording, 0.
    ///
    /// Everything that shows a time to people, or takes one from them, counts from here.
    pub fn begins_ns(&self) -> i64 {
        self.command_process().map_or(0, |command| command.start_ns)
    }

    /// Duration of the command, ns: of its own process, without processes that it left behind. Without a
    /// command, without its end, where rows are missing or no process was recorded, the time until the last
    /// known event.
    ///
    /// Of several runs: the time from the begin of the first to the end of the last.
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
