//! Events of the process tree on their way to the sampler.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flowtrace_schema::Upid;

use super::super::observer::{Observer, Tracee};
use super::super::snapshot::ProcessSnapshot;

/// A change of the tree.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// A thread began.
    Began(Tracee, u64),
    /// A process runs another program; all its threads but the first are over.
    Executed(Tracee, Option<Upid>, u64),
    /// A thread is over.
    Ended(u32, u64),
    /// Job control stopped a thread at that time, or continues it (`None`).
    Stopped(u32, Option<u64>),
}

/// The changes since the last round of samples.
#[derive(Default)]
pub(super) struct News {
    pub(super) changes: Vec<Change>,
    pub(super) finished: bool,
}

/// Queue of the changes.
#[derive(Default)]
pub(super) struct Inbox {
    news: Mutex<News>,
    finished: Condvar,
}

impl Inbox {
    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the changes, after `time` or as soon as there will be no more.
    pub(super) fn wait(&self, time: Duration) -> News {
        let news = self
            .finished
            .wait_timeout_while(self.news(), time, |news| !news.finished);
        let (mut news, _) = news.unwrap_or_else(PoisonError::into_inner);
        News {
            changes: std::mem::take(&mut news.changes),
            finished: news.finished,
        }
    }

    pub(super) fn finish(&self) {
        self.news().finished = true;
        self.finished.notify_one();
    }
}

/// Receiver of events for the sampler. It is called while a task is stopped, so it only queues them.
pub(crate) struct Feed(pub(super) Arc<Inbox>);

impl Feed {
    fn report(&self, change: Change) {
        self.0.news().changes.push(change);
    }
}

impl Observer for Feed {
    fn forked(&mut self, _parent: Tracee, child: Tracee, _moment: &dyn ProcessSnapshot, now: u64) {
        self.report(Change::Began(child, now));
    }

    fn thread_began(&mut self, thread: Tracee, now: u64) {
        self.report(Change::Began(thread, now));
    }

    fn executed(&mut self, tracee: Tracee, prev: Option<Upid>, _: &dyn ProcessSnapshot, now: u64) {
        self.report(Change::Executed(tracee, prev, now));
    }

    fn exiting(&mut self, tracee: Tracee, _last: bool, _moment: &dyn ProcessSnapshot, now: u64) {
        self.report(Change::Ended(tracee.tid, now));
    }

    fn ended(&mut self, tracee: Tracee, now: u64) {
        self.report(Change::Ended(tracee.tid, now));
    }

    fn stopped(&mut self, thread: Tracee, now: u64) {
        self.report(Change::Stopped(thread.tid, Some(now)));
    }

    fn continued(&mut self, thread: Tracee, _now: u64) {
        self.report(Change::Stopped(thread.tid, None));
    }
}
