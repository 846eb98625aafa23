//! Detaching from processes that outlive the command.

use flowtrace_schema::{Loss, ProcessEnd, Record};

use super::super::ptrace::{self, Event, Report, Stop};
use super::super::reading::{Account, ProcessStat, ThreadCost};
use super::Lifetimes;

impl Lifetimes {
    /// Asks every task to stop, so that it can be detached there.
    pub(super) fn begin_to_let_go(&mut self) {
        self.letting_go = true;
        for &tid in self.tasks.keys() {
            // A task that is stopped already, or is about to end, reports that instead.
            let _ = ptrace::interrupt(tid);
        }
    }

    /// Handles a report during detaching: ends and begins are recorded as always, and a task that would go on
    /// is detached.
    pub(super) fn handle_and_let_go(&mut self, report: Report, arrived: u64) {
        let Report { tid, event, used } = report;
        let signal = match event {
            Event::Exited(_) | Event::Killed(_) | Event::Stopped(Stop::Exit) => {
                return self.handle(report, arrived);
            }
            Event::Stopped(Stop::Signal(signal)) => signal,
            Event::Stopped(Stop::Forked { by_clone }) => {
                self.forked(tid, by_clone, arrived);
                0
            }
            Event::Stopped(Stop::Exec) => {
                self.exec(tid, used, arrived);
                0
            }
            // A task that is detached in a stop of job control stays stopped.
            Event::Stopped(Stop::Group(_) | Stop::Trap | Stop::Call | Stop::Returned) => 0,
        };
        self.account_so_far(tid);
        if ptrace::detach(tid, signal).is_ok() {
            self.forget(tid, used);
        }
    }

    fn account_so_far(&mut self, tid: u32) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        let Some(process) = self.processes.get_mut(&task.process) else {
            return;
        };
        if let Some((cost, status)) = ThreadCost::of(task.process, tid) {
            process.cost += cost - task.before;
            process.status = status.or(process.status);
        }
        process.time.read(task.process, tid, &mut task.life);
        process.time.close(&mut task.life, self.clock.now());
    }

    fn forget(&mut self, tid: u32, used: Account) {
        let Some(task) = self.tasks.remove(&tid) else {
            return;
        };
        self.table.clear(tid);
        let pid = task.process;
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.live_threads = process.live_threads.saturating_sub(1);
        if process.live_threads > 0 {
            return;
        }
        let Some(mut process) = self.processes.remove(&pid) else {
            return;
        };
        self.living.ends(pid);
        process.total = match process.childless {
            true => Some(used.cost),
            false => ProcessStat::of(pid).as_ref().map(ProcessStat::cost),
        };
        self.recorder.lost(Loss::LetGo, 1);
        let so_far = ProcessEnd {
            upid: process.upid,
            end_ns: None,
            exit_code: None,
            exit_signal: None,
            inner_pid: process.status.inner_pid,
            usage: process.usage(),
        };
        self.recorder.record(Record::ProcessEnd(Box::new(so_far)));
    }
}
