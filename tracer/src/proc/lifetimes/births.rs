//! New tasks and their makers.
//!
//! The fork event names the maker of every task, with one exception: SIGKILL takes a maker out of any stop,
//! also out of the one in which it would have reported its new task. So do an exec and an exit of the whole
//! process with the threads that they end. When a maker exits that may have been cut off so, its tasks are
//! recognised in `/proc` instead.

use std::sync::Arc;

use flowtrace_schema::Origin;

use super::super::observer::Tracee;
use super::super::ptrace::{self, Report, Stop};
use super::super::reading::{self, ThreadCost};
use super::super::snapshot::LiveSnapshot;
use super::Lifetimes;
use super::pending_forks::Maker;
use super::process::{Process, Task};
use super::time_accounting::Life;

impl Lifetimes {
    /// Returns true if the maker of the reporting task is known. If not, the report is kept until it is.
    pub(super) fn is_known(&mut self, report: Report, now: u64) -> bool {
        if self.tasks.contains_key(&report.tid) || self.recognise(report.tid, now) {
            return true;
        }
        self.births.early.insert(report.tid, report);
        false
    }

    /// Task `tid` made a new task, which is stopped or about to stop.
    pub(super) fn forked(&mut self, tid: u32, by_clone: bool, now: u64) {
        let stop = Stop::Forked { by_clone };
        let Some(child) = ptrace::event_message(tid, stop) else {
            return;
        };
        let pid = self.tasks[&tid].process;
        // A pid comes back only after its last owner was reaped. So a child that is known was recognised
        // before, and one that is not ours any more has even ended since.
        let recognised = self.births.cut_off.contains(&pid) && !is_ours(child);
        if recognised || self.tasks.contains_key(&child) {
            return;
        }
        if by_clone && reading::thread_group(child) == Some(pid) {
            self.begin_thread(child, pid, now);
        } else {
            self.begin_process(child, Maker { tid, pid }, now);
        }
        self.catch_up(child, now);
    }

    fn begin_thread(&mut self, tid: u32, pid: u32, now: u64) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.threads += 1;
        process.live_threads += 1;
        process.lone = false;
        let upid = process.upid;
        self.tasks.insert(tid, Task::new(pid, now));
        self.table.set(tid, upid, false);
        self.report(|observer| observer.thread_began(Tracee { tid, pid, upid }, now));
    }

    fn begin_process(&mut self, pid: u32, maker: Maker, now: u64) {
        let calls_seen = self.calls_seen;
        let Some(creator) = self.processes.get_mut(&maker.pid) else {
            return;
        };
        creator.childless = false;
        let numbered_as_here = calls_seen
            && creator.numbered_as_here
            && !creator.numbers_children
            && ptrace::clone_flags(maker.tid)
                .is_some_and(|flags| flags & libc::CLONE_NEWPID as u64 == 0);
        let parent = Tracee {
            tid: maker.tid,
            pid: maker.pid,
            upid: creator.upid,
        };
        let image = Arc::clone(&creator.image);
        let process = Process {
            environment: creator.environment,
            umask: creator.umask,
            numbered_as_here,
            ..Process::new(self.upids.next(), Some(creator.upid), Arc::clone(&image))
        };
        let upid = process.upid;
        self.start(
            upid,
            pid,
            process.parent,
            None,
            Origin::Fork,
            &image,
            process.environment,
            now,
        );
        self.tasks.insert(pid, Task::new(pid, now));
        self.processes.insert(pid, process);
        self.living.begins(pid);
        self.table.set(pid, upid, true);
        let child = Tracee::first_of(pid, upid);
        self.report(|observer| observer.forked(parent, child, &LiveSnapshot(parent.pid), now));
    }

    fn catch_up(&mut self, tid: u32, now: u64) {
        if let Some(report) = self.births.early.remove(&tid) {
            match self.letting_go {
                true => self.handle_and_let_go(report, now),
                false => self.handle(report, now),
            }
        }
    }

    /// Recognises a task whose maker may have been cut off before it could report.
    fn recognise(&mut self, tid: u32, now: u64) -> bool {
        if let Some(maker) = self.births.orphans.remove(&tid) {
            self.begin_process(tid, maker, now);
            return self.tasks.contains_key(&tid);
        }
        if self.births.cut_off.is_empty() {
            return false;
        }
        let Some((group, parent)) = reading::group_and_parent(tid) else {
            return false;
        };
        if group != tid && self.births.cut_off.contains(&group) {
            self.begin_thread(tid, group, now);
        } else if group == tid && self.births.cut_off.contains(&parent) {
            let maker = Maker {
                tid: parent,
                pid: parent,
            };
            self.begin_process(tid, maker, now);
        }
        self.tasks.contains_key(&tid)
    }

    /// Recognises the tasks that reported early. A report may be an exit, at which others are recognised.
    fn recognise_early(&mut self, now: u64) {
        let early: Vec<u32> = self.births.early.keys().copied().collect();
        for tid in early {
            if self.births.early.contains_key(&tid) && self.recognise(tid, now) {
                self.catch_up(tid, now);
            }
        }
    }

    /// Thread `tid` of process `pid` is in its exit stop, and was perhaps killed in the stop of a fork event.
    /// Its children are still its own: later they may get another parent.
    pub(super) fn may_have_been_cut_off(&mut self, tid: u32, pid: u32, now: u64) {
        self.births.cut_off.insert(pid);
        self.recognise_early(now);
        for child in reading::children(pid, tid) {
            if !self.tasks.contains_key(&child) && is_ours(child) {
                self.births.orphans.insert(child, Maker { tid, pid });
            }
        }
    }

    /// Process `pid` was reaped and is still in the list. If it was not `seen_exiting`, a child that was not
    /// reported has lost its parent already: a child whose parent is unknown is its child.
    pub(super) fn has_gone(&mut self, pid: u32, seen_exiting: bool, now: u64) {
        self.births.cut_off.remove(&pid);
        // The tasks that have not reported yet will not find their maker in the list any more.
        let maker = Maker { tid: pid, pid };
        let lost = self.births.orphans.iter();
        let lost = lost.filter(|(_, maker)| maker.pid == pid);
        let mut lost: Vec<u32> = lost.map(|(&child, _)| child).collect();
        if !seen_exiting {
            let early = self.births.early.keys().copied();
            lost.extend(early.filter(|&tid| {
                reading::group_and_parent(tid).is_some_and(|(group, parent)| {
                    group == tid && !self.processes.contains_key(&parent)
                })
            }));
        }
        for child in lost {
            let is_lost = self.births.orphans.remove(&child).is_some();
            if is_lost || self.births.early.contains_key(&child) {
                self.begin_process(child, maker, now);
                self.catch_up(child, now);
            }
        }
    }
}

/// True if this process traces task `tid`; it does until it has reaped it.
fn is_ours(tid: u32) -> bool {
    reading::tracer_of(tid) == Some(std::process::id())
}

impl Task {
    fn new(process: u32, start_ns: u64) -> Task {
        Task {
            process,
            start_ns,
            before: ThreadCost::default(),
            counted: false,
            life: Life::new(start_ns),
            stopped: false,
        }
    }
}
