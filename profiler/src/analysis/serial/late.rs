//! Steps that began late. Their runner has several steps at a time, and in the end the rest of its work
//! waited for these, although nothing that they use was made shortly before they began.
//!
//! The steps are scheduled again with as many at a time as there were, each as soon as its dependencies
//! have ended, those with the longest way to the end first (critical-path scheduling; Graham, "Bounds on
//! Multiprocessing Timing Anomalies", SIAM J. Appl. Math. 17, 1969). The same schedule in the order of the
//! real begins shows the part of the difference that is due to the order, and not to the model.

use super::order::{Dependencies, Limits, Schedule};
use super::runs::has_a_queue;
use super::steps::{Runners, Step};
use super::{Need, alone, cores, is_relevant, need, rule_at};
use crate::analysis::bound::Bound;
use crate::analysis::critical_path::CriticalPath;
use crate::model::{ProcessId, Workflow};
use crate::timeline::Timeline;

/// A step that, begun earlier, would have let its runner end earlier.
#[derive(Clone, Debug, PartialEq)]
pub struct LateStart {
    /// The process that runs the step.
    pub runner: ProcessId,
    /// Rule of the runner.
    pub runner_name: String,
    /// Rule of the step.
    pub name: String,
    /// The process that did most of its work.
    pub process: ProcessId,
    /// Those of the other steps of this rule.
    pub others: Vec<ProcessId>,
    /// Begin of the step, ns.
    pub began_ns: i64,
    /// End of the last step of the runner, ns.
    pub ended_ns: i64,
    /// End of the last dependency of the step, ns.
    pub ready_ns: i64,
    /// Number of steps that ran at a time.
    pub jobs: usize,
    /// Number of steps of the runner.
    pub steps: usize,
    /// Time from the first begin to the last end of all steps, ns.
    pub took_ns: i64,
    /// The same time in the better order, ns.
    pub could_ns: i64,
    /// Time that the run could save, ns: at most what the critical path allows.
    pub saving_ns: i64,
    /// As in [`super::Serial`]; also `None` if the runner is no build.
    pub needs: Option<Need>,
}

/// Finds the late starts, at most one for each runner, the largest saving first. Finds none if
/// [`super::serial`] finds none because file calls were not seen.
pub fn late_starts(
    workflow: &Workflow,
    timeline: &Timeline,
    path: &CriticalPath,
) -> Vec<LateStart> {
    let Some(cores) = cores(workflow, timeline) else {
        return Vec::new();
    };
    let bound = Bound::new(workflow, timeline, path);
    let mut runners = Runners::of(workflow, timeline);
    let mut found: Vec<LateStart> = Vec::new();
    for id in workflow.process_ids() {
        if runners.children[id.0 as usize].len() < 3 || !has_a_queue(workflow, timeline, id) {
            continue;
        }
        let Some(steps) = runners.steps(id) else {
            continue;
        };
        if let Some(mut one) = judge(workflow, timeline, id, &steps, cores) {
            let share = 1.0 - one.could_ns as f64 / one.took_ns.max(1) as f64;
            let from = steps[0].from;
            let most = bound.of_steps_below(id, from..from + one.took_ns, share);
            one.saving_ns = one.saving_ns.min(most);
            found.push(one);
        }
    }
    found.retain(|one| is_relevant(one.saving_ns as f64, timeline));
    for one in &mut found {
        one.needs = need(workflow, timeline, &mut runners, one.runner);
    }
    found.sort_by_key(|one| (-one.saving_ns, one.began_ns));
    found
}

fn judge(
    workflow: &Workflow,
    timeline: &Timeline,
    runner: ProcessId,
    steps: &[Step],
    cores: f64,
) -> Option<LateStart> {
    let jobs = most_at_a_time(steps);
    if jobs < 2 || jobs >= steps.len() {
        return None;
    }
    let from = steps.first()?.from;
    let to = steps.iter().map(|step| step.to).max()?;
    let dependencies = Dependencies::of_overlapping(steps);
    let limits = Limits { cores, jobs };
    let way = ways_to_the_end(steps, &dependencies);
    let better = Schedule::by(steps, &dependencies, limits, |at| -way[at]);
    let as_it_was = Schedule::of(steps, &dependencies, limits);
    let took = to - from;
    let saved = (took - better.end).min(as_it_was.end - better.end);
    let saving = saved as f64 * alone(timeline, steps, from, to);
    if !is_relevant(saving, timeline) {
        return None;
    }
    let (late, ready_ns) = head_of_the_end(steps, &dependencies, from)?;
    // The step then waited for something other than its turn.
    if ((late.from - ready_ns) as f64) < saving / 2.0 {
        return None;
    }
    Some(LateStart {
        runner,
        runner_name: rule_at(workflow, timeline, runner, from),
        name: late.name.clone(),
        process: late.worker,
        others: steps
            .iter()
            .filter(|step| step.name == late.name && step.worker != late.worker)
            .map(|step| step.worker)
            .collect(),
        began_ns: late.from,
        ended_ns: to,
        ready_ns,
        jobs,
        steps: steps.len(),
        took_ns: took,
        could_ns: took - saved,
        saving_ns: saving as i64,
        needs: None,
    })
}

/// Most steps that ran side by side. A step that begins shortly before the end of another one came after
/// it: ends are seen late if no CPU is free at once.
fn most_at_a_time(steps: &[Step]) -> usize {
    /// An end is seen late by at most this fraction of the step, and by at most this many ns.
    const LATE: (i64, i64) = (10, 20_000_000);
    let mut changes: Vec<(i64, i32)> = Vec::with_capacity(2 * steps.len());
    for step in steps {
        let early = LATE.1.min(step.length() / LATE.0);
        changes.extend([(step.from, 1), (step.to - early, -1)]);
    }
    // At the same instant, ends come before begins.
    changes.sort_unstable();
    let mut running = 0;
    let running = changes.into_iter().map(|(_, change)| {
        running += change;
        running
    });
    running.max().unwrap_or(0).max(0) as usize
}

/// For each step, its time plus that of the longest chain after it, ns.
pub(super) fn ways_to_the_end(steps: &[Step], dependencies: &Dependencies) -> Vec<i64> {
    let after = dependencies.after();
    let mut way = vec![0; steps.len()];
    // A step that comes after another one has a later place.
    for at in (0..steps.len()).rev() {
        let longest = after[at].iter().map(|&next| way[next]).max();
        way[at] = steps[at].length() + longest.unwrap_or(0);
    }
    way
}

/// The first step of the chain that ended last, and the end of its last dependency, or else the begin of
/// the first step.
fn head_of_the_end<'a>(
    steps: &'a [Step],
    dependencies: &Dependencies,
    from: i64,
) -> Option<(&'a Step, i64)> {
    /// A step began at once if it began less than this part of its chain after its last dependency.
    const AT_ONCE: f64 = 0.1;
    let mut at = (0..steps.len()).max_by_key(|&at| steps[at].to)?;
    let end = steps[at].to;
    loop {
        let before = dependencies.before(at).iter().copied();
        let Some(last) = before.max_by_key(|&other| steps[other].to) else {
            return Some((&steps[at], from));
        };
        let gap = (steps[at].from - steps[last].to) as f64;
        if gap > AT_ONCE * (end - steps[at].from) as f64 {
            return Some((&steps[at], steps[last].to));
        }
        at = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FileIndex;

    /// A step that reads the files of some numbers, and then writes the file of its own number.
    fn step(number: u32, from: i64, to: i64, reads: &[u32]) -> Step {
        let mut step = Step {
            from,
            to,
            cpu_ns: (to - from) as f64,
            ..Step::default()
        };
        step.written.insert(FileIndex(number));
        let reads = reads.iter().copied().map(FileIndex);
        step.touched.extend(reads.chain([FileIndex(number)]));
        step
    }

    fn end(steps: &[Step], jobs: usize) -> (i64, i64) {
        let dependencies = Dependencies::of_overlapping(steps);
        let limits = Limits { cores: 8.0, jobs };
        let way = ways_to_the_end(steps, &dependencies);
        (
            Schedule::of(steps, &dependencies, limits).end,
            Schedule::by(steps, &dependencies, limits, |at| -way[at]).end,
        )
    }

    #[test]
    fn a_long_step_goes_first() {
        let steps = [
            step(0, 0, 10, &[]),
            step(1, 0, 10, &[]),
            step(2, 10, 20, &[]),
            step(3, 10, 50, &[]),
        ];
        assert_eq!(most_at_a_time(&steps), 2);
        assert_eq!(end(&steps, 2), (50, 40));
        let dependencies = Dependencies::of_overlapping(&steps);
        let (late, ready) = head_of_the_end(&steps, &dependencies, 0).unwrap();
        assert_eq!((late.from, ready), (10, 0));
    }

    /// On a busy machine, the end of a step is seen after the begin of the next step in its place.
    #[test]
    fn an_end_that_is_seen_late_is_no_other_place_to_run() {
        let steps = [
            step(0, 0, 100, &[]),
            step(1, 0, 100, &[]),
            step(2, 95, 500, &[]),
        ];
        assert_eq!(most_at_a_time(&steps), 2);
        let beside = [step(0, 0, 100, &[]), step(1, 50, 150, &[])];
        assert_eq!(most_at_a_time(&beside), 2);
    }

    #[test]
    fn a_chain_goes_first_and_its_head_is_named() {
        let steps = [
            step(0, 0, 10, &[]),
            step(1, 0, 10, &[]),
            step(2, 10, 20, &[]),
            step(3, 10, 20, &[]),
            step(4, 20, 40, &[3]),
        ];
        assert_eq!(end(&steps, 2), (40, 30));
        let dependencies = Dependencies::of_overlapping(&steps);
        let (late, ready) = head_of_the_end(&steps, &dependencies, 0).unwrap();
        assert_eq!((late.from, ready), (10, 0));
        // A step that needs all the others cannot begin before them.
        let last = [
            step(0, 0, 10, &[]),
            step(1, 0, 10, &[]),
            step(2, 10, 50, &[0, 1]),
        ];
        assert_eq!(end(&last, 2), (50, 50));
    }

    #[test]
    fn who_ran_at_the_same_time_did_not_wait_for_each_other() {
        let log = |from, to| {
            let mut one = step(from as u32, from, to, &[]);
            one.written.insert(FileIndex(99));
            one.touched.insert(FileIndex(99));
            one
        };
        let steps = [log(0, 10), log(5, 15), log(20, 30)];
        let dependencies = Dependencies::of_overlapping(&steps);
        assert_eq!(dependencies.before(1), [] as [usize; 0]);
        assert_eq!(dependencies.before(2), [0, 1]);
        assert_eq!(dependencies.pairs(|_| true), 2);
    }
}
