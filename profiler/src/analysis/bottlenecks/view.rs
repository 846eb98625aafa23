//! Whether what a step waited for storage is a cost of tracing: its calls on traced files go through flowtrace.

use std::collections::HashSet;

use super::Bottlenecks;
use crate::model::ProcessId;
use crate::timeline::{Place, Shares, State, Timeline, sum_of};

/// Whether most of what tasks waited for storage was the way of their calls to flowtrace and back, as far as the run
/// itself tells what that takes: the answers that took long enough to come from a device are no more than
/// half of it, and the ways, with the quick answers, half or more.
pub(super) fn is_way(result: &Bottlenecks, timeline: &Timeline, members: &[usize]) -> bool {
    let Some(way_ns) = timeline.way_ns else {
        return false;
    };
    let (mut ways_ns, mut slow_ns, mut waited_ns) = (0.0, 0.0, 0.0);
    for process in processes(result, members) {
        let instance = timeline.instance(process);
        let books = &instance.books;
        let view = books.view;
        // flowtrace waits for a processor to answer as the caller does to go on: on a busy machine that is the most of it.
        let turns = books.voluntary_switches + books.involuntary_switches;
        let queued = books.run_queue_ns as f64 / turns.max(view.calls).max(1) as f64;
        ways_ns += view.calls as f64 * (way_ns as f64 + queued) + view.quick_ns as f64;
        slow_ns += view.slow_ns as f64;
        waited_ns += sum_of(&instance.totals, State::is_storage);
    }
    2.0 * slow_ns <= waited_ns && 2.0 * ways_ns >= waited_ns
}

/// The processes of tasks.
fn processes(result: &Bottlenecks, members: &[usize]) -> HashSet<ProcessId> {
    let tasks = members.iter().map(|&task| &result.tasks.tasks[task]);
    let parts = tasks.flat_map(|task| &task.members);
    parts.map(|part| part.process).collect()
}

/// Whether what tasks waited for storage were calls that flowtrace answered, while the disks on which the files are had next to
/// nothing to do: then it moved the data, from memory to memory.
pub(super) fn is_work(
    result: &Bottlenecks,
    timeline: &Timeline,
    members: &[usize],
    sums: &Shares,
    intervals: &[(i64, i64)],
) -> bool {
    let (mut answered_ns, mut waited_ns) = (0.0, 0.0);
    for process in processes(result, members) {
        let instance = timeline.instance(process);
        let view = instance.books.view;
        answered_ns += (view.slow_ns + view.quick_ns) as f64;
        waited_ns += sum_of(&instance.totals, State::is_storage);
    }
    if 2.0 * answered_ns < waited_ns {
        return false;
    }
    match timeline.place {
        Place::Anywhere => false,
        Place::Memory => true,
        Place::Disks => disk_ns(timeline, intervals)
            .is_some_and(|busy| 4.0 * busy < sum_of(sums, State::is_storage)),
    }
}

/// How long within intervals the busiest disk had requests, ns; `None`: not recorded.
fn disk_ns(timeline: &Timeline, intervals: &[(i64, i64)]) -> Option<f64> {
    let mut sum = 0.0;
    for &(from, to) in intervals {
        let hosts = timeline.counters.hosts().into_iter();
        let busy = hosts.filter_map(|host| timeline.counters.disk_busy(host, from, to));
        let most = busy.map(|(share, _)| share).reduce(f64::max)?;
        sum += most * (to - from) as f64;
    }
    Some(sum)
}
