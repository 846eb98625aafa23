//! Learns of processes from the file requests they make: the way of a mount session, where the
//! workflow was not started here.
//!
//! A process is known by (pid, start time), so a recycled pid is a new one. An exec is noticed at
//! the next request that opens or changes something. What never makes a request is never seen.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use flowtrace_schema::{
    HostId, Loss, Origin, ProcessEnd, ProcessStart, Record, Recorder, Tid, Upid, Usage,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::reading::{self, Image, ProcessStat};
use super::{Upids, open_pidfd};
use crate::callers::{Caller, Callers};
use crate::clock::Clock;

/// How often ended processes are looked for.
const REAP: Duration = Duration::from_millis(50);

/// Identifies callers through /proc.
pub(crate) struct Requests {
    host: HostId,
    clock: Clock,
    recorder: Recorder,
    upids: Upids,
    tasks: RwLock<HashMap<u32, Task>>,
    processes: Mutex<HashMap<u32, Process>>,
}

#[derive(Clone, Copy)]
struct Task {
    caller: Caller,
    pid: u32,
}

struct Process {
    upid: Upid,
    start_ticks: u64,
    argv: Option<Vec<u8>>,
    /// Becomes readable when the process ends; `None` on kernels before 5.3.
    pidfd: Option<OwnedFd>,
}

impl Requests {
    pub(crate) fn new(host: HostId, clock: Clock, recorder: Recorder) -> Arc<Self> {
        Arc::new(Requests {
            host,
            clock,
            recorder,
            upids: Upids::new(),
            tasks: RwLock::default(),
            processes: Mutex::default(),
        })
    }

    /// Records the ends of processes until `finished` says so.
    pub(crate) fn watch_ends(&self, finished: impl Fn() -> bool) {
        while !finished() {
            std::thread::sleep(REAP);
            self.reap();
        }
        self.reap();
        let left = self.processes.lock().expect("no panic while locked").len();
        self.recorder.lost(Loss::ExitUnseen, left as u64);
    }

    fn reap(&self) {
        let mut processes = self.processes.lock().expect("no panic while locked");
        let now = self.clock.now();
        let mut ended = Vec::new();
        processes.retain(|&pid, process| {
            let over = process.pidfd.as_ref().map_or_else(
                || start_ticks(pid).map(|(ticks, _)| ticks) != Some(process.start_ticks),
                |pidfd| {
                    let mut poll_fd = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
                    poll(&mut poll_fd, PollTimeout::ZERO) == Ok(1)
                },
            );
            if over {
                ended.push(pid);
                self.end(process.upid, now);
            }
            !over
        });
        drop(processes);
        if !ended.is_empty() {
            let mut tasks = self.tasks.write().expect("no panic while locked");
            tasks.retain(|_, task| !ended.contains(&task.pid));
        }
    }

    fn end(&self, upid: Upid, end_ns: u64) {
        let (exit_code, exit_signal) = (None, None);
        let usage = Usage::default();
        let end = ProcessEnd {
            upid,
            end_ns: Some(end_ns),
            exit_code,
            exit_signal,
            inner_pid: None,
            usage,
        };
        self.recorder.record(Record::ProcessEnd(Box::new(end)));
    }

    fn identify(&self, tid: u32) -> Option<Task> {
        let pid = reading::thread_group(tid)?;
        let (start_ticks, parent_pid) = start_ticks(pid)?;
        let now = self.clock.now();
        let argv = fs::read(format!("/proc/{pid}/cmdline")).ok();
        let mut processes = self.processes.lock().expect("no panic while locked");
        let parent = processes.get(&parent_pid).map(|parent| parent.upid);
        let known = processes.get(&pid).filter(|p| p.start_ticks == start_ticks);
        let upid = match known {
            Some(process) if process.argv == argv || argv.is_none() => process.upid,
            known => {
                let prev = known.map(|process| process.upid);
                if let Some(ended) = processes.remove(&pid) {
                    self.end(ended.upid, now);
                }
                let upid = self.upids.next();
                let image = Image::of(pid);
                if !image.is_complete() {
                    self.recorder.lost(Loss::ProcUnreadable, 1);
                }
                self.recorder.lost(Loss::SeenLate, 1);
                self.recorder
                    .record(Record::ProcessStart(Box::new(ProcessStart {
                        upid,
                        host: self.host,
                        pid,
                        parent,
                        prev,
                        origin: if prev.is_some() {
                            Origin::Exec
                        } else {
                            Origin::Seen
                        },
                        exe: image.exe,
                        argv: image.argv,
                        cwd: image.cwd,
                        environment: None,
                        start_ns: now,
                    })));
                let pidfd = open_pidfd(pid);
                processes.insert(
                    pid,
                    Process {
                        upid,
                        start_ticks,
                        argv,
                        pidfd,
                    },
                );
                upid
            }
        };
        let caller = Caller {
            upid,
            tid: (tid != pid).then_some(Tid(tid)),
        };
        Some(Task { caller, pid })
    }
}

impl Callers for Requests {
    fn resolve(&self, tid: u32, fresh: bool) -> Option<Caller> {
        if tid == 0 {
            return None;
        }
        let known = self
            .tasks
            .read()
            .expect("no panic while locked")
            .get(&tid)
            .copied();
        if let Some(task) = known
            && !fresh
        {
            return Some(task.caller);
        }
        let task = self.identify(tid)?;
        self.tasks
            .write()
            .expect("no panic while locked")
            .insert(tid, task);
        Some(task.caller)
    }
}

/// Start time in ticks since boot, and parent, of process `pid`.
fn start_ticks(pid: u32) -> Option<(u64, u32)> {
    start_in(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The same from what the file holds.
pub(crate) fn start_in(stat: &[u8]) -> Option<(u64, u32)> {
    let stat = ProcessStat::parse(stat)?;
    Some((stat.start_ticks, stat.parent))
}
