//! Decides if a step's waits for storage are a cost of tracing: calls on traced files go through flowtrace.

use std::collections::HashSet;

use super::Bottlenecks;
use crate::model::ProcessId;
use crate::timeline::{Place, Shares, State, Timeline, sum_of};

/// True if the waits for storage of `members` within `intervals` (`sums`) are a cost of tracing: most of
/// them are the way of the calls to flowtrace and back, or flowtrace copied the data from memory.
pub(super) fn is_cost(
    result: &Bottlenecks,
    timeline: &Timeline,
    members: &[usize],
    sums: &Shares,
    intervals: &[(i64, i64)],
) -> bool {
    let answers = Answers::of(result, timeline, members);
    answers.are_ways() || answers.are_most() && answers_from_memory(timeline, sums, intervals)
}

/// The waits of processes for storage in all, and the part of them that flowtrace answered, ns.
#[derive(Default)]
struct Answers {
    waited_ns: f64,
    /// Answers slow enough to come from a device.
    slow_ns: f64,
    /// The part of `slow_ns` in which data was synchronised, which does need a device.
    sync_ns: f64,
    quick_ns: f64,
    /// Time of the calls on their way to flowtrace and back; `None`: not recorded.
    ways_ns: Option<f64>,
}

impl Answers {
    fn of(result: &Bottlenecks, timeline: &Timeline, members: &[usize]) -> Answers {
        let tasks = members.iter().map(|&task| &result.tasks.tasks[task]);
        let parts = tasks.flat_map(|task| &task.members);
        let processes: HashSet<ProcessId> = parts.map(|part| part.process).collect();
        let mut all = Answers {
            ways_ns: timeline.way_ns.map(|_| 0.0),
            ..Answers::default()
        };
        for process in processes {
            let instance = timeline.instance(process);
            let accounting = &instance.accounting;
            let mount = accounting.mount;
            all.waited_ns += sum_of(&instance.totals, State::is_storage);
            all.slow_ns += mount.slow_ns as f64;
            all.sync_ns += mount.sync_ns as f64;
            all.quick_ns += mount.quick_ns as f64;
            if let Some((ways_ns, way_ns)) = all.ways_ns.as_mut().zip(timeline.way_ns) {
                // flowtrace waits for a CPU before it answers, as the caller does before it goes on. On a
                // busy machine that is most of the way.
                let turns = accounting.voluntary_switches + accounting.involuntary_switches;
                let queued = accounting.run_queue_ns as f64 / turns.max(mount.calls).max(1) as f64;
                *ways_ns += mount.calls as f64 * (way_ns as f64 + queued);
            }
        }
        all
    }

    /// True if most of the waits were the way of the calls, as measured in the run itself: slow answers are
    /// at most half of the waits, and the ways with the quick answers at least half.
    fn are_ways(&self) -> bool {
        let is_most = |ways_ns| 2.0 * (ways_ns + self.quick_ns) >= self.waited_ns;
        2.0 * self.slow_ns <= self.waited_ns && self.ways_ns.is_some_and(is_most)
    }

    /// True if at least half of the waits were answers that need no device.
    fn are_most(&self) -> bool {
        2.0 * (self.slow_ns - self.sync_ns + self.quick_ns) >= self.waited_ns
    }
}

/// True if the disks that store the files had next to nothing to do within `intervals`: then flowtrace
/// copied the data from memory to memory.
fn answers_from_memory(timeline: &Timeline, sums: &Shares, intervals: &[(i64, i64)]) -> bool {
    match timeline.place {
        Place::Anywhere => false,
        Place::Memory => true,
        Place::Disks => disk_ns(timeline, intervals)
            .is_some_and(|busy| 4.0 * busy < sum_of(sums, State::is_storage)),
    }
}

/// Time within `intervals` in which the busiest disk had requests, ns; `None`: not recorded.
fn disk_ns(timeline: &Timeline, intervals: &[(i64, i64)]) -> Option<f64> {
    let mut sum = 0.0;
    for &(from, to) in intervals {
        sum += timeline.counters.busiest_disk(from, to)? * (to - from) as f64;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_the_device_to_have_the_data_needs_a_device() {
        let answers = |sync_ns| Answers {
            waited_ns: 100.0,
            slow_ns: 90.0,
            sync_ns,
            ..Answers::default()
        };
        assert!(answers(0.0).are_most());
        assert!(!answers(80.0).are_most());
    }
}
