//! Changes of the process tree on their way to the reader's thread. They are reported while the task
//! concerned is stopped, so that all its later calls have a later time; or, where tasks are not stopped, a
//! little later, with the time of the event, and with a time up to which all changes were reported.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flowtrace_schema::{FileId, Loss, Recorder, Upid, Usage};

use super::backpressure::Backpressure;
use crate::bpf::traced_pids::TracedPids;
use crate::opens::{Note, Noted, OpenedFile, Opens};
use crate::proc::clone_flags;
use crate::proc::observer::{Observer, Tracee};
use crate::proc::sampler::objects::{Holder, Target};
use crate::proc::snapshot::ProcessSnapshot;
use crate::proc::topology::{Call, CallKind};
use crate::proc::tracepoints::Called;

/// Descriptors 0 to 2; `None`: closed, or not known.
pub(super) type Streams = [Option<Target>; 3];

/// A change of the tree.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// The command begins; true if its calls have the numbers of this architecture.
    Begins(Tracee, bool),
    /// A process was made by a thread of process `by`. `shares`: both have one table of descriptors.
    Forked {
        by: u32,
        thread: u32,
        child: Tracee,
        shares: bool,
    },
    /// A thread began.
    Thread(Tracee),
    /// A process runs another program; all its threads but the first are over.
    Executed(Tracee, bool),
    /// The kinds of files of the standard descriptors of a program that begins.
    Streams {
        pid: u32,
        targets: Streams,
    },
    /// The kind of file that a descriptor of thread `tid` stands for from now on.
    Descriptor {
        tid: u32,
        fd: i32,
        target: Target,
        close_on_exec: bool,
    },
    /// The unmounted file that a descriptor of thread `tid` stands for from now on.
    Opened {
        tid: u32,
        fd: i32,
        file: FileId,
        flags: u32,
    },
    /// An unmounted file was open before the first process of the run began.
    Inherited {
        tid: u32,
        file: Inherited,
    },
    /// The image of a process is over; the number of its calls of reading and writing by /proc.
    CallCounts {
        pid: u32,
        reads: u64,
        writes: u64,
    },
    /// A process has an io_uring, through which it may use any descriptors without a record.
    Ring(u32),
    /// The process reads and writes by io_submit(2) from now on.
    AsyncIo(u32),
    /// Job control stopped a thread, or continued it.
    Stopped(u32),
    Continued(u32),
    /// A thread is over.
    Ended(u32),
    /// A process is over.
    Over(u32),
}

/// Changes, each with its time, in their order.
#[derive(Debug)]
pub(super) struct Inbox {
    changes: Mutex<Vec<(u64, Change)>>,
    /// All changes before this time are queued; the largest time where each change is queued before anything
    /// that follows from it.
    complete: AtomicU64,
}

impl Inbox {
    /// `is_stopped`: each task is stopped until its changes are queued.
    pub(super) fn new(is_stopped: bool) -> Inbox {
        Inbox {
            changes: Mutex::default(),
            complete: AtomicU64::new(if is_stopped { u64::MAX } else { 0 }),
        }
    }

    /// The time up to which all changes are queued. To be read before they are taken.
    pub(super) fn complete(&self) -> u64 {
        self.complete.load(Ordering::Acquire)
    }

    fn push(&self, at: u64, change: Change) {
        let mut all = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((at, change));
    }

    /// Queues the change for a call by which a process may move data without calls, if it is one.
    fn moves_by_itself(&self, pid: u32, by: CallKind, at: u64) {
        match by {
            CallKind::Ring => self.push(at, Change::Ring(pid)),
            CallKind::AsyncIo => self.push(at, Change::AsyncIo(pid)),
            _ => {}
        }
    }

    pub(super) fn take(&self) -> Vec<(u64, Change)> {
        let mut all = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *all)
    }
}

/// A file that the command has open from before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inherited {
    pub(crate) fd: i32,
    pub(crate) file: FileId,
    /// Access mode and `O_APPEND`.
    pub(crate) flags: u32,
    /// Position of the next read or write, bytes.
    pub(crate) position: u64,
    /// An earlier descriptor of the same open file, as in `> out 2>&1`.
    pub(crate) same_as: Option<i32>,
}

/// Reports to the reader the kinds of files of a thread's descriptors, other than those on a mount. The
/// thread is stopped at its call.
#[derive(Clone)]
pub(crate) struct Descriptions {
    pub(super) inbox: Arc<Inbox>,
    pub(super) opens: Arc<Opens>,
}

impl Descriptions {
    /// The open that thread `tid` is about to make gives `file`, if it succeeds.
    pub(crate) fn opens(&self, tid: u32, file: FileId, flags: u32, now: u64) {
        let opened = OpenedFile {
            file: Some(file),
            flags,
            by_fuse: false,
            number: None,
        };
        let what = Noted::Opens(opened);
        self.opens.note(Note { at: now, tid, what });
    }

    /// The open of thread `tid` gave descriptor `fd` of `file`.
    pub(crate) fn opened(&self, tid: u32, fd: i32, file: FileId, flags: u32, now: u64) {
        let opened = Change::Opened {
            tid,
            fd,
            file,
            flags,
        };
        self.inbox.push(now, opened);
    }

    /// The first process of the run has this file open from before.
    pub(crate) fn inherited(&self, tid: u32, file: Inherited, now: u64) {
        self.inbox.push(now, Change::Inherited { tid, file });
    }

    /// A process got channels by a call that the kernel reported.
    pub(crate) fn came_by(&self, tracee: Tracee, called: &Called, now: u64) {
        for fd in called.made.numbers() {
            if let Some(target @ Target::Channel(_)) = called.made.stands_for(fd) {
                let change = Change::Descriptor {
                    tid: tracee.tid,
                    fd,
                    target,
                    // The flag is not reported. An exec reports the standard descriptors of its program, and
                    // the others are read when they are used.
                    close_on_exec: true,
                };
                self.inbox.push(now, change);
            }
        }
    }

    /// A process made these descriptors of pipes or sockets.
    pub(crate) fn made(&self, tracee: Tracee, descriptors: &[i32], now: u64) {
        let Tracee { pid, tid, .. } = tracee;
        for &fd in descriptors {
            let holder = Holder { pid, tid };
            if let Some(target) = holder.target(fd) {
                let close_on_exec = holder.closes_on_exec(fd);
                let change = Change::Descriptor {
                    tid,
                    fd,
                    target,
                    close_on_exec,
                };
                self.inbox.push(now, change);
            }
        }
    }
}

/// Reports events to the reader.
pub(crate) struct Feed {
    pub(super) inbox: Arc<Inbox>,
    pub(super) opens: Arc<Opens>,
    pub(super) recorder: Recorder,
    /// The map of the traced processes, where it is needed.
    pub(super) processes: Option<TracedPids>,
    /// Processes whose calls have the numbers of another architecture.
    pub(super) foreign: HashSet<u32>,
    /// Blocks while too many records wait to be read.
    pub(super) backpressure: Arc<Backpressure>,
}

impl Observer for Feed {
    fn forked(&mut self, parent: Tracee, child: Tracee, snapshot: &dyn ProcessSnapshot, now: u64) {
        self.opens.inherit(parent.upid, child.upid);
        let foreign = self.foreign.contains(&parent.pid);
        if foreign {
            self.foreign.insert(child.pid);
        }
        if let Some(processes) = &self.processes {
            processes.follow(child.pid, foreign);
        }
        let shares = snapshot.shares_descriptors().unwrap_or_else(|| {
            let flags = clone_flags(parent.tid).unwrap_or(0);
            flags & libc::CLONE_FILES as u64 != 0
        });
        let forked = Change::Forked {
            by: parent.pid,
            thread: parent.tid,
            child,
            shares,
        };
        self.inbox.push(now, forked);
    }

    fn thread_began(&mut self, thread: Tracee, now: u64) {
        self.inbox.push(now, Change::Thread(thread));
    }

    fn executed(
        &mut self,
        tracee: Tracee,
        prev: Option<Upid>,
        snapshot: &dyn ProcessSnapshot,
        now: u64,
    ) {
        let native = snapshot.is_native();
        if !native {
            self.opens.serve_by_fuse(tracee.upid);
            self.recorder.lost(Loss::ForeignPrograms, 1);
        }
        let changes = match native {
            true => self.foreign.remove(&tracee.pid),
            false => self.foreign.insert(tracee.pid),
        };
        if let Some(processes) = self.processes.as_ref().filter(|_| changes) {
            processes.follow(tracee.pid, !native);
        }
        self.inbox.push(
            now,
            match prev {
                None => Change::Begins(tracee, native),
                Some(_) => Change::Executed(tracee, native),
            },
        );
        // Later the descriptors may be closed.
        let targets = [0, 1, 2].map(|fd| snapshot.stands_for(fd));
        let pid = tracee.pid;
        self.inbox.push(now, Change::Streams { pid, targets });
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
            && !self.opens.is_by_fuse(tracee.upid)
        {
            let pid = tracee.pid;
            self.inbox
                .push(now, Change::CallCounts { pid, reads, writes });
        }
    }

    fn called(&mut self, tracee: Tracee, call: Call, now: u64) -> bool {
        // No tracepoint of a call reports its reads and writes.
        if call.kind == CallKind::AsyncIo {
            self.opens.reads_by_itself(tracee.upid, &self.recorder);
        }
        self.inbox.moves_by_itself(tracee.pid, call.kind, now);
        false
    }

    fn reported(&mut self, tracee: Tracee, called: &Called, now: u64) {
        self.inbox
            .moves_by_itself(tracee.pid, called.call.kind, now);
    }

    fn throttled(&mut self) {
        self.backpressure.wait();
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
        if tracee.tid == tracee.pid {
            self.foreign.remove(&tracee.pid);
            if let Some(processes) = &self.processes {
                processes.forget(tracee.pid);
            }
        }
        self.inbox.push(
            now,
            match tracee.tid == tracee.pid {
                true => Change::Over(tracee.pid),
                false => Change::Ended(tracee.tid),
            },
        );
    }
}
