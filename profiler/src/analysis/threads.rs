//! The threads that programs keep at work, and the waits of the others for each other: for a mutex, a
//! condition, the end of another thread, or as an idle pool. The kernel only reports that these are waits
//! in `futex(2)`. All of them are ended by another thread of the same process. A wait for most of the
//! program's life keeps no thread from work: it is a join, or a thread with nothing to do.

use std::collections::BTreeMap;

use crate::model::{ProcessId, Workflow};
use crate::timeline::Timeline;

/// The threads of the processes of one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Threads {
    /// Rule.
    pub name: String,
    /// Processes of the rule whose threads waited for each other.
    pub processes: usize,
    /// Most threads that one of these processes had.
    pub most: i64,
    /// Threads alive, without those that only pass data on; the mean over the lives of these processes.
    pub alive: f64,
    /// Threads on a CPU, ready to run, or in storage; mean as above.
    pub at_work: f64,
    /// Threads that waited for another one; mean as above.
    pub waiting: f64,
    /// Threads that waited so for most of the program's life; mean as above.
    pub idle: f64,
    /// Thread time of the shorter waits, ns.
    pub waited_ns: i64,
}

impl Threads {
    /// True if the threads could work side by side and do not.
    pub fn keep_each_other_waiting(&self) -> bool {
        let could_work = self.alive - self.idle;
        could_work >= 1.5 && self.waiting >= 0.5 && self.at_work < 0.7 * could_work
    }

    /// True if most threads, and at least two, are idle: a pool with too few tasks, not just one thread
    /// that waits for the end of the others.
    pub fn have_nothing_to_do(&self) -> bool {
        self.idle >= 1.9 && self.at_work < 0.5 * self.alive
    }
}

/// The threads of some processes together; `None`: they did not wait for each other, or their time
/// accounting is not complete.
pub fn together(
    name: &str,
    timeline: &Timeline,
    processes: impl Iterator<Item = ProcessId>,
) -> Option<Threads> {
    let waited = |&id: &ProcessId| {
        let accounting = &timeline.instance(id).accounting;
        accounting.thread_lock_ns > 0 && accounting.is_complete
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
        let accounting = &instance.accounting;
        found.processes += 1;
        found.most = found.most.max(accounting.threads);
        found.waited_ns += accounting.thread_wait_ns;
        idle += accounting.thread_idle_ns;
        life += instance.to - instance.from;
        lives += accounting.thread_ns - accounting.thread_help_ns;
        work += accounting.on_cpu_ns + accounting.run_queue_ns + accounting.storage_ns;
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
