//! Processes that are not traced by ptrace: those of a mount session, and of a run without ptrace.
//!
//! Lifetimes come from the kernel's announcements where those can be had: eBPF programs, or the proc
//! connector with costs from taskstats. Otherwise /proc is read: for a run as a whole at intervals, for a
//! mount session whenever a process uses the mount. Announcements and file requests are joined in one table,
//! and agree because a process's fork and exec are in our queue before it can make a request: before a caller
//! is looked up, the queue is emptied.
//!
//! One rule prevents that processes and flowtrace wait for each other for ever: a thread that answers file
//! requests never reads /proc of a process that may be in an exec, and never waits for a lock whose holder
//! does. A process in an exec holds `exec_update_lock`, which most of its files in /proc take, while it waits
//! for our answer to the close of its close-on-exec descriptors. So /proc is never read with the table
//! locked. The watching thread makes these reads. A thread that answers requests reads only the caller's
//! /proc, when the request is none that an exec makes ([`Effort`]): a process that waits for the answer to an
//! open is not in an exec, nor is another thread of its process past the point at which an exec has ended all
//! others.

mod feed;
mod follow;
mod noted;
mod observations;
mod observed;
mod process;
mod reading;
mod reported;
mod rows;
mod scan;
mod table;
mod unread;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use flowtrace_schema::{HostId, ProcessLayer, Recorder};
use nix::poll::{PollFd, PollFlags, ppoll};

use super::Living;
use super::environment::Wanted;
use super::lifetimes::LeftBehind;
use super::reading::{Image, ProcessStat};
use crate::bpf;
use crate::callers::{Caller, Callers, Effort};
use crate::clock::Clock;
use crate::rings::Rings;
pub(crate) use feed::{Feed, Ready};
pub(crate) use observed::Observers;
use reading::Task;
use scan::Snapshot;
use table::Table;

/// Interval of reading /proc where nothing is announced.
const TICK: Duration = Duration::from_millis(50);
/// Delay of reading events while there are some, so that not each event wakes the reader. Observers without
/// events are called less and less often.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
/// Longest delay for observers without events: the sampler learns of a new thread that much later, which is
/// its own period by default.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// Longest time between two reads of /proc, however many processes there are.
const LONGEST_TICK: Duration = Duration::from_secs(2);
/// The fraction of time that reading /proc may take, as a divisor: 2 % of a CPU.
const SHARE: u32 = 50;
/// Time for which announcements of exits are awaited at the end.
const PATIENCE: Duration = Duration::from_millis(200);

/// The processes that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Those of a command that flowtrace runs, as process `root`: all that it starts.
    Ours {
        /// A child of ours, which waits.
        root: u32,
    },
    /// All that use a mount.
    Anybodys,
}

impl Whose {
    fn are_ours(self) -> bool {
        self != Whose::Anybodys
    }
}

/// Records processes without stopping any.
pub(crate) struct Watched {
    whose: Whose,
    layer: ProcessLayer,
    has_costs: bool,
    /// Readable when something was announced.
    signal: Option<OwnedFd>,
    /// Wakes the watching thread when /proc is to be read. `None`: it reads every tick.
    wakeup: Option<(UnixStream, UnixStream)>,
    state: Mutex<State>,
}

struct State {
    table: Table,
    feed: Option<Feed>,
    /// True if reads that are due will not be made any more.
    is_finished: bool,
}

impl Watched {
    /// Begins to listen, where that is possible, and reads the processes that live. `wanted` selects the
    /// environment variables that are recorded. `feed`: eBPF programs that report already.
    pub(crate) fn start(
        whose: Whose,
        host: HostId,
        clock: Clock,
        recorder: Recorder,
        wanted: Wanted,
        feed: Option<Feed>,
    ) -> Arc<Watched> {
        let is_reported = feed.is_some();
        let feed = feed.or_else(|| Feed::announced().ok());
        let mut table = Table::new(host, clock, recorder, wanted);
        let living = match whose {
            // The eBPF programs report only descendants of the command, and a machine may have thousands of
            // other processes.
            Whose::Ours { root } if is_reported => Some(Snapshot::of_one(root)),
            _ if feed.is_some() || whose.are_ours() => Some(Snapshot::of_all(HashMap::new())),
            _ => None,
        };
        if let Some(living) = living {
            table.scan(&living, false);
        }
        Arc::new(Watched {
            whose,
            layer: match (&feed, whose) {
                (Some(feed), _) => feed.layer(),
                (None, Whose::Ours { .. }) => ProcessLayer::Scan,
                (None, Whose::Anybodys) => ProcessLayer::Requests,
            },
            has_costs: feed.as_ref().is_some_and(Feed::has_costs),
            signal: feed.as_ref().and_then(|feed| feed.signal().ok()),
            wakeup: wakeup().ok(),
            state: Mutex::new(State {
                table,
                feed,
                is_finished: false,
            }),
        })
    }

    /// The source of processes.
    pub(crate) fn layer(&self) -> ProcessLayer {
        self.layer
    }

    /// From now on changes are kept for the observers of [`Watched::watch`].
    pub(crate) fn be_observed(&self) {
        self.state().table.be_observed();
    }

    /// From now on `rings` gets the processes that use io_uring.
    pub(crate) fn report_rings_to(&self, rings: Arc<Rings>) {
        self.state().table.rings = Some(rings);
    }

    /// Programs get no privilege by their files: they run in a user namespace that does not know their owner.
    pub(crate) fn withhold_privilege(&self) {
        self.state().table.withholds_privilege = true;
    }

    /// The recorded processes that live.
    pub(crate) fn living(&self) -> Arc<Living> {
        Arc::clone(&self.state().table.living)
    }

    /// Process `root`, our child that waits, is going to run the command as `image`.
    pub(crate) fn launch(&self, root: u32, image: Image) {
        let stat = ProcessStat::of(root);
        let mut state = self.state();
        state.pump();
        let announced = state.feed.is_some();
        state.table.launch(root, stat, image, announced);
    }

    /// Process `pid`, a child of ours, has ended and will be waited for: the last instant at which it is in
    /// /proc.
    pub(crate) fn about_to_reap(&self, pid: u32) {
        if let Some(stat) = ProcessStat::of(pid) {
            self.state().table.last_words(pid, &stat);
        }
    }

    /// Process `pid` was waited for, with this result.
    pub(crate) fn reaped(&self, pid: u32, wait_status: i32) {
        let mut state = self.state();
        state.pump();
        if state.feed.is_none() {
            let now = state.table.clock.now();
            state.table.ended(pid, Some(wait_status), now, None);
        } else if let Some(process) = state.table.processes.get_mut(&pid) {
            process.reaped = Some(wait_status);
        }
    }

    /// The living recorded processes, as text for the user.
    pub(crate) fn left_behind(&self) -> Vec<LeftBehind> {
        self.read_all();
        let own = std::process::id();
        let recorded = self.state().table.recorded();
        let living = Snapshot::of_known(recorded);
        let state = self.state();
        let processes = &state.table.processes;
        let left = living.living().filter(|pid| {
            let process = processes.get(pid);
            *pid != own && process.is_some_and(|p| p.row.is_some() && p.reaped.is_none())
        });
        let mut left: Vec<_> = left
            .map(|pid| LeftBehind::new(pid, &state.table.image(pid).unwrap_or_default()))
            .collect();
        left.sort_by_key(|process| process.pid);
        left
    }

    /// Records processes until `finished` returns true, which is called every tick and when `wake` is
    /// readable, and reports them to `observers`.
    pub(crate) fn watch(
        &self,
        wake: Option<BorrowedFd<'_>>,
        observers: &mut Observers,
        finished: impl Fn() -> bool,
    ) {
        let mut due = Instant::now() + TICK;
        let mut pause = SHORTEST_PAUSE;
        while !finished() {
            let until = due.min(Instant::now() + pause);
            self.wait(wake, until.saturating_duration_since(Instant::now()));
            pause = match self.report_to(observers) {
                true => SHORTEST_PAUSE,
                false => (pause * 2).min(LONGEST_PAUSE),
            };
            self.read_all();
            if !self.is_announced() {
                let over = self.state().table.ended_unannounced();
                let over = Snapshot::of_known(over);
                self.state().table.reap(&over);
            }
            if Instant::now() >= due {
                let cost = self.tick();
                due = Instant::now() + (cost * SHARE).clamp(TICK, LONGEST_TICK);
            }
        }
        self.finish();
        observers.deliver(self.state().table.take_observations());
    }

    fn wait(&self, wake: Option<BorrowedFd<'_>>, timeout: Duration) {
        let timeout = if self.state().table.has_tasks() {
            Duration::ZERO
        } else {
            timeout.min(TICK)
        };
        let signal = self.signal.as_ref().map(OwnedFd::as_fd);
        let ready = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut ready: Vec<_> = signal.into_iter().chain(wake).map(ready).collect();
        let wakeup = self.wakeup.as_ref().map(|(heard, _)| heard);
        ready.extend(wakeup.map(|heard| PollFd::new(heard.as_fd(), PollFlags::POLLIN)));
        let _ = ppoll(&mut ready, Some(timeout.into()), None);
        let is_rung = ready.last().is_some_and(|last| last.any() == Some(true));
        if let Some(mut heard) = wakeup
            && is_rung
        {
            let _ = heard.read(&mut [0; 64]);
        }
    }

    /// Makes the reads of /proc that are due for the table. Waits for processes in an exec, so no thread that
    /// answers file requests may do this, nor wait for one that does.
    fn read_all(&self) {
        // More reads become due meanwhile, and other work is to be done, too.
        let until = Instant::now() + TICK;
        while Instant::now() < until {
            let task = {
                let mut state = self.state();
                state.pump();
                state.table.next_task()
            };
            match task {
                Some(task) => self.read(&task),
                None => return,
            }
        }
    }

    fn read(&self, task: &Task) {
        let reading = task.read();
        let mut state = self.state();
        state.pump();
        state.table.fill(task, reading);
    }

    /// Wakes the watching thread if a read is due.
    fn ring(&self, state: &State) {
        if state.table.has_tasks()
            && let Some((_, wakeup)) = &self.wakeup
        {
            // A full socket is readable already.
            let _ = (&*wakeup).write(&[0]);
        }
    }

    fn is_announced(&self) -> bool {
        self.state().feed.is_some()
    }

    /// Reads /proc for changes that are not announced; returns the time that this took.
    fn tick(&self) -> Duration {
        let began = Instant::now();
        let (all, recorded) = {
            let mut state = self.state();
            let State { table, feed, .. } = &mut *state;
            match feed {
                Some(feed) => {
                    let has_losses = feed.count_losses(table);
                    feed.sweep(table);
                    (has_losses, !self.has_costs)
                }
                None => (self.whose.are_ours(), !self.whose.are_ours()),
            }
        };
        if all {
            let known = self.state().table.known();
            let seen = Snapshot::of_all(known);
            let mut state = self.state();
            state.pump();
            let records = state.feed.is_none();
            state.table.scan(&seen, records);
        }
        if recorded {
            self.sample_recorded();
        }
        self.read_all();
        began.elapsed()
    }

    fn sample_recorded(&self) {
        let recorded = self.state().table.recorded();
        let seen = Snapshot::of_known(recorded);
        let mut state = self.state();
        state.pump();
        state.table.sample_recorded(&seen);
    }

    fn finish(&self) {
        let deadline = Instant::now() + PATIENCE;
        self.read_all();
        // An exit may be announced a little after the parent could wait for the process.
        while self.is_announced() && self.expects_ends() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
            self.read_all();
        }
        {
            let mut state = self.state();
            let State { table, feed, .. } = &mut *state;
            if let Some(feed) = feed {
                feed.count_losses(table);
                for _ in 0..3 {
                    feed.sweep(table);
                }
            }
        }
        self.sample_recorded();
        let mut state = self.state();
        state.table.finish();
        // Requests and announcements from now on are ignored.
        bpf::close_aside(state.feed.take());
        state.is_finished = true;
    }

    /// True if a recorded process has ended and is still in the table.
    fn expects_ends(&self) -> bool {
        let recorded = self.state().table.recorded();
        let count = recorded.len();
        Snapshot::of_known(recorded).living().count() < count
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while locked")
    }

    /// A caller that was not announced, which waits for our answer outside of an exec.
    fn look_up(&self, tid: u32) -> Option<Caller> {
        let pid = super::reading::thread_group(tid).filter(|&pid| pid != std::process::id())?;
        let stat = ProcessStat::of(pid)?;
        let argv = super::reading::arguments(pid);
        let mut state = self.state();
        let State { table, feed, .. } = &mut *state;
        let known = table.processes.get(&pid);
        if known.is_some_and(|process| !process.started_at(stat.start_ticks)) {
            table.is_over(pid, None);
        }
        if !table.processes.contains_key(&pid) {
            table.found(pid, &stat);
        }
        if let Some(process) = table.processes.get_mut(&pid)
            && process.row.is_none()
        {
            process.start_code = stat.start_code;
        }
        table.learn_thread(pid, tid);
        // An exec changes the arguments, and is not announced where there are no announcements.
        if feed.is_none()
            && argv.is_some()
            && let Some(image) = table.image(pid)
            && image.argv != argv
            && image.argv.is_some()
        {
            if table.is_launching(pid) {
                table.launched();
            } else {
                table.executed_unannounced(pid, &stat);
            }
        }
        self.caller(state, (pid, tid), true)
    }

    /// Thread `tid` of process `pid`, which is in the table. `may_read`: its /proc may be read.
    fn caller(
        &self,
        mut state: MutexGuard<'_, State>,
        (pid, tid): (u32, u32),
        may_read: bool,
    ) -> Option<Caller> {
        let caller = state.table.caller(pid, tid)?;
        let task = state.table.task_of(pid).filter(|_| may_read);
        let is_finished = state.is_finished;
        self.ring(&state);
        drop(state);
        // It may be gone before the watching thread reads it.
        if let Some(task) = task {
            self.read(&task.of_itself());
        }
        if is_finished {
            self.state().table.release_all();
        }
        Some(caller)
    }
}

impl State {
    fn pump(&mut self) {
        if let Some(feed) = &mut self.feed {
            feed.pump(&mut self.table);
        }
    }
}

/// A pair of sockets: the first is readable after a write to the second.
fn wakeup() -> io::Result<(UnixStream, UnixStream)> {
    let (heard, wakeup) = UnixStream::pair()?;
    heard.set_nonblocking(true)?;
    wakeup.set_nonblocking(true)?;
    Ok((heard, wakeup))
}

impl Callers for Watched {
    fn resolve(&self, tid: u32, effort: Effort) -> Option<Caller> {
        if tid == 0 {
            return None;
        }
        let mut state = self.state();
        state.pump();
        let announced = state.feed.is_some();
        let may_read = effort != Effort::Tables;
        let pid = state.table.process_of(tid);
        if pid == Some(std::process::id()) {
            return None;
        }
        // Without announcements only a read shows if the process is still the same.
        if let Some(pid) = pid
            && (announced || effort != Effort::Fresh)
            && (announced || state.table.is_recorded(pid))
        {
            // Its id may be another process's by now, whose /proc may not be read here.
            if !may_read && !announced && state.table.has_ended(pid) {
                return None;
            }
            return self.caller(state, (pid, tid), may_read);
        }
        self.ring(&state);
        drop(state);
        may_read.then(|| self.look_up(tid)).flatten()
    }
}

#[cfg(test)]
mod tests;
