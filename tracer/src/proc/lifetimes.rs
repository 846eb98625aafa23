//! Follows a tree of processes by ptrace events: fork, vfork, clone, exec, exit, so that the cost
//! is per process, not per call. Of system calls only those stop that a filter picks
//! ([`super::topology`]).
//!
//! ptrace reports everything about one task in order and loses nothing, but the first stop of a
//! new task and its parent's fork event arrive in either order. A task whose fork event has not
//! come yet therefore waits in its stop: none ever runs unidentified.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use flowtrace_schema::{
    HostId, Loss, Origin, ProcessEnd, ProcessStart, Record, Recorder, Text, ThreadRecord, Tid,
    Upid, quote_argv,
};

mod books;
mod process;

use books::Life;
use process::{Process, Task};

use super::observer::{Observer, Tracee};
use super::ptrace::{self, Event, Stop, SystemCall};
use super::reading::{self, Image, ProcessCost, ThreadCost};
use super::topology::Call;
use super::{Living, Upids};
use crate::callers::TaskTable;
use crate::clock::Clock;

/// How the first process of the tree ended.
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

/// What happens to the first process, for whoever started it.
pub(crate) trait Watcher {
    /// Job control stopped it, by this signal.
    fn stopped(&mut self, signal: i32);
    /// It ended, and these other processes of the tree still run.
    fn ended(&mut self, end: End, others: Vec<LeftBehind>);
}

/// A tree of processes under trace.
pub(crate) struct Lifetimes {
    host: HostId,
    clock: Clock,
    recorder: Recorder,
    upids: Arc<Upids>,
    table: Arc<TaskTable>,
    living: Arc<Living>,
    root: u32,
    /// Whether set-user-id programs run without their privilege, for want of ours.
    unprivileged: bool,
    tasks: HashMap<u32, Task>,
    processes: HashMap<u32, Process>,
    /// Tasks that reported before their parent's fork event, with what they reported.
    early: HashMap<u32, Vec<Event>>,
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
            unprivileged: !nix::unistd::geteuid().is_root(),
            tasks: HashMap::from([(root, task)]),
            processes: HashMap::from([(root, process)]),
            early: HashMap::new(),
            observers: Vec::new(),
        }
    }

    /// Tells `observer`, too, from now on.
    pub(crate) fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observers.push(observer);
    }

    /// Follows the tree until its last process has ended.
    ///
    /// # Errors
    /// When waiting itself fails, which it does only if this process has no children at all.
    pub(crate) fn follow(mut self, watcher: &mut dyn Watcher) -> io::Result<Option<End>> {
        let mut end = None;
        while let Some((tid, event)) = ptrace::wait()? {
            let arrived = self.clock.now();
            if !self.tasks.contains_key(&tid) {
                self.early.entry(tid).or_default().push(event);
                continue;
            }
            let root_end = match (tid == self.root, event) {
                (true, Event::Exited(code)) => Some(End::Exited(code)),
                (true, Event::Killed(signal)) => Some(End::Killed(signal)),
                (true, Event::Stopped(Stop::Group(signal))) => {
                    self.handle(tid, event, arrived);
                    watcher.stopped(signal);
                    continue;
                }
                _ => None,
            };
            self.handle(tid, event, arrived);
            if let Some(root_end) = root_end {
                end = Some(root_end);
                watcher.ended(root_end, self.left_behind());
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

    fn left_behind(&self) -> Vec<LeftBehind> {
        let mut left: Vec<_> = self
            .processes
            .iter()
            .map(|(&pid, process)| {
                let argv = process.image.argv.as_deref().unwrap_or_default();
                let argv = argv.strip_suffix(b"\0").unwrap_or(argv);
                let command = quote_argv(argv.split(|&b| b == 0)).text().into_owned();
                LeftBehind { pid, command }
            })
            .collect();
        left.sort_by_key(|process| process.pid);
        left
    }

    fn handle(&mut self, tid: u32, event: Event, arrived: u64) {
        match event {
            Event::Exited(code) => self.over(tid, Some(code), None),
            Event::Killed(signal) => self.over(tid, None, Some(signal)),
            Event::Stopped(stop) => {
                let mut signal = 0;
                self.job_control(tid, matches!(stop, Stop::Group(_)), arrived);
                let mut to_return = false;
                match stop {
                    Stop::Signal(delivered) => signal = delivered,
                    Stop::Group(_) => {
                        // Fails only when the task is gone, which the next event will tell.
                        let _ = ptrace::listen(tid);
                        return;
                    }
                    Stop::Trap => {}
                    Stop::Forked { by_clone } => self.forked(tid, by_clone, arrived),
                    Stop::Exec => self.exec(tid, arrived),
                    Stop::Exit => self.exiting(tid, arrived),
                    Stop::Call => to_return = self.called(tid, arrived),
                    Stop::Returned => self.returned(tid, arrived),
                }
                let process = self.tasks.get(&tid).map(|task| task.process);
                if let Some(process) = process.and_then(|pid| self.processes.get_mut(&pid)) {
                    process.tracer_ns += self.clock.now().saturating_sub(arrived);
                }
                let _ = if to_return {
                    ptrace::resume_to_return(tid)
                } else {
                    ptrace::resume(tid, signal)
                };
            }
        }
    }

    /// Tells of a task that job control stops, or has stopped before and lets go on.
    fn job_control(&mut self, tid: u32, stops: bool, now: u64) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        if std::mem::replace(&mut task.stopped, stops) == stops {
            return;
        }
        let pid = task.process;
        if let Some(upid) = self.processes.get(&pid).map(|process| process.upid) {
            let thread = Tracee { tid, pid, upid };
            self.tell(|observer| match stops {
                true => observer.stopped(thread, now),
                false => observer.continued(thread, now),
            });
        }
    }

    /// Task `tid` made a new task, which is stopped or about to stop.
    fn forked(&mut self, tid: u32, by_clone: bool, now: u64) {
        let Ok(child) = ptrace::event_message(tid) else {
            return;
        };
        let parent = self.tasks[&tid].process;
        let thread = by_clone && reading::thread_group(child) == Some(parent);
        let task = Task {
            process: if thread { parent } else { child },
            start_ns: now,
            before: ThreadCost::default(),
            counted: false,
            life: Life::new(now),
            stopped: false,
        };
        // A pid comes back only after its last owner was reaped, so nothing is overwritten here.
        self.tasks.insert(child, task);
        let Some(creator) = self.processes.get_mut(&parent) else {
            return;
        };
        if thread {
            creator.threads += 1;
            creator.live_threads += 1;
            let upid = creator.upid;
            self.table.set(child, upid, false);
            let thread = Tracee {
                tid: child,
                pid: parent,
                upid,
            };
            self.tell(|observer| observer.thread_began(thread, now));
        } else {
            let upid = self.upids.next();
            let image = Arc::clone(&creator.image);
            let parent_upid = Some(creator.upid);
            self.start(upid, child, parent_upid, None, Origin::Fork, &image, now);
            self.processes
                .insert(child, Process::new(upid, parent_upid, image));
            self.living.begins(child);
            self.table.set(child, upid, true);
            if let Some(creator) = self.processes.get(&parent).map(|creator| creator.upid) {
                let parent = Tracee {
                    tid,
                    pid: parent,
                    upid: creator,
                };
                let child = Tracee::first_of(child, upid);
                self.tell(|observer| observer.forked(parent, child, now));
            }
        }
        for event in self.early.remove(&child).into_iter().flatten() {
            self.handle(child, event, now);
        }
    }

    /// Process `pid` runs a new program; all its threads but one are gone, and that one has the
    /// process's id now whatever it had before.
    fn exec(&mut self, pid: u32, now: u64) {
        let former = ptrace::event_message(pid).unwrap_or(pid);
        if former != pid
            && let Some(mut task) = self.tasks.remove(&former)
        {
            self.table.clear(former);
            if let Some(upid) = self.processes.get(&pid).map(|p| p.upid) {
                self.thread_over(upid, former, task.start_ns, now);
            }
            task.counted = false;
            self.tasks.insert(pid, task);
        }
        let Some(task) = self.tasks.get_mut(&pid) else {
            return;
        };
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };

        let (cost, _) = ThreadCost::of(pid, pid).unwrap_or_default();
        process.cost += cost - task.before;
        task.before = cost;
        process.books.read(pid, pid, &mut task.life);
        process.books.next_image(&mut task.life, now);
        let total = ProcessCost::of(pid);
        process.total = total;
        let started = !process.launcher;
        let before = Tracee::first_of(pid, process.upid);
        let usage = process.usage();
        if started {
            let end = ProcessEnd {
                upid: process.upid,
                end_ns: Some(now),
                exit_code: None,
                exit_signal: None,
                usage,
            };
            self.recorder.record(Record::ProcessEnd(Box::new(end)));
        }

        let image = Arc::new(Image::of(pid));
        let (prev, upid) = if started {
            (Some(process.upid), self.upids.next())
        } else {
            (None, process.upid)
        };
        let parent = process.parent;
        *process = Process {
            before: total.unwrap_or_default(),
            readable: image.is_complete(),
            ..Process::new(upid, parent, Arc::clone(&image))
        };
        self.table.set(pid, upid, true);
        self.start(upid, pid, parent, prev, Origin::Exec, &image, now);
        let setuid = |exe: &Text| {
            fs::metadata(exe.as_os_str()).is_ok_and(|m| m.permissions().mode() & 0o6000 != 0)
        };
        if self.unprivileged && image.exe.as_ref().is_some_and(setuid) {
            self.recorder.lost(Loss::SetuidExec, 1);
        }
        let tracee = Tracee::first_of(pid, upid);
        if started {
            self.tell(|observer| observer.image_over(before, &usage, true, now));
        }
        self.tell(|observer| observer.executed(tracee, prev, now));
    }

    /// A thread makes a system call of the filter's. Whether to wait for its return.
    fn called(&mut self, tid: u32, now: u64) -> bool {
        let Some(SystemCall::Entry { code, arguments }) = ptrace::system_call(tid) else {
            return false;
        };
        let (Some(tracee), Some(call)) = (self.tracee(tid), Call::new(code, arguments)) else {
            return false;
        };
        let mut wanted = false;
        for observer in &mut self.observers {
            wanted |= observer.called(tracee, call, now);
        }
        wanted
    }

    fn returned(&mut self, tid: u32, now: u64) {
        if let (Some(SystemCall::Return(result)), Some(tracee)) =
            (ptrace::system_call(tid), self.tracee(tid))
        {
            self.tell(|observer| observer.returned(tracee, result, now));
        }
    }

    fn tracee(&self, tid: u32) -> Option<Tracee> {
        let pid = self.tasks.get(&tid)?.process;
        let upid = self.processes.get(&pid)?.upid;
        Some(Tracee { tid, pid, upid })
    }

    /// Task `tid` is about to exit: the last moment at which its costs can be read.
    fn exiting(&mut self, tid: u32, now: u64) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        let pid = task.process;
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        match ThreadCost::of(pid, tid) {
            Some((cost, max_rss_bytes)) => {
                process.cost += cost - task.before;
                process.max_rss_bytes = max_rss_bytes.or(process.max_rss_bytes);
            }
            None => process.readable = false,
        }
        task.counted = true;
        process.live_threads = process.live_threads.saturating_sub(1);
        let last = process.live_threads == 0;
        process.books.read(pid, tid, &mut task.life);
        if last {
            process.total = ProcessCost::of(pid);
        } else {
            process.books.close(&mut task.life, self.clock.now());
        }
        let upid = process.upid;
        self.tell(|observer| observer.exiting(Tracee { tid, pid, upid }, last, now));
    }

    /// The wait status of task `tid` was reaped: a thread, or with it the whole process.
    fn over(&mut self, tid: u32, exit_code: Option<i32>, exit_signal: Option<i32>) {
        let now = self.clock.now();
        let Some(mut task) = self.tasks.remove(&tid) else {
            return;
        };
        self.table.clear(tid);
        let pid = task.process;
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.books.close(&mut task.life, now);
        let upid = process.upid;
        if tid != pid {
            if !task.counted {
                process.live_threads = process.live_threads.saturating_sub(1);
            }
            self.tell(|observer| observer.ended(Tracee { tid, pid, upid }, now));
            self.thread_over(upid, tid, task.start_ns, now);
            return;
        }
        let usage = process.usage();
        let tracee = Tracee { tid, pid, upid };
        self.tell(|observer| observer.image_over(tracee, &usage, false, now));
        self.tell(|observer| observer.ended(tracee, now));
        let process = self.processes.remove(&pid).expect("looked up above");
        self.living.ends(pid);
        if process.launcher {
            return;
        }
        if !process.readable {
            self.recorder.lost(Loss::ProcUnreadable, 1);
        }
        let end = ProcessEnd {
            upid: process.upid,
            end_ns: Some(now),
            exit_code,
            exit_signal,
            usage,
        };
        self.recorder.record(Record::ProcessEnd(Box::new(end)));
    }

    fn tell(&mut self, what: impl Fn(&mut dyn Observer)) {
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
                start_ns,
            })));
    }
}
