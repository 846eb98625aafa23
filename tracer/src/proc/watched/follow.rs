//! Running a command without stopping it: its exit is awaited as by any parent, everything else is watched
//! meanwhile.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Observers, Watched};
use crate::priority::Ahead;
use crate::proc::children::{self, Change};
use crate::proc::lifetimes::{End, LeftBehind, Watcher};

impl Watched {
    /// Reports the events until now. Returns true if there were any.
    pub(super) fn report_to(&self, observers: &mut Observers) -> bool {
        let (before, observations) = {
            let mut state = self.state();
            let before = state.table.clock.now();
            state.pump();
            (before, state.table.take_observations())
        };
        let is_any = !observations.is_empty();
        observers.deliver(observations);
        observers.complete(before);
        is_any
    }

    /// Records the tree of process `root`, launched before, until its last process has ended, and reports it
    /// to `observers`.
    ///
    /// # Errors
    /// When no thread can be started, or waiting itself fails.
    pub(crate) fn follow(
        &self,
        root: u32,
        watcher: &mut dyn Watcher,
        mut observers: Observers,
    ) -> io::Result<Option<End>> {
        let (going_on, ends_with_it) = UnixStream::pair()?;
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            thread::Builder::new()
                .name("processes".into())
                .spawn_scoped(scope, || {
                    // A throttled thread waits for us: without a priority boost, behind all others on a busy
                    // machine.
                    let _ahead = Ahead::of_the_command();
                    let signal = Some(ends_with_it.as_fd());
                    self.watch(signal, &mut observers, || over.load(Ordering::Acquire));
                    drop(observers);
                })?;
            let end = self.wait_for_all(root, watcher);
            over.store(true, Ordering::Release);
            drop(going_on);
            end
        })
    }

    fn wait_for_all(&self, root: u32, watcher: &mut dyn Watcher) -> io::Result<Option<End>> {
        let mut end = None;
        while let Some((pid, change)) = children::wait(|pid| self.about_to_reap(pid))? {
            match change {
                Change::Stopped(signal) if pid == root => watcher.stopped(signal),
                Change::Stopped(_) => {}
                Change::Ended(how, wait_status) => {
                    self.reaped(pid, wait_status);
                    if pid == root {
                        end = Some(how);
                        watcher.ended(how, self.stays_behind());
                    }
                }
            }
        }
        Ok(end)
    }

    /// The processes that live when the command has ended, except those that are about to end with it:
    /// helpers that notice that they are not needed any more are no daemons.
    fn stays_behind(&self) -> Vec<LeftBehind> {
        const GRACE: Duration = Duration::from_millis(100);
        let until = Instant::now() + GRACE;
        loop {
            let left = self.left_behind();
            if left.is_empty() || Instant::now() >= until {
                return left;
            }
            thread::sleep(GRACE / 20);
        }
    }
}
