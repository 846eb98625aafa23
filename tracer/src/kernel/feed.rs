//! Changes of the process tree on their way to the reader's thread. They are reported a little later than they
//! happen, each with its time, and with a time up to which all were reported.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flowtrace_schema::{FileId, Loss, Recorder, Upid, Usage};

use crate::proc::observer::{Observer, Tracee};
use crate::proc::snapshot::ProcessSnapshot;
use crate::proc::topology::CallKind;
use crate::proc::tracepoints::Called;
use crate::stat::Inode;

/// A change of the tree.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// The command begins.
    Begins(Tracee),
    /// A process was made by process `by`.
    Forked {
        by: u32,
        child: Tracee,
    },
    /// A thread began.
    Thread(Tracee),
    /// A process runs another program; all its threads but the first are over.
    Executed(Tracee),
    /// The file that an inode is from now on.
    File(Inode, FileId),
    /// A file has no name at the end.
    Removed(FileId),
    /// The image of a process is over; the numbers of its reads and writes that the kernel counted.
    CallCounts {
        pid: u32,
        reads: u64,
        writes: u64,
    },
    /// A process may read and write without calls from now on: by an io_uring or io_submit(2).
    MovesWithoutCalls(u32),
    /// Job control stopped a thread, or continued it.
    Stopped(u32),
    Continued(u32),
    /// A thread is over.
    Ended(u32),
    /// A process is over.
    Over(u32),
}

/// Changes, each with its time, in their order.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    changes: Mutex<Vec<(u64, Change)>>,
    /// All changes before this time are queued.
    complete: AtomicU64,
}

impl Inbox {
    /// The time up to which all changes are queued. To be read before they are taken.
    pub(super) fn complete(&self) -> u64 {
        self.complete.load(Ordering::Acquire)
    }

    fn push(&self, at: u64, change: Change) {
        let mut all = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((at, change));
    }

    pub(super) fn take(&self) -> Vec<(u64, Change)> {
        let mut all = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *all)
    }
}

/// Reports unmounted files to the reader.
#[derive(Clone)]
pub(crate) struct FoundFiles {
    pub(super) inbox: Arc<Inbox>,
}

impl FoundFiles {
    /// From now on an inode is this file.
    pub(crate) fn found(&self, inode: Inode, file: FileId, now: u64) {
        self.inbox.push(now, Change::File(inode, file));
    }

    /// A file has no name at the end.
    pub(crate) fn removed(&self, file: FileId) {
        self.inbox.push(u64::MAX, Change::Removed(file));
    }
}

/// Reports events to the reader.
pub(crate) struct Feed {
    inbox: Arc<Inbox>,
    recorder: Recorder,
    /// Images that submit reads and writes without a call for each (io_submit(2)).
    submit: HashSet<Upid>,
}

impl Feed {
    pub(super) fn new(inbox: Arc<Inbox>, recorder: Recorder) -> Feed {
        Feed {
            inbox,
            recorder,
            submit: HashSet::new(),
        }
    }
}

impl Observer for Feed {
    fn forked(&mut self, parent: Tracee, child: Tracee, _: &dyn ProcessSnapshot, now: u64) {
        let by = parent.pid;
        self.inbox.push(now, Change::Forked { by, child });
    }

    fn thread_began(&mut self, thread: Tracee, now: u64) {
        self.inbox.push(now, Change::Thread(thread));
    }

    fn executed(&mut self, tracee: Tracee, prev: Option<Upid>, _: &dyn ProcessSnapshot, now: u64) {
        self.inbox.push(
            now,
            match prev {
                None => Change::Begins(tracee),
                Some(_) => Change::Executed(tracee),
            },
        );
    }

    fn image_over(
        &mut self,
        tracee: Tracee,
        usage: &Usage,
        _exec: Option<&dyn ProcessSnapshot>,
        now: u64,
    ) {
        // No tracepoint of a call reports data that moves by other ways.
        if let (Some(reads), Some(writes)) = (usage.read_calls, usage.write_calls)
            && !self.submit.remove(&tracee.upid)
        {
            let pid = tracee.pid;
            self.inbox
                .push(now, Change::CallCounts { pid, reads, writes });
        }
    }

    fn reported(&mut self, tracee: Tracee, called: &Called, now: u64) {
        if called.call.kind == CallKind::AsyncIo && self.submit.insert(tracee.upid) {
            self.recorder.lost(Loss::AsyncIo, 1);
        }
        if matches!(called.call.kind, CallKind::Ring | CallKind::AsyncIo) {
            self.inbox.push(now, Change::MovesWithoutCalls(tracee.pid));
        }
    }

    fn complete(&mut self, until: u64) {
        self.inbox.complete.store(until, Ordering::Release);
    }

    fn stopped(&mut self, thread: Tracee, now: u64) {
        self.inbox.push(now, Change::Stopped(thread.tid));
    }

    fn continued(&mut self, thread: Tracee, now: u64) {
        self.inbox.push(now, Change::Continued(thread.tid));
    }

    fn exiting(&mut self, tracee: Tracee, _last: bool, _moment: &dyn ProcessSnapshot, now: u64) {
        self.inbox.push(now, Change::Ended(tracee.tid));
    }

    fn ended(&mut self, tracee: Tracee, now: u64) {
        self.inbox.push(
            now,
            match tracee.tid == tracee.pid {
                true => Change::Over(tracee.pid),
                false => Change::Ended(tracee.tid),
            },
        );
    }
}
