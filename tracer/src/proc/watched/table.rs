//! The live processes of the machine, recorded or not: the one place that all sources update. Nothing in it
//! reads /proc (see [`super::unread`]).
//!
//! Recorded are processes that were asked for (the command of a run, users of a mount), their descendants,
//! and their ancestors. Of other processes the table keeps what may be needed to record them.

use std::collections::HashMap;
use std::sync::Arc;

use flowtrace_schema::{HostId, Loss, Origin, Recorder, Tid, Upid};

use super::observations::{Observation, What};
use super::process::{End, Process, Row};
use super::reading::{GENERATIONS, KTHREADD, Unread, end_without_costs};
use crate::callers::Caller;
use crate::clock::Clock;
use crate::linux::tick_ns;
use crate::proc::costs::Costs;
use crate::proc::environment::{OfLast, Variables, Wanted};
use crate::proc::observer::Tracee;
use crate::proc::reading::{Image, ProcessStat};
use crate::proc::taskstats::ThreadRecord as ThreadEnd;
use crate::proc::tracepoints::BpfSnapshot;
use crate::proc::{Living, PidFd, Upids};
use crate::rings::Rings;

/// The first process and the one that makes the kernel's threads are parents of all; being their child has no
/// meaning.
const INIT: u32 = 1;
/// Images with a shorter life are not read again when they end by an exec.
const BRIEF_NS: u64 = 20_000_000;

pub(super) struct Table {
    pub(super) host: HostId,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
    pub(super) wanted: Wanted,
    pub(super) variables: OfLast<Variables>,
    pub(super) upids: Upids,
    pub(super) living: Arc<Living>,
    pub(super) processes: HashMap<u32, Process>,
    /// Threads beside the first of their process, by id.
    pub(super) threads: HashMap<u32, Thread>,
    /// The command of a run until its exec is announced, and the image that it will have.
    pub(super) launching: Option<Launching>,
    /// Rows whose image is to be read.
    pub(super) unread: HashMap<Upid, Unread>,
    /// Rows of which no task was given out yet.
    pub(super) due: Vec<Upid>,
    pub(super) rings: Option<Arc<Rings>>,
    /// True if programs get no privilege by their files.
    pub(super) withholds_privilege: bool,
    /// Changes for observers. `None`: there are no observers.
    pub(super) observations: Option<Vec<Observation>>,
}

pub(super) struct Launching {
    pub(super) root: u32,
    pub(super) image: Arc<Image>,
    /// True if its row began at the launch.
    pub(super) begun: bool,
}

pub(super) struct Thread {
    pub(super) pid: u32,
    pub(super) start_ns: u64,
}

impl Table {
    /// An empty table; `wanted` selects the environment variables that are recorded.
    pub(super) fn new(host: HostId, clock: Clock, recorder: Recorder, wanted: Wanted) -> Table {
        Table {
            wanted,
            variables: OfLast::default(),
            host,
            clock,
            recorder,
            upids: Upids::new(),
            living: Arc::default(),
            processes: HashMap::new(),
            threads: HashMap::new(),
            launching: None,
            unread: HashMap::new(),
            due: Vec::new(),
            rings: None,
            withholds_privilege: false,
            observations: None,
        }
    }

    /// Process `root` will run the command, as `image`. Its row begins with the exec, or now where none will
    /// be announced. `stat` is its state while it waits.
    pub(super) fn launch(
        &mut self,
        root: u32,
        stat: Option<ProcessStat>,
        image: Image,
        announced: bool,
    ) {
        let now = self.clock.now();
        let ticks = stat.map_or(0, |stat| stat.start_ticks);
        let parent = std::process::id();
        let image = Arc::new(image);
        let mut process = Process::new(parent, ticks, Origin::Exec, now);
        process.followed = true;
        process.start_code = stat.map_or(0, |stat| stat.start_code);
        process.row = Some(Row {
            upid: self.upids.next(),
            parent: None,
            prev: None,
            image: Arc::clone(&image),
            environment: None,
            awaits: None,
            pidfd: PidFd::open(root),
        });
        self.living.begins(root);
        if !announced {
            self.begin(&process, root);
        }
        self.launching = Some(Launching {
            root,
            image,
            begun: !announced,
        });
        self.processes.insert(root, process);
    }

    /// True if process `pid` is the command, and its exec was not seen yet.
    pub(super) fn is_launching(&self, pid: u32) -> bool {
        self.launching.as_ref().is_some_and(|of| of.root == pid)
    }

    /// The exec of the command was seen.
    pub(super) fn launched(&mut self) {
        self.launching = None;
    }

    pub(super) fn is_followed(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|p| p.followed)
    }

    pub(super) fn is_recorded(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|p| p.row.is_some())
    }

    /// The process of thread `tid`, if it is known here.
    pub(super) fn process_of(&self, tid: u32) -> Option<u32> {
        if self.processes.contains_key(&tid) {
            return Some(tid);
        }
        self.threads.get(&tid).map(|thread| thread.pid)
    }

    /// Thread `tid` is one of process `pid`.
    pub(super) fn learn_thread(&mut self, pid: u32, tid: u32) {
        let now = self.clock.now();
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if tid != pid && !self.threads.contains_key(&tid) {
            process.unlisted_threads = process.unlisted_threads.saturating_sub(1);
            self.threads.insert(tid, Thread { pid, start_ns: now });
        }
    }

    /// Process `pid` was found in /proc.
    pub(super) fn found(&mut self, pid: u32, stat: &ProcessStat) {
        if stat.is_zombie {
            return;
        }
        let boot_ns = stat.start_ticks.saturating_mul(tick_ns());
        let start_ns = self.clock.at_boot(boot_ns).min(self.clock.now());
        let mut process = Process::new(stat.parent, stat.start_ticks, Origin::Seen, start_ns);
        process.live_threads = stat.threads.max(1);
        process.threads = process.live_threads;
        process.unlisted_threads = stat.threads.saturating_sub(1);
        process.sampled = Some(stat.cost());
        process.followed = self.heirs(stat.parent);
        process.start_code = stat.start_code;
        self.processes.insert(pid, process);
    }

    /// True if children of `parent` are recorded. Orphans of a followed process become our children where we
    /// run a command.
    fn heirs(&self, parent: u32) -> bool {
        let adopted = parent == std::process::id();
        adopted || (parent != INIT && self.is_followed(parent))
    }

    /// A process was forked; `snapshot` is that of its maker, if known.
    pub(super) fn forked(
        &mut self,
        parent: u32,
        child: u32,
        snapshot: Option<Box<BpfSnapshot>>,
        monotonic_ns: u64,
    ) {
        let at = self.clock.at(monotonic_ns);
        if self.is_launching(child) {
            return;
        }
        if self.processes.contains_key(&child) {
            // The end of the former owner of this pid was lost, or is announced late.
            self.ended(child, None, at, None);
        }
        let ticks = Clock::boot_of(monotonic_ns) / tick_ns();
        let mut process = Process::new(parent, ticks, Origin::Fork, at);
        process.followed = parent != INIT && self.is_followed(parent);
        let creator = self.processes.get(&parent);
        process.image = creator.and_then(|creator| creator.image.clone());
        let creator = creator.and_then(|creator| creator.row.as_ref());
        if process.followed
            && let Some(creator) = creator
        {
            let awaits = creator.awaits;
            let upid = self.upids.next();
            // The thread that forks: the descriptors that it changed itself are certain.
            let maker = Tracee {
                tid: snapshot.as_ref().map_or(parent, |snapshot| snapshot.tid),
                ..Tracee::first_of(parent, creator.upid)
            };
            if let Some(rings) = &self.rings {
                rings.inherit(creator.upid, upid);
            }
            process.row = Some(Row {
                upid,
                parent: Some(creator.upid),
                prev: None,
                image: Arc::clone(&creator.image),
                environment: creator.environment,
                awaits,
                pidfd: None,
            });
            if let Some(row) = awaits {
                self.inherit(row, child);
            }
            self.living.begins(child);
            self.begin(&process, child);
            self.note(
                Tracee::first_of(child, upid),
                at,
                What::Forked(maker, snapshot),
            );
        }
        self.processes.insert(child, process);
    }

    pub(super) fn thread_began(&mut self, pid: u32, tid: u32, monotonic_ns: u64) {
        let start_ns = self.clock.at(monotonic_ns);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.live_threads += 1;
            process.threads += 1;
            self.threads.insert(tid, Thread { pid, start_ns });
        }
        if let Some(thread) = self.tracee(tid) {
            self.note(thread, start_ns, What::ThreadBegan);
        }
    }

    /// Process `pid` runs a new program. `ended` are the costs of its threads that are over.
    pub(super) fn executed(&mut self, pid: u32, monotonic_ns: u64, ended: &Costs) {
        let at = self.clock.at(monotonic_ns);
        let planned = self.launching.take_if(|of| of.root == pid);
        let Some(mut process) = self.processes.remove(&pid) else {
            return;
        };
        if process.live_threads > 1 || process.unlisted_threads > 0 {
            self.threads_over(pid, process.row.as_ref().map(|row| row.upid), at);
            process.live_threads = 1;
            process.unlisted_threads = 0;
        }
        if let Some(planned) = planned {
            process.start_ns = at;
            if let Some(row) = &mut process.row {
                row.awaits = Some(row.upid);
                row.image = Arc::clone(&planned.image);
                self.await_image(row.upid, pid, Image::clone(&planned.image));
                self.begin(&process, pid);
            }
            self.processes.insert(pid, process);
            return;
        }
        let brief = at.saturating_sub(process.start_ns) < BRIEF_NS;
        // The costs of the former image can be read until the next one has used something.
        let previous = process
            .row
            .as_ref()
            .filter(|row| row.awaits.is_none() && !brief);
        let previous = previous.map(|row| end_without_costs(row.upid, at.max(process.start_ns)));
        if previous.is_none() {
            self.end(&mut process, pid, End::Exec, at, None);
        }
        (process.origin, process.start_ns) = (Origin::Exec, at);
        process.start_code = 0;
        if let Some(row) = &mut process.row {
            let upid = self.upids.next();
            *row = Row {
                upid,
                parent: row.parent,
                prev: Some(row.upid),
                awaits: Some(upid),
                image: Arc::default(),
                environment: None,
                pidfd: row.pidfd.take(),
            };
            self.await_image(upid, pid, Image::default());
            if previous.is_some() {
                self.await_costs(upid, *ended, previous);
            }
            self.begin(&process, pid);
        }
        self.processes.insert(pid, process);
    }

    /// A thread ended; the last one of a process ends the process. `total` are the costs of all its threads.
    pub(super) fn thread_ended(
        &mut self,
        (pid, tid): (u32, u32),
        monotonic_ns: u64,
        wait_status: i32,
        total: Option<&Costs>,
    ) {
        let at = self.clock.at(monotonic_ns);
        let mut since = None;
        let known = if tid == pid {
            true
        } else if let Some(thread) = self.threads.remove(&tid) {
            since = Some(thread.start_ns);
            let upid = self.processes.get(&pid).and_then(|p| p.row.as_ref());
            if let Some(upid) = upid.map(|row| row.upid) {
                self.thread_row(upid, tid, thread.start_ns, at);
                self.note(Tracee { tid, pid, upid }, at, What::Ended);
            }
            true
        } else {
            false
        };
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if !known {
            if process.unlisted_threads == 0 {
                // A thread that an exec ended.
                return;
            }
            process.unlisted_threads -= 1;
        }
        process.lived(since, at);
        process.first_is_over |= tid == pid;
        process.wait_status = Some(wait_status);
        process.live_threads = process.live_threads.saturating_sub(1);
        if process.live_threads == 0 {
            self.ended(pid, Some(wait_status), at, total);
        }
    }

    /// Process `pid` is over.
    pub(super) fn ended(
        &mut self,
        pid: u32,
        wait_status: Option<i32>,
        at: u64,
        total: Option<&Costs>,
    ) {
        let Some(mut process) = self.processes.remove(&pid) else {
            return;
        };
        if process.live_threads > 0 {
            self.threads_over(pid, process.row.as_ref().map(|row| row.upid), at);
        }
        let wait_status = process
            .reaped
            .or(wait_status)
            .or_else(|| process.row.as_ref()?.pidfd.as_ref()?.wait_status())
            .or(process.wait_status);
        self.end(&mut process, pid, End::Exit(wait_status), at, total);
    }

    /// Records process `pid`, which is in the table, and its ancestors as far as they are known.
    pub(super) fn record(&mut self, pid: u32) -> Option<Upid> {
        self.record_within(pid, GENERATIONS)
    }

    fn record_within(&mut self, pid: u32, generations: usize) -> Option<Upid> {
        let process = self.processes.get(&pid)?;
        if let Some(row) = &process.row {
            return Some(row.upid);
        }
        let (parent_pid, mut start_ns) = (process.parent, process.start_ns);
        let upid = self.upids.next();
        let is_ancestor = parent_pid > KTHREADD && parent_pid != std::process::id();
        let is_unknown = is_ancestor && !self.processes.contains_key(&parent_pid);
        let parent = if is_ancestor && generations > 0 {
            // A younger process is not the parent but has got its pid. A process found in /proc may seem to
            // have started up to a tick too early.
            let born = self.processes.get(&parent_pid).map(|p| p.start_ns);
            match born.filter(|&born| born <= start_ns + 2 * tick_ns()) {
                Some(born) => {
                    start_ns = start_ns.max(born);
                    self.record_within(parent_pid, generations - 1)
                }
                None => None,
            }
        } else {
            None
        };
        let mut process = self.processes.remove(&pid)?;
        let image = process.image.clone().filter(|_| !is_unknown);
        let awaits = image.is_none().then_some(upid);
        if awaits.is_some() {
            self.await_image(upid, pid, Image::default());
        }
        if is_unknown {
            self.await_ancestors(upid, parent_pid);
        }
        process.start_ns = start_ns;
        if process.origin == Origin::Seen {
            self.recorder.lost(Loss::SeenLate, 1);
            if process.start_ns == 0 {
                self.await_costs(upid, Costs::default(), None);
            }
        }
        process.row = Some(Row {
            upid,
            parent,
            prev: None,
            image: image.unwrap_or_default(),
            environment: None,
            awaits,
            pidfd: PidFd::open(pid),
        });
        self.living.begins(pid);
        self.begin(&process, pid);
        self.processes.insert(pid, process);
        Some(upid)
    }

    /// Thread `tid` of process `pid` uses a mount: the process is recorded, and its descendants.
    pub(super) fn caller(&mut self, pid: u32, tid: u32) -> Option<Caller> {
        let upid = self.record(pid)?;
        let process = self.processes.get_mut(&pid)?;
        process.followed = pid != INIT;
        Some(Caller {
            upid,
            tid: (tid != pid).then_some(Tid(tid)),
        })
    }

    /// Only the record of the costs of process `pid` was received: its end was not announced, nor perhaps its
    /// begin.
    pub(super) fn ended_by_record(&mut self, pid: u32, record: &ThreadEnd, total: &Costs) {
        let now = self.clock.now();
        if !self.processes.contains_key(&pid) {
            if !self.heirs(record.parent) {
                return;
            }
            let Some(parent) = self.processes.get(&record.parent) else {
                return;
            };
            let start_ns = now.saturating_sub(record.lived_us.saturating_mul(1000));
            let mut process = Process::new(record.parent, 0, Origin::Seen, start_ns);
            let parent = parent.row.as_ref().map(|row| row.upid);
            let upid = self.upids.next();
            process.row = Some(Row {
                upid,
                parent,
                prev: None,
                image: Arc::default(),
                environment: None,
                awaits: Some(upid),
                pidfd: None,
            });
            self.await_image(upid, pid, Image::default());
            self.begin(&process, pid);
            self.processes.insert(pid, process);
        }
        self.name(pid, &record.name);
        self.ended(pid, record.wait_status, now, Some(total));
    }
}
