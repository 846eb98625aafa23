//! Processes that nobody holds by ptrace: those of a mount session, and of a run that does
//! without.
//!
//! Lifetimes come from the kernel's announcements where those can be had: the proc connector, with
//! costs from taskstats. Otherwise /proc is looked at: for a run every so often as a whole, for a
//! mount session whenever a process uses the view. What is announced and what is seen in a file
//! request meet in one table, and fit together because a process's fork and exec are in our queue
//! before it can make a request: whoever asks for a caller first has the queue emptied.

mod feed;
mod follow;
mod process;
mod rows;
mod scan;
mod table;

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use flowtrace_schema::{HostId, ProcessLayer, Recorder, quote_argv};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Living;
use super::lifetimes::LeftBehind;
use super::reading::{self, Image, ProcessStat};
use crate::callers::{Caller, Callers};
use crate::clock::Clock;
use feed::Feed;
use table::Table;

/// How often is looked for what nobody announces.
const TICK: Duration = Duration::from_millis(50);
/// The longest time between two looks, however many processes there are.
const LONGEST_TICK: Duration = Duration::from_secs(2);
/// A look may take this part of the time: 2 % of a core.
const SHARE: u32 = 50;
/// How long at the end is waited for announcements of ends that must come.
const PATIENCE: Duration = Duration::from_millis(200);

/// Whose processes are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Of a command that we run: all that it starts.
    Ours,
    /// Of anybody who uses a view.
    Anybodys,
}

/// Follows processes without stopping any.
pub(crate) struct Watched {
    whose: Whose,
    layer: ProcessLayer,
    has_costs: bool,
    /// Readable when something was announced.
    signal: Option<OwnedFd>,
    state: Mutex<State>,
}

struct State {
    table: Table,
    feed: Option<Feed>,
}

impl Watched {
    /// Begins to listen, where that can be done, and takes stock of the processes that live.
    pub(crate) fn start(
        whose: Whose,
        host: HostId,
        clock: Clock,
        recorder: Recorder,
    ) -> Arc<Watched> {
        let feed = Feed::open().ok();
        let mut table = Table::new(host, clock, recorder);
        if feed.is_some() || whose == Whose::Ours {
            table.scan(false);
        }
        Arc::new(Watched {
            whose,
            layer: match (&feed, whose) {
                (Some(_), _) => ProcessLayer::Connector,
                (None, Whose::Ours) => ProcessLayer::Scan,
                (None, Whose::Anybodys) => ProcessLayer::Requests,
            },
            has_costs: feed.as_ref().is_some_and(Feed::has_costs),
            signal: feed.as_ref().and_then(|feed| feed.signal().ok()),
            state: Mutex::new(State { table, feed }),
        })
    }

    /// How it sees processes.
    pub(crate) fn layer(&self) -> ProcessLayer {
        self.layer
    }

    /// Whether the kernel tells what each process used.
    pub(crate) fn has_costs(&self) -> bool {
        self.has_costs
    }

    /// The recorded processes that live.
    pub(crate) fn living(&self) -> Arc<Living> {
        Arc::clone(&self.state().table.living)
    }

    /// Process `root`, our child that waits, is going to run the command as `image`.
    pub(crate) fn launch(&self, root: u32, image: Image) {
        let mut state = self.state();
        state.pump();
        let announced = state.feed.is_some();
        state.table.launch(root, image, announced);
    }

    /// Process `pid`, a child of ours, has ended and will be waited for: its last moment in /proc.
    pub(crate) fn about_to_reap(&self, pid: u32) {
        let mut state = self.state();
        state.table.last_words(pid);
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

    /// The recorded processes that live, for the user to read.
    pub(crate) fn left_behind(&self) -> Vec<LeftBehind> {
        let mut state = self.state();
        state.pump();
        let own = std::process::id();
        let lives = |pid| ProcessStat::of(pid).is_some_and(|stat| !stat.is_zombie);
        let recorded = state.table.processes.iter().filter(|(pid, process)| {
            process.row.is_some() && **pid != own && process.reaped.is_none() && lives(**pid)
        });
        let mut left: Vec<_> = recorded
            .map(|(&pid, _)| {
                let image = state.table.image(pid).unwrap_or_default();
                let argv = image.argv.as_deref().unwrap_or_default();
                let argv = argv.strip_suffix(b"\0").unwrap_or(argv);
                let command = quote_argv(argv.split(|&b| b == 0)).text().into_owned();
                LeftBehind { pid, command }
            })
            .collect();
        left.sort_by_key(|process| process.pid);
        left
    }

    /// Follows processes until `finished` says so, which is asked every tick and when `wake` has
    /// something.
    pub(crate) fn watch(&self, wake: Option<BorrowedFd<'_>>, finished: impl Fn() -> bool) {
        let mut due = Instant::now() + TICK;
        while !finished() {
            self.wait(wake, due.saturating_duration_since(Instant::now()));
            let mut state = self.state();
            state.pump();
            if state.feed.is_none() {
                state.table.reap();
            }
            if Instant::now() >= due {
                let cost = self.tick(&mut state);
                due = Instant::now() + (cost * SHARE).clamp(TICK, LONGEST_TICK);
            }
        }
        self.finish();
    }

    fn wait(&self, wake: Option<BorrowedFd<'_>>, timeout: Duration) {
        let timeout = PollTimeout::try_from(timeout.min(TICK)).unwrap_or(PollTimeout::ZERO);
        let signal = self.signal.as_ref().map(OwnedFd::as_fd);
        let ready = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut ready: Vec<_> = signal.into_iter().chain(wake).map(ready).collect();
        let _ = poll(&mut ready, timeout);
    }

    /// Looks for what nobody announces; returns how long that took.
    fn tick(&self, state: &mut State) -> Duration {
        let began = Instant::now();
        let State { table, feed } = state;
        match feed {
            Some(feed) => {
                if feed.count_losses(table) {
                    table.scan(false);
                }
                feed.sweep(table);
                if !self.has_costs {
                    table.sample_recorded();
                }
            }
            None if self.whose == Whose::Ours => table.scan(true),
            None => table.sample_recorded(),
        }
        began.elapsed()
    }

    fn finish(&self) {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.state();
        state.pump();
        // An end is announced a moment after whoever waited for the process could know of it.
        while state.feed.is_some() && state.expects_ends() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
            state.pump();
        }
        let State { table, feed } = &mut *state;
        if let Some(feed) = feed {
            feed.count_losses(table);
            for _ in 0..3 {
                feed.sweep(table);
            }
        }
        table.sample_recorded();
        table.finish();
        // Whatever is asked or announced from now on concerns nobody.
        *feed = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while locked")
    }

    /// A caller of whom nothing was announced. `/proc` is read before the lock is taken, so that
    /// others need not wait.
    fn look_up(&self, tid: u32) -> Option<Caller> {
        let pid = reading::thread_group(tid)?;
        let stat = ProcessStat::of(pid)?;
        let argv = fs::read(format!("/proc/{pid}/cmdline")).ok();
        let mut state = self.state();
        let State { table, feed } = &mut *state;
        let known = table.processes.get(&pid);
        if known.is_some_and(|process| !process.started_at(stat.start_ticks)) {
            table.is_over(pid);
        }
        if !table.processes.contains_key(&pid) {
            table.found(pid, &stat);
        }
        table.learn_thread(pid, tid);
        // An exec changes the arguments, and is not announced where nothing is.
        if feed.is_none()
            && argv.is_some()
            && let Some(image) = table.image(pid)
            && image.argv != argv
            && image.argv.is_some()
        {
            if table.is_launching(pid) {
                table.launched();
            } else {
                table.executed_unannounced(pid, Image::of(pid));
            }
        }
        table.caller(pid, tid)
    }
}

impl State {
    fn pump(&mut self) {
        if let Some(feed) = &mut self.feed {
            feed.pump(&mut self.table);
        }
    }

    /// Whether a recorded process has ended and is still in the table.
    fn expects_ends(&self) -> bool {
        let mut recorded = self.table.processes.iter().filter(|(_, p)| p.row.is_some());
        recorded.any(|(&pid, _)| ProcessStat::of(pid).is_none_or(|stat| stat.is_zombie))
    }
}

impl Callers for Watched {
    fn resolve(&self, tid: u32, fresh: bool) -> Option<Caller> {
        if tid == 0 {
            return None;
        }
        let mut state = self.state();
        state.pump();
        let announced = state.feed.is_some();
        // Without announcements only a look tells whether the process is still the same.
        if let Some(pid) = state.table.process_of(tid)
            && (announced || !fresh)
            && (announced || state.table.is_recorded(pid))
        {
            return state.table.caller(pid, tid);
        }
        drop(state);
        self.look_up(tid)
    }
}

#[cfg(test)]
mod tests;
