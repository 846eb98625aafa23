//! Steps that began late: of a runner that has several at a time, those that the rest of its work waited for in the end,
//! though nothing that they use was made shortly before they began.
//!
//! The steps are scheduled again with as many at a time as there were, each as soon as what it depends on has ended, first
//! those with the longest way to the end (critical-path scheduling; Graham, "Bounds on Multiprocessing Timing Anomalies",
//! SIAM J. Appl. Math. 17, 1969). The same schedule in the order of their begins tells what of the difference is the order,
//! and not the model.

use super::order::{Dependencies, Room, Schedule};
use super::steps::{Runners, Step};
use super::{Need, alone, cores, is_worth_a_word, need, rule_at};
use crate::analysis::bound::Bound;
use crate::analysis::critical_path::CriticalPath;
use crate::managers::{Runner, runner_of};
use crate::model::{ProcessId, Workflow};
use crate::timeline::Timeline;

/// A step that, begun earlier, would have let its runner end earlier.
#[derive(Clone, Debug, PartialEq)]
pub struct LateStart {
    /// Who runs it.
    pub runner: ProcessId,
    /// Its rule.
    pub runner_name: String,
    /// The rule of the step.
    pub name: String,
    /// When it began, ns.
    pub began_ns: i64,
    /// When the last step of the runner ended, ns.
    pub ended_ns: i64,
    /// When what it depends on had ended, ns.
    pub ready_ns: i64,
    /// How many steps ran at a time.
    pub jobs: usize,
    /// Of how many steps.
    pub steps: usize,
    /// Span of all of them, ns.
    pub took_ns: i64,
    /// What it would be in the better order, ns.
    pub could_ns: i64,
    /// What the run could save, ns: no more than the critical path allows.
    pub saving_ns: i64,
    /// As of [`super::Serial`]; `None` as well where the runner is no build.
    pub needs: Option<Need>,
}

/// Finds them, at most one for each runner, those that could save most first. Nothing is found where [`super::serial`] finds
/// nothing for want of file calls.
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
    found.retain(|one| is_worth_a_word(one.saving_ns as f64, timeline));
    for one in &mut found {
        one.needs = need(workflow, timeline, &mut runners, one.runner);
    }
    found.sort_by_key(|one| (-one.saving_ns, one.began_ns));
    found
}

/// Whether it is one that has more to run than it runs at a time: make, managers of workflows, xargs, parallel. What a shell
/// runs begins when the script says so.
fn has_a_queue(workflow: &Workflow, timeline: &Timeline, id: ProcessId) -> bool {
    let longest = timeline.programs.longest(workflow, id);
    let image = workflow.program(&timeline.programs.stints[longest]);
    let runner = runner_of(image.exe.as_deref(), &image.rule);
    matches!(runner, Some(Runner::Manager | Runner::Launcher))
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
    let room = Room { cores, jobs };
    let way = ways_to_the_end(steps, &dependencies);
    let better = Schedule::by(steps, &dependencies, room, |at| -way[at]);
    let as_it_was = Schedule::of(steps, &dependencies, room);
    let took = to - from;
    let saved = (took - better.end).min(as_it_was.end - better.end);
    let saving = saved as f64 * alone(timeline, steps, from, to);
    if !is_worth_a_word(saving, timeline) {
        return None;
    }
    let (late, ready_ns) = head_of_the_end(steps, &dependencies, from)?;
    // What made it wait is then not the order.
    if ((late.from - ready_ns) as f64) < saving / 2.0 {
        return None;
    }
    Some(LateStart {
        runner,
        runner_name: rule_at(workflow, timeline, runner, from),
        name: late.name.clone(),
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

/// Most steps that ran side by side. A step that begins shortly before the end of another came after it: the end is seen late
/// where no CPU is free at once.
fn most_at_a_time(steps: &[Step]) -> usize {
    /// An end may be seen late by one of so many parts of the step, and by so many ns.
    const LATE: (i64, i64) = (10, 20_000_000);
    let mut changes: Vec<(i64, i32)> = Vec::with_capacity(2 * steps.len());
    for step in steps {
        let early = LATE.1.min(step.length() / LATE.0);
        changes.extend([(step.from, 1), (step.to - early, -1)]);
    }
    // At one moment ends come first.
    changes.sort_unstable();
    let mut running = 0;
    let running = changes.into_iter().map(|(_, change)| {
        running += change;
        running
    });
    running.max().unwrap_or(0).max(0) as usize
}

/// How long each step and the longest chain after it take, ns.
pub(super) fn ways_to_the_end(steps: &[Step], dependencies: &Dependencies) -> Vec<i64> {
    let after = dependencies.after();
    let mut way = vec![0; steps.len()];
    // Who comes after another has a later place.
    for at in (0..steps.len()).rev() {
        let longest = after[at].iter().map(|&next| way[next]).max();
        way[at] = steps[at].length() + longest.unwrap_or(0);
    }
    way
}

/// The first of the chain of steps that ended last, and when what it depends on had ended, or the first step began.
fn head_of_the_end<'a>(
    steps: &'a [Step],
    dependencies: &Dependencies,
    from: i64,
) -> Option<(&'a Step, i64)> {
    /// A step that begins this much of its chain after what it depends on began at once.
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

    /// A step that writes the file of its number, after it has read some.
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
        let room = Room { cores: 8.0, jobs };
        let way = ways_to_the_end(steps, &dependencies);
        (
            Schedule::of(steps, &dependencies, room).end,
            Schedule::by(steps, &dependencies, room, |at| -way[at]).end,
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

    /// A machine that is busy shows the end of a step after the begin of the next one that had its place.
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
        // What needs all the others cannot begin before them.
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
        assert_eq!(dependencies.pairs, 2);
    }
}
