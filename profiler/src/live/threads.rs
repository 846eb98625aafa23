//! What each living thread of an image does, by its last sample.

use std::collections::VecDeque;
use std::sync::Arc;

use flowtrace_schema::{Activity, GrowingSampleRow};

/// Time over which the use of CPUs is the mean, ns.
const OVER_NS: i64 = 2_000_000_000;
/// Intervals on a CPU that are kept.
const MOST: usize = 4096;

/// The threads of an image.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads {
    threads: Vec<Thread>,
    running: VecDeque<(i64, i64)>,
    /// Time on a CPU that samples show, ns.
    pub(super) cpu_ns: i64,
    /// Time up to which the states are known, ns.
    pub(super) known_ns: i64,
}

/// A thread, as its last sample shows it.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    tid: i64,
    sample_id: i64,
    pub(super) since_ns: i64,
    until_ns: i64,
    pub(super) activity: Activity,
    pub(super) op: Option<Arc<str>>,
    pub(super) side: Option<Arc<str>>,
    pub(super) object: Option<i64>,
    pub(super) channel_id: Option<i64>,
    pub(super) file_id: Option<i64>,
}

impl Threads {
    /// Takes a sample that is new, or longer than before.
    pub(super) fn add(&mut self, row: &GrowingSampleRow) {
        let Some(activity) = Activity::of_number(row.activity) else {
            return;
        };
        let at = self.threads.iter().position(|one| one.tid == row.tid);
        let known = at.map(|at| &self.threads[at]);
        let counted_ns = match known {
            Some(known) if known.sample_id == row.sample_id => known.until_ns,
            _ => row.t_ns,
        };
        if activity == Activity::Running && row.end_ns > counted_ns {
            self.cpu_ns = self.cpu_ns.saturating_add(row.end_ns - counted_ns);
            self.running.push_back((counted_ns, row.end_ns));
        }
        self.known_ns = self.known_ns.max(row.end_ns);
        let old = self.known_ns - OVER_NS;
        while self.running.len() > MOST || self.running.front().is_some_and(|&(_, to)| to < old) {
            self.running.pop_front();
        }
        if known.is_some_and(|known| known.until_ns > row.end_ns) {
            return;
        }
        let thread = Thread {
            tid: row.tid,
            sample_id: row.sample_id,
            since_ns: row.t_ns,
            until_ns: row.end_ns,
            activity,
            op: row.op.clone(),
            side: row.side.clone(),
            object: row.object,
            channel_id: row.channel_id,
            file_id: row.file_id,
        };
        match at {
            Some(at) => self.threads[at] = thread,
            None => self.threads.push(thread),
        }
    }

    /// The rows that may grow.
    pub(super) fn samples(&self) -> impl Iterator<Item = i64> {
        self.threads.iter().map(|thread| thread.sample_id)
    }

    /// CPUs in use, as a mean over the last seconds that are known.
    pub(super) fn cpus(&self, start_ns: i64) -> f64 {
        let from = (self.known_ns - OVER_NS).max(start_ns);
        let within = self.running.iter().map(|&(a, b)| (b - a.max(from)).max(0));
        let length = (self.known_ns - from).max(1);
        within.sum::<i64>() as f64 / length as f64
    }

    /// The thread whose state is that of the image: one that runs before one that waits.
    pub(super) fn main(&self) -> Option<&Thread> {
        let order = |thread: &&Thread| match thread.activity {
            Activity::Running => 0,
            Activity::Runnable => 1,
            Activity::File | Activity::Fault => 2,
            Activity::Channel | Activity::Terminal => 3,
            Activity::Child => 4,
            Activity::Lock => 5,
            _ => 6,
        };
        // A thread without news for long has ended, or waits.
        let is_recent = |thread: &&Thread| {
            thread.until_ns > self.known_ns - OVER_NS || thread.activity.is_waiting()
        };
        let recent = self.threads.iter().filter(is_recent).min_by_key(order);
        recent.or_else(|| self.threads.iter().min_by_key(order))
    }
}
