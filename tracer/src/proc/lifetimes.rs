//! Follows a tree of processes by ptrace events: fork, vfork, clone, exec, exit, so that the cost
//! is per process, not per call. Of system calls only those stop that a filter picks
//! ([`super::topology`]).
//!
//! ptrace reports everything about one task in order, but the first stop of a new task and its
//! parent's fork event arrive in either order. A task whose fork event has not come yet therefore
//! waits in its stop: none ever runs unidentified ([`births`]).

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use flowtrace_schema::{
    HostId, Loss, Origin, ProcessEnd, ProcessStart, Record, Recorder, ThreadRecord, Tid, Upid,
    quote_argv,
};

mod births;
mod calls;
mod images;
mod letting_go;
mod pending_forks;
mod process;
mod time_accounting;

pub(in crate::proc) use images::wants_privilege;
use pending_forks::PendingForks;
use process::{Process, Task};
use time_accounting::Life;

use super::environment::Wanted;
use super::inherited::Inherited;

use super::near;
use super::observer::{Observer, Tracee};
use super::ptrace::{self, Event, Report, Stop};
use super::reading::{self, Account, Image, ProcessStat, ThreadCost};
use super::snapshot::LiveSnapshot;
use super::{Living, Upids};
use crate::callers::TaskTable;
use crate::clock::Clock;
use crate::priority::Ahead;

/// End of the first process of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With an exit code.
    Exited(i32),
    /// By a signal.
    Killed(i32),
}

/// A process that outlives the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// Its process id.
    pub pid: u32,
    /// Its arguments, quoted for a shell.
    pub command: String,
}

impl LeftBehind {
    pub(super) fn new(pid: u32, image: &Image) -> LeftBehind {
        let argv = image.argv.as_deref().unwrap_or_default();
        let argv = argv.strip_suffix(b"\0").unwrap_or(argv);
        let command = quote_argv(argv.split(|&b| b == 0)).text().into_owned();
        LeftBehind { pid, command }
    }
}

/// Receiver of the events of the first process, for the part of flowtrace that started it.
pub(crate) trait Watcher {
    /// Job control stopped it, by this signal.
    fn stopped(&mut self, signal: i32);
    /// It ended, and these other processes of the tree still run. Returns true to detach from them.
    fn ended(&mut self, end: End, others: Vec<LeftBehind>) -> bool;
}

/// A traced tree of processes.
pub(crate) struct Lifetimes {
    host: HostId,
    clock: Clock,
    recorder: Recorder,
    upids: Arc<Upids>,
    table: Arc<TaskTable>,
    living: Arc<Living>,
    root: u32,
    /// True if set-user-id programs run without their privilege, because flowtrace has none.
    unprivileged: bool,
    tasks: HashMap<u32, Task>,
    processes: HashMap<u32, Process>,
    births: PendingForks,
    letting_go: bool,
    /// True if the calls that [`super::topology`] picks are seen.
    calls_seen: bool,
    wanted: Wanted,
    inherited: Inherited,
    observers: Vec<Box<dyn Observer>>,
}

impl Lifetimes {
    /// Prepares to follow process `root`, already seized and not yet running its program.
    /// Returns the id that the program will have.
    pub(crate) fn new(
        root: u32,
        host: HostId,
        clock: Clock,
        recorder: Recorder,
        upids: Arc<Upids>,
        table: Arc<TaskTable>,
        wanted: Wanted,
    ) -> Self {
        let upid = upids.next();
        table.set(root, upid, true);
        let living = Arc::<Living>::default();
        living.begins(root);
        let start_ns = clock.now();
        let task = Task {
            process: root,
            start_ns,
            before: ThreadCost::default(),
            counted: false,
            life: Life::new(start_ns),
            stopped: false,
        };
        let process = Process {
            launcher: true,
            numbered_as_here: true,
            ..Process::new(upid, None, Arc::default())
        };
        Lifetimes {
            host,
            clock,
            recorder,
            upids,
            table,
            living,
            root,
            unprivileged: !reading::may_trace_privileged(),
            tasks: HashMap::from([(root, task)]),
            processes: HashMap::from([(root, process)]),
            births: PendingForks::default(),
            letting_go: false,
            calls_seen: false,
            wanted,
            inherited: Inherited::default(),
            observers: Vec::new(),
        }
    }

    /// Reports events to `observer`, too, from now on.
    pub(crate) fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observers.push(observer);
    }

    /// Follows the tree until its last process has ended, or was detached.
    ///
    /// # Errors
    /// When waiting itself fails, which it does only if this process has no children at all.
    pub(crate) fn follow(mut self, watcher: &mut dyn Watcher) -> io::Result<Option<End>> {
        // A stopped program waits for us: without a priority boost, behind all others on a busy machine.
        let _ahead = Ahead::of_the_command();
        let mut end = None;
        while let Some(report) = ptrace::wait()? {
            let arrived = self.clock.now();
            let Report { tid, event, .. } = report;
            if !self.is_known(report, arrived) {
                continue;
            }
            if self.letting_go {
                self.handle_and_let_go(report, arrived);
                continue;
            }
            let root_end = match (tid == self.root, event) {
                (true, Event::Exited(code)) => Some(End::Exited(code)),
                (true, Event::Killed(signal)) => Some(End::Killed(signal)),
                (is_root, Event::Stopped(Stop::Group(signal))) if is_root || self.has_root(tid) => {
                    self.handle(report, arrived);
                    let from = self.clock.now();
                    watcher.stopped(signal);
                    self.stopped_with_us(from);
                    continue;
                }
                _ => None,
            };
            self.handle(report, arrived);
            if let Some(root_end) = root_end {
                end = Some(root_end);
                if watcher.ended(root_end, self.left_behind()) {
                    self.begin_to_let_go();
                }
            }
        }
        self.recorder
            .lost(Loss::ExitUnseen, self.processes.len() as u64);
        Ok(end)
    }

    /// The processes that live, from the first one's start on.
    pub(crate) fn living(&self) -> Arc<Living> {
        Arc::clone(&self.living)
    }

    /// True if a stopped task is a child that the root made by vfork(2), which cannot stop until it has
    /// executed something.
    fn has_root(&self, tid: u32) -> bool {
        let process = |pid: u32| self.processes.get(&pid);
        let child = self.tasks.get(&tid).and_then(|task| process(task.process));
        let parent = child.and_then(|child| child.parent);
        parent.is_some()
            && parent == process(self.root).map(|root| root.upid)
            && !near::may_serve()
            && reading::is_in_vfork(self.root)
    }

    fn left_behind(&self) -> Vec<LeftBehind> {
        let mut left: Vec<_> = self
            .processes
            .iter()
            .map(|(&pid, process)| LeftBehind::new(pid, &process.image))
            .collect();
        left.sort_by_key(|process| process.pid);
        left
    }

    fn handle(&mut self, report: Report, arrived: u64) {
        let Report { tid, event, used } = report;
        match event {
            Event::Exited(code) => self.over(tid, Some(code), None, used),
            Event::Killed(signal) => self.over(tid, None, Some(signal), used),
            Event::Stopped(stop) => {
                let mut signal = 0;
                self.job_control(tid, matches!(stop, Stop::Group(_)), arrived);
                let mut to_return = false;
                match stop {
                    Stop::Signal(delivered) => signal = delivered,
                    Stop::Group(_) => {
                        // Fails only if the task is gone, which the next event will report.
                        let _ = ptrace::listen(tid);
                        return;
                    }
                    Stop::Trap => {}
                    Stop::Forked { by_clone } => self.forked(tid, by_clone, arrived),
                    Stop::Exec => self.exec(tid, used, arrived),
                    Stop::Exit => self.exiting(tid, used, arrived),
                    Stop::Call => to_return = self.called(tid, arrived),
                    Stop::Returned => self.returned(tid, arrived),
                }
                let process = self.tasks.get(&tid).map(|task| task.process);
                if let Some(process) = process.and_then(|pid| self.processes.get_mut(&pid)) {
                    process.tracer_ns += self.clock.now().saturating_sub(arrived);
                }
                // These stops were reported some time ago.
                let stale = matches!(stop, Stop::Forked { .. } | Stop::Exec);
                if to_return {
                    let _ = ptrace::resume_to_return(tid);
                } else if !stale || ptrace::is_in(tid, stop) {
                    let _ = ptrace::resume(tid, signal);
                }
            }
        }
    }

    /// Task `tid` is about to exit: the last instant at which its costs can be read.
    fn exiting(&mut self, tid: u32, used: Account, now: u64) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        let pid = task.process;
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        match process.read_cost(pid, tid, &used) {
            Some((cost, status)) => {
                process.cost += cost - task.before;
                process.status = status.or(process.status);
            }
            None => process.readable = false,
        }
        task.counted = true;
        process.live_threads = process.live_threads.saturating_sub(1);
        let last = process.live_threads == 0;
        process.time.read(pid, tid, &mut task.life);
        // Observers charge the time up to the same instant.
        let now = if last { now } else { self.clock.now() };
        if !last {
            process.time.close(&mut task.life, now);
        } else if !process.childless {
            let stat = ProcessStat::of(pid);
            process.total = stat.as_ref().map(ProcessStat::cost);
        }
        let upid = process.upid;
        let threaded = process.threads > 1;
        if threaded || ptrace::event_message(tid, Stop::Exit) == Some(libc::SIGKILL as u32) {
            self.may_have_been_cut_off(tid, pid, now);
        }
        self.report(|observer| {
            observer.exiting(Tracee { tid, pid, upid }, last, &LiveSnapshot(pid), now);
        });
    }

    /// The wait status of task `tid` was reaped: a thread, or with it the whole process.
    fn over(&mut self, tid: u32, exit_code: Option<i32>, exit_signal: Option<i32>, used: Account) {
        let now = self.clock.now();
        let Some(mut task) = self.tasks.remove(&tid) else {
            return;
        };
        self.table.clear(tid);
        let pid = task.process;
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.time.close(&mut task.life, now);
        let upid = process.upid;
        if tid != pid {
            if !task.counted {
                process.live_threads = process.live_threads.saturating_sub(1);
            }
            self.report(|observer| observer.ended(Tracee { tid, pid, upid }, now));
            self.thread_over(upid, tid, task.start_ns, now);
            return;
        }
        if process.childless {
            process.total = Some(used.cost);
        }
        let usage = process.usage();
        let seen_exiting = task.counted;
        let tracee = Tracee { tid, pid, upid };
        self.report(|observer| observer.image_over(tracee, &usage, None, now));
        self.report(|observer| observer.ended(tracee, now));
        self.has_gone(pid, seen_exiting, now);
        let process = self.processes.remove(&pid).expect("looked up above");
        self.living.ends(pid);
        if process.launcher {
            return;
        }
        if !process.readable {
            self.recorder.lost(Loss::ProcUnreadable, 1);
        }
        if process.traces && exit_code != Some(0) {
            self.recorder.lost(Loss::TracerRefused, 1);
        }
        let end = ProcessEnd {
            upid: process.upid,
            end_ns: Some(now),
            exit_code,
            exit_signal,
            inner_pid: process.status.inner_pid,
            usage,
        };
        self.recorder.record(Record::ProcessEnd(Box::new(end)));
    }

    fn report(&mut self, what: impl Fn(&mut dyn Observer)) {
        for observer in &mut self.observers {
            what(observer.as_mut());
        }
    }

    fn thread_over(&self, upid: Upid, tid: u32, start_ns: u64, end_ns: u64) {
        let thread = ThreadRecord {
            upid,
            tid: Tid(tid),
            start_ns,
            end_ns: Some(end_ns),
        };
        self.recorder.record(Record::Thread(thread));
    }

    #[expect(clippy::too_many_arguments, reason = "the columns of one row")]
    fn start(
        &self,
        upid: Upid,
        pid: u32,
        parent: Option<Upid>,
        prev: Option<Upid>,
        origin: Origin,
        image: &Image,
        environment: Option<Upid>,
        start_ns: u64,
    ) {
        self.recorder
            .record(Record::ProcessStart(Box::new(ProcessStart {
                upid,
                host: self.host,
                pid,
                parent,
                prev,
                origin,
                exe: image.exe.clone(),
                argv: image.argv.clone(),
                cwd: image.cwd.clone(),
                environment,
                start_ns,
            })));
    }
}
