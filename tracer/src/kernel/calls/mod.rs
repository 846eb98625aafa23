//! Calls that move data: the entry and the return of each, joined, with the file that it used.
//!
//! An entry names the file behind its descriptor ([`FileUse`]), so nothing is kept here about descriptors: calls
//! on a file that the run opened have rows, those on a pipe or socket are counted, and others are left out.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;

use flowtrace_schema::{Call, FileId, Loss, Op, Record, Upid, is_system_path};

use super::by_id::ById;
use super::channel_rows::{ChannelRows, Sink};
use super::feed::Change;
use super::sample::{FileUse, Returned, Sample, What};
use super::syscalls::{Does, Numbers};
use super::traffic::Accounts;
use super::waits::Files;
use crate::proc::observer::{ChannelLookup, Tracee};
use crate::proc::{descriptors, links};
use crate::stat::Inode;

mod acts;
mod channels;
mod counts;
mod data;
mod positions;
mod thread;

use channels::Done;
use counts::Counts;
use positions::Positions;
use thread::{InFlight, Thread};

/// The kernel reads by itself, too, a program that it runs for one; and a call may be cut off by a signal between
/// its count and its return.
const TOLERANCE: u64 = 8;

/// Joins the records of calls.
pub(super) struct Calls {
    numbers: Numbers,
    threads: ById<Thread>,
    processes: ById<Process>,
    files: HashMap<Inode, FileId>,
    positions: Positions,
    changes: VecDeque<(u64, Change)>,
    /// Number of records that the kernel dropped.
    dropped: u64,
    /// Records may be missing up to this time.
    lossy_until: u64,
    /// Calls whose return was dropped, and whose entry was not.
    halves: u64,
    /// Regular files that calls used and no open was reported of.
    unopened: HashSet<Inode>,
    /// Those of them that the trace should have.
    not_followed: u64,
    accounts: Accounts,
    channel_rows: ChannelRows,
    /// Images of which the kernel counted other calls than were seen.
    unreconciled: u64,
}

struct Process {
    counts: Rc<Counts>,
    /// The image that it runs.
    upid: Upid,
    tids: Vec<u32>,
}

impl Calls {
    pub(super) fn new(channels: Arc<dyn ChannelLookup>, channel_calls: Option<Sink>) -> Calls {
        Calls {
            numbers: Numbers::new(),
            threads: ById::default(),
            processes: ById::default(),
            files: HashMap::new(),
            positions: Positions::default(),
            changes: VecDeque::new(),
            dropped: 0,
            lossy_until: 0,
            halves: 0,
            unopened: HashSet::new(),
            not_followed: 0,
            channel_rows: ChannelRows::new(Arc::clone(&channels), channel_calls),
            accounts: Accounts::new(channels),
            unreconciled: 0,
        }
    }

    /// The tree changed, or will have at the time of each change.
    pub(super) fn announce(&mut self, changes: Vec<(u64, Change)>) {
        self.changes.extend(changes);
        // Where no process is stopped, two CPUs may report theirs in another order.
        self.changes.make_contiguous().sort_by_key(|(at, _)| *at);
    }

    /// The traffic of pipes and sockets, of the images that are over since the last call.
    pub(super) fn traffic(&mut self) -> Vec<Record> {
        self.channel_rows.settle(false);
        self.accounts.take()
    }

    /// No more records come: images that still live have moved what was seen.
    pub(super) fn finish(&mut self) {
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        for pid in pids {
            self.over(pid);
        }
        self.channel_rows.settle(true);
    }

    /// Applies the next change until a time, and returns it.
    pub(super) fn next_change(&mut self, until: u64) -> Option<(u64, Change)> {
        let (at, change) = self.changes.pop_front_if(|(at, _)| *at <= until)?;
        self.change(change);
        Some((at, change))
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Begins(tracee) => self.begin(tracee),
            Change::Forked { child, .. } => self.begin(child),
            Change::Thread(tracee) => self.add(tracee),
            Change::Executed(tracee) => {
                self.over(tracee.pid);
                self.begin(tracee);
            }
            Change::Ended(tid) => {
                if let Some(pid) = self.ends(tid)
                    && let Some(process) = self.processes.get_mut(&pid)
                {
                    process.tids.retain(|other| *other != tid);
                }
            }
            Change::File(inode, file) => {
                self.files.insert(inode, file);
            }
            Change::MovesWithoutCalls(pid) => {
                if let Some(process) = self.processes.get(&pid) {
                    process.counts.is_partial.set(true);
                }
            }
            Change::Removed(_) | Change::Stopped(_) | Change::Continued(_) => {}
            Change::CallCounts { pid, reads, writes } => self.reconcile(pid, reads, writes),
            Change::Over(pid) => {
                self.over(pid);
            }
        }
    }

    /// Compares the calls that were seen of an image with those that the kernel counted.
    fn reconcile(&mut self, pid: u32, reads: u64, writes: u64) {
        let Some(process) = self.processes.get(&pid) else {
            return;
        };
        let counts = &process.counts;
        let tolerance = TOLERANCE + process.tids.len() as u64;
        let agrees = |seen: u64, counted: u64| seen.abs_diff(counted) <= tolerance;
        if !(agrees(counts.reads.get(), reads) && agrees(counts.writes.get(), writes)) {
            self.unreconciled += 1;
        }
    }

    fn begin(&mut self, tracee: Tracee) {
        let process = Process {
            counts: Rc::default(),
            upid: tracee.upid,
            tids: Vec::new(),
        };
        self.processes.insert(tracee.pid, process);
        self.add(tracee);
    }

    fn add(&mut self, tracee: Tracee) {
        let Some(process) = self.processes.get_mut(&tracee.pid) else {
            return;
        };
        process.tids.push(tracee.tid);
        let thread = Thread {
            counts: Rc::clone(&process.counts),
            pid: tracee.pid,
            upid: tracee.upid,
            call: None,
        };
        self.threads.insert(tracee.tid, thread);
    }

    /// All threads of a process are over, or it runs another program.
    fn over(&mut self, pid: u32) {
        let Some(process) = self.processes.remove(&pid) else {
            return;
        };
        let is_all = self.dropped == 0 && !process.counts.is_partial.get();
        let mut sums = process.counts.sums.borrow_mut();
        self.accounts.close(process.upid, &mut sums, is_all);
        drop(sums);
        for tid in &process.tids {
            self.ends(*tid);
        }
    }

    /// A thread is over; returns its process.
    fn ends(&mut self, tid: u32) -> Option<u32> {
        let thread = self.threads.remove(&tid)?;
        if let Some(call) = thread.call {
            // Also a call that a signal ends returns: its return was lost.
            self.give_up(&call);
        }
        Some(thread.pid)
    }

    /// The return of a call was lost.
    fn give_up(&mut self, call: &InFlight) {
        self.halves += u64::from(!matches!(call.does, Does::Obscures(_)));
        self.leave_positions(call);
    }

    /// The next sample in the order of time. All changes until then were applied.
    pub(super) fn sample(&mut self, sample: &Sample, emit: &mut impl FnMut(Call)) {
        match sample.what {
            What::Enters(file) => self.enters(sample, file),
            What::AlsoUses(file) => {
                if let Some(call) = self.in_flight(sample) {
                    call.other = Some(file);
                    self.positions.enter(&file);
                }
            }
            What::Moved(bytes) => {
                if let Some(call) = self.in_flight(sample) {
                    call.moved = Some(bytes);
                }
            }
            What::Returns(returned) => self.returns(sample, returned, emit),
            What::In(_)
            | What::InNoCall
            | What::Leaves { .. }
            | What::Woken { .. }
            | What::Request { .. } => {}
        }
    }

    fn in_flight(&mut self, sample: &Sample) -> Option<&mut InFlight> {
        let call = self.threads.get_mut(&sample.tid)?.call.as_mut()?;
        (call.number == sample.number).then_some(call)
    }

    fn enters(&mut self, sample: &Sample, file: FileUse) {
        let Some(does) = self.numbers.does(sample.number) else {
            return;
        };
        let Some(thread) = self.threads.get_mut(&sample.tid) else {
            return;
        };
        let call = InFlight {
            number: sample.number,
            does,
            at: sample.at,
            file,
            other: None,
            moved: None,
        };
        self.positions.enter(&file);
        if let Some(before) = thread.call.replace(call) {
            self.give_up(&before);
        }
    }

    fn returns(&mut self, sample: &Sample, returned: Returned, emit: &mut impl FnMut(Call)) {
        let Some(thread) = self.threads.get_mut(&sample.tid) else {
            return;
        };
        let call = match thread.call.take() {
            Some(call) if call.number == sample.number => call,
            // Its entry was lost, and is counted as that; of the one before it the return was.
            Some(before) => return self.give_up(&before),
            None => return,
        };
        let are_alone = self.leave_positions(&call);
        let result = returned.result;
        let thread = &self.threads[&sample.tid];
        thread.counts.add(call.does, result);
        let done = Done {
            call: &call,
            sample,
            result,
            rows: &mut self.channel_rows,
        };
        match call.does {
            Does::Data(data) => thread.count_data(done, data),
            Does::Moves(moves) => {
                // A copy from the end of a file, or to another kind of it, moves nothing.
                if moves.ops.0 == Op::CopyFrom && result <= 0 {
                    return;
                }
                thread.count_moved(done);
            }
            Does::Acts(_) => {}
            Does::Obscures(_) => thread.count_obscured(done),
        }
        let row = thread.row(sample, &call, result, self.lossy_until);
        let pid = thread.pid;
        data::rows(&self.files, &row, &call, (returned, are_alone), emit);
        self.note_unopened(pid, &call.file);
        if let Some(other) = &call.other {
            self.note_unopened(pid, other);
        }
    }

    /// Counts a file of which no open was reported: it came from outside the run, or was opened by a handle. Most
    /// are files that the C library opens for itself.
    fn note_unopened(&mut self, pid: u32, file: &FileUse) {
        let is_regular = file.mode & libc::S_IFMT == libc::S_IFREG;
        if !is_regular || self.files.contains_key(&file.inode) || !self.unopened.insert(file.inode)
        {
            return;
        }
        let path = links::target(pid, file.descriptor).unwrap_or_default();
        let name = path.as_os_str().as_bytes();
        // The descriptor may be another file's by now.
        let is_it = || {
            let found = descriptors::attributes(pid, file.descriptor);
            found.is_some_and(|found| found.inode() == file.inode)
        };
        if links::is_path(path.as_os_str()) && !is_system_path(name) && is_it() {
            self.not_followed += 1;
        }
    }

    /// Returns whether no other call used the position of its first file meanwhile, and of its second one.
    fn leave_positions(&mut self, call: &InFlight) -> [bool; 2] {
        [Some(&call.file), call.other.as_ref()]
            .map(|file| file.is_none_or(|file| self.positions.leave(file)))
    }

    /// The kernel dropped this number of records, up to a time: what calls did that were in flight then is not
    /// certain.
    pub(super) fn lost(&mut self, records: u64, until: u64) {
        self.dropped += records;
        self.lossy_until = self.lossy_until.max(until);
        for process in self.processes.values() {
            process.counts.sums.borrow_mut().lossy = true;
        }
    }

    /// Calls that were not seen; the kernel dropped `entries` of calls.
    pub(super) fn losses(&self, entries: u64) -> [(Loss, u64); 3] {
        // Without a loss a call that never returned was cut off, and with one the counts cannot agree.
        let (halves, unreconciled) = match self.dropped + entries {
            0 => (0, self.unreconciled),
            _ => (self.halves, 0),
        };
        [
            (Loss::CallsDropped, entries + halves),
            (Loss::CallsUnreconciled, unreconciled),
            (Loss::DescriptorsNotFollowed, self.not_followed),
        ]
    }
}

impl Files for Calls {
    fn file(&self, inode: Inode) -> Option<FileId> {
        self.files.get(&inode).copied()
    }
}

#[cfg(test)]
mod tests;
