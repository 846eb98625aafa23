//! How many of their threads programs keep at work, and how long the others wait for each other: for a mutex,
//! a condition, the end of another thread, or as an idle pool. The kernel tells no more of these than
//! that they are waits in `futex(2)`; all of them end by another thread of the same process. One that lasts
//! for most of the program's life keeps nobody from work: that is a join, or a thread with nothing to do.

use std::collections::BTreeMap;

use crate::model::{ProcessId, Workflow};
use crate::timeline::Timeline;

/// The threads of the processes of one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Threads {
    /// Rule.
    pub name: String,
    /// Processes of it whose threads waited for each other.
    pub processes: usize,
    /// Most threads that one of them had.
    pub most: i64,
    /// Threads that existed, but for those that only hand data on, the mean over the lives of these processes.
    pub alive: f64,
    /// Threads that were on a processor, ready to be, or in storage, likewise.
    pub at_work: f64,
    /// Threads that waited for another one, likewise.
    pub waiting: f64,
    /// Threads that did so for most of the program's life, likewise.
    pub idle: f64,
    /// Thread time of the waits that were shorter, ns.
    pub waited_ns: i64,
}

impl Threads {
    /// Whether they could work side by side and do not.
    pub fn keep_each_other_waiting(&self) -> bool {
        let could_work = self.alive - self.idle;
        could_work >= 1.5 && self.waiting >= 0.5 && self.at_work < 0.7 * could_work
    }

    /// Whether most of them are idle, two or more: a pool with too few tasks, more than the one that waits for the others' end.
    pub fn have_nothing_to_do(&self) -> bool {
        self.idle >= 1.9 && self.at_work < 0.5 * self.alive
    }
}

/// The threads of some processes together; `None`: they did not wait for each other, or the kernel did not tell what they cost.
pub fn together(
    name: &str,
    timeline: &Timeline,
    processes: impl Iterator<Item = ProcessId>,
) -> Option<Threads> {
    let waited = |&id: &ProcessId| {
        let books = &timeline.instance(id).books;
        books.thread_lock_ns > 0 && books.is_complete
    };
    let (mut life, mut lives, mut work, mut idle) = (0, 0, 0, 0);
    let mut found = Threads {
        name: name.into(),
        processes: 0,
        most: 0,
        alive: 0.0,
        at_work: 0.0,
        waiting: 0.0,
        idle: 0.0,
        waited_ns: 0,
    };
    for id in processes.filter(waited) {
        let instance = timeline.instance(id);
        let books = &instance.books;
        found.processes += 1;
        found.most = found.most.max(books.threads);
        found.waited_ns += books.thread_wait_ns;
        idle += books.thread_idle_ns;
        life += instance.to - instance.from;
        lives += books.thread_ns - books.thread_help_ns;
        work += books.on_cpu_ns + books.run_queue_ns + books.storage_ns;
    }
    let mean = |ns: i64| ns as f64 / life.max(1) as f64;
    found.alive = mean(lives);
    found.at_work = mean(work);
    found.waiting = mean(found.waited_ns);
    found.idle = mean(idle);
    (found.processes > 0).then_some(found)
}

/// The threads of a run by rule, the longest waits first.
pub fn threads(workflow: &Workflow, timeline: &Timeline) -> Vec<Threads> {
    let mut by_rule: BTreeMap<&str, Vec<ProcessId>> = BTreeMap::new();
    for instance in &timeline.instances {
        let longest = timeline.programs.longest(workflow, instance.process);
        let rule = &workflow.program(&timeline.programs.stints[longest]).rule;
        by_rule.entry(rule).or_default().push(instance.process);
    }
    let mut found: Vec<Threads> = by_rule
        .into_iter()
        .filter_map(|(name, processes)| together(name, timeline, processes.into_iter()))
        .collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.waited_ns));
    found
}
