//! Begins and ends of processes and threads.

use super::rows::Rows;
use super::{Files, Phase, Process, Thread, Waits, totals};
use crate::proc::observer::Tracee;

impl Waits {
    pub(super) fn begin(&mut self, tracee: Tracee, parent: Option<u32>, at: u64) {
        let process = Process {
            upid: tracee.upid,
            parent,
            tids: Vec::new(),
            live: 0,
            ending: Vec::new(),
            totals: totals(tracee.upid),
        };
        self.processes.insert(tracee.pid, process);
        self.add(tracee, at);
    }

    pub(super) fn add(&mut self, tracee: Tracee, at: u64) {
        let Some(process) = self.processes.get_mut(&tracee.pid) else {
            return;
        };
        process.tids.push(tracee.tid);
        process.live += 1;
        let thread = Thread {
            pid: tracee.pid,
            upid: tracee.upid,
            // A thread without records has not run yet.
            phase: self.others.remove(&tracee.tid).unwrap_or(Phase::Runnable),
            since: at,
            ran_ns: None,
            early: None,
            call: None,
            reason: None,
            polled: None,
            rows: Rows::new(at),
            recorded: None,
            announced: false,
            stopped: false,
        };
        self.threads.insert(tracee.tid, thread);
    }

    pub(super) fn executed(&mut self, tracee: Tracee, at: u64, files: &dyn Files) {
        let Some(process) = self.processes.get(&tracee.pid) else {
            return;
        };
        let others = process.tids.iter().copied();
        let others: Vec<u32> = others.filter(|&tid| tid != tracee.tid).collect();
        for tid in others {
            self.end(tid, at, files);
        }
        self.close(tracee.tid, at, None, files);
        self.finish_rows(tracee.tid);
        let Some(process) = self.processes.get_mut(&tracee.pid) else {
            return;
        };
        process.upid = tracee.upid;
        let next = totals(tracee.upid);
        let before = std::mem::replace(&mut process.totals, next);
        match self.threads.get_mut(&tracee.tid) {
            Some(thread) => {
                process.live = 1;
                thread.upid = tracee.upid;
                thread.announced = false;
                thread.rows = Rows::new(at);
                thread.polled = None;
                // The time is that of the first thread, which need not be the one that goes on.
                thread.ran_ns = None;
            }
            // Another thread than the first one made the exec, and has the id of the first one from now on.
            None => {
                process.live = 0;
                self.add(tracee, at);
            }
        }
        self.total(before);
    }

    /// Job control stopped a thread, or let it go on.
    pub(super) fn job_control(&mut self, tid: u32, stopped: bool) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.stopped = stopped;
            if stopped {
                // Until this was reported, it seemed to wait for its tracer.
                thread.reason = None;
            }
        }
    }

    /// A thread announced its end, or is over: most ends are reported twice.
    pub(super) fn ended(&mut self, tid: u32, at: u64, files: &dyn Files) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let pid = thread.pid;
        if std::mem::replace(&mut thread.announced, true) {
            return self.end(tid, at, files);
        }
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.live = process.live.saturating_sub(1);
        if process.live > 0 {
            return self.end(tid, at, files);
        }
        // The last one lives until the process is reaped.
        let parent = process.parent;
        if let Some(parent) = parent.and_then(|parent| self.processes.get_mut(&parent)) {
            parent.ending.push(pid);
        }
    }

    /// A thread has left its CPU for ever. For a first thread whose others live on, this is its end: no
    /// process waits for it, and no end of its process is reported before the last thread ends.
    pub(super) fn has_died(&mut self, tid: u32, at: u64, files: &dyn Files) {
        let thread = self.threads.get(&tid).filter(|thread| !thread.announced);
        let Some(process) = thread.and_then(|thread| self.processes.get_mut(&thread.pid)) else {
            return;
        };
        if process.live > 1 {
            process.live -= 1;
            self.end(tid, at, files);
        }
    }

    pub(super) fn over(&mut self, pid: u32, at: u64, files: &dyn Files) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        for tid in std::mem::take(&mut process.tids) {
            self.end(tid, at, files);
        }
        let Some(process) = self.processes.remove(&pid) else {
            return;
        };
        let parent = process
            .parent
            .and_then(|parent| self.processes.get_mut(&parent));
        if let Some(parent) = parent {
            parent.ending.retain(|&child| child != pid);
        }
        self.total(process.totals);
    }

    /// The states of a thread are not recorded any more.
    fn end(&mut self, tid: u32, at: u64, files: &dyn Files) {
        self.close(tid, at, None, files);
        self.finish_rows(tid);
        let Some(thread) = self.threads.remove(&tid) else {
            return;
        };
        if thread.phase != Phase::Dead {
            self.others.insert(tid, thread.phase);
        }
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.tids.retain(|&other| other != tid);
        }
    }
}
