//! Stops for system calls that the filter picks, and for job control.

use nix::unistd::{Pid, getpgid, getpgrp};

use super::super::observer::Tracee;
use super::super::ptrace::{self, SystemCall};
use super::super::topology::{Call, CallKind, UNTRACED};
use super::Lifetimes;

impl Lifetimes {
    /// Reports a task that job control stops, or has stopped before and lets go on.
    pub(super) fn job_control(&mut self, tid: u32, stops: bool, now: u64) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        if std::mem::replace(&mut task.stopped, stops) == stops {
            return;
        }
        let pid = task.process;
        if let Some(upid) = self.processes.get(&pid).map(|process| process.upid) {
            let thread = Tracee { tid, pid, upid };
            self.report(|observer| match stops {
                true => observer.stopped(thread, now),
                false => observer.continued(thread, now),
            });
        }
    }

    /// Job control may have stopped flowtrace since `from`, and with it tasks whose stop was not reported.
    pub(super) fn stopped_with_us(&mut self, from: u64) {
        const AT_ONCE_NS: u64 = 20_000_000;
        let now = self.clock.now();
        if now.saturating_sub(from) < AT_ONCE_NS {
            return;
        }
        let group = getpgrp();
        let in_group = |pid: u32| getpgid(Some(Pid::from_raw(pid as i32))) == Ok(group);
        let tasks = self.tasks.iter();
        let others = tasks.filter(|(_, task)| !task.stopped && in_group(task.process));
        for tid in others.map(|(&tid, _)| tid).collect::<Vec<_>>() {
            self.job_control(tid, true, from);
            self.job_control(tid, false, now);
        }
    }

    /// A thread makes a system call that the filter picks. Returns true to wait for its return.
    pub(super) fn called(&mut self, tid: u32, now: u64) -> bool {
        let Some(SystemCall::Entry { code, arguments }) = ptrace::system_call(tid) else {
            return false;
        };
        if code == UNTRACED {
            ptrace::trace_child(tid);
            return false;
        }
        let Some(call) = Call::new(code, arguments) else {
            // The call stopped for a filter of the program itself, which would find no tracer without us
            // either.
            ptrace::refuse_call(tid);
            return false;
        };
        let Some(tracee) = self.tracee(tid) else {
            return false;
        };
        if call.kind == CallKind::ChangeView
            && let Some(process) = self.processes.get_mut(&tracee.pid)
        {
            process.numbers_children = true;
        }
        if call.kind == CallKind::Umask
            && let Some(process) = self.processes.get_mut(&tracee.pid)
        {
            process.umask = Some(call.mode_mask());
        }
        let mut wanted = false;
        for observer in &mut self.observers {
            wanted |= observer.called(tracee, call, now);
        }
        wanted
    }

    pub(super) fn returned(&mut self, tid: u32, now: u64) {
        if let (Some(SystemCall::Return(result)), Some(tracee)) =
            (ptrace::system_call(tid), self.tracee(tid))
        {
            self.report(|observer| observer.returned(tracee, result, now));
        }
    }

    fn tracee(&self, tid: u32) -> Option<Tracee> {
        let pid = self.tasks.get(&tid)?.process;
        let upid = self.processes.get(&pid)?.upid;
        Some(Tracee { tid, pid, upid })
    }
}
