//! Stragglers: the last of several instances goes on alone while everything waits for it.

use std::collections::HashSet;

use super::Finding;
use crate::analysis::bottlenecks::{Bottlenecks, Confidence};
use crate::model::{ProcessId, Workflow};
use crate::text::units;
use crate::timeline::{Part, State, Timeline, sum_of};

/// A straggler and when it was alone.
pub(super) struct Straggler {
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) program: usize,
    /// Which share of its time it took beyond an even share of the work.
    pub(super) excess: f64,
    pub(super) finding: Finding,
}

/// Begin and end of an instance, and its program: a place in [`crate::model::Programs::stints`].
type Life = (i64, i64, usize);

/// It must take this many times as long as the median of its task.
const LONGER: f64 = 1.5;

/// The stragglers of all tasks with three instances or more that ran side by side.
pub(super) fn stragglers(
    workflow: &Workflow,
    result: &Bottlenecks,
    timeline: &Timeline,
) -> Vec<Straggler> {
    let mut found = Vec::new();
    for (at, task) in result.tasks.tasks.iter().enumerate() {
        let above = above(workflow, &task.members);
        let mut lives: Vec<Life> = task
            .members
            .iter()
            .filter(|part| !above.contains(&part.process))
            .map(|part| (part.from, part.to, part.program))
            .filter(|life| life.1 > life.0)
            .collect();
        if lives.len() < 3 {
            continue;
        }
        // A round: instances that overlap. Each round has its own last one.
        lives.sort_unstable();
        let mut rounds: Vec<Vec<Life>> = Vec::new();
        let mut until = i64::MIN;
        for life in lives {
            if life.0 >= until {
                rounds.push(Vec::new());
            }
            until = until.max(life.1);
            if let Some(round) = rounds.last_mut() {
                round.push(life);
            }
        }
        for round in rounds.iter().filter(|round| round.len() >= 3) {
            found.extend(of_round(result, timeline, at, round));
        }
    }
    found
}

/// The processes that others of the same step descend from: who starts its copies shares no work out among itself and them.
fn above(workflow: &Workflow, members: &[Part]) -> HashSet<ProcessId> {
    let parent = |id: ProcessId| workflow.processes[id.0 as usize].parent;
    let mut above = HashSet::new();
    for part in members {
        let mut at = parent(part.process);
        while let Some(id) = at.filter(|&id| above.insert(id)) {
            at = parent(id);
        }
    }
    above
}

fn of_round(
    result: &Bottlenecks,
    timeline: &Timeline,
    task: usize,
    round: &[Life],
) -> Option<Straggler> {
    let mut by_end = round.to_vec();
    by_end.sort_unstable_by_key(|life| life.1);
    let last = *by_end.last()?;
    let before = by_end[by_end.len() - 2];
    let mut lengths: Vec<i64> = round.iter().map(|life| life.1 - life.0).collect();
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2 - usize::from(lengths.len().is_multiple_of(2))];
    let (length, from, to) = (last.1 - last.0, before.1.max(last.0), last.1);
    if (length as f64) < LONGER * median as f64 || to <= from {
        return None;
    }
    // Where other steps have work meanwhile, nobody waits for it.
    let others: f64 = result
        .tasks
        .parts
        .iter()
        .filter(|(part, of)| of.is_some_and(|of| of != task) && part.from < to && part.to > from)
        .map(|(part, _)| {
            let sums = timeline.within(part.process, from.max(part.from), to.min(part.to));
            sum_of(&sums, |state| state.is_active() || state.is_storage())
        })
        .sum();
    let tail = (to - from) as f64;
    let alone = (1.0 - others / tail).max(0.0);
    // Its rest, spread over all that were there and have a processor.
    let cpus = timeline.cpus().unwrap_or(1).max(1) as f64;
    let side_by_side = (round.len() as f64).min(cpus).max(1.0);
    let saving = tail * alone * (1.0 - 1.0 / side_by_side);
    // Who only waits for time or for something else has no work that could be spread.
    if idle_share(timeline, result, task, (from, to)) > 0.5 {
        return None;
    }
    let name = result.tasks.tasks[task].name();
    Some(Straggler {
        from,
        to,
        program: last.2,
        excess: saving / length.max(1) as f64,
        finding: Finding {
            kind: "straggler",
            step: Some(name.clone()),
            title: format!(
                "one of {} {} takes {} and keeps the others waiting: even shares of the work would help",
                round.len(),
                units::shorten(&units::plain(&name), 40),
                units::duration(length)
            ),
            saving_ns: saving as i64,
            evidence: format!(
                "the median is {}; it was the only one for the last {}",
                units::duration(median),
                units::duration(to - from)
            ),
            confidence: if round.len() >= 4 {
                Confidence::High
            } else {
                Confidence::Medium
            }
            .name(),
            command: "tree",
        },
    })
}

/// For which part of an interval the processes of a step did nothing and waited for none of the others.
fn idle_share(
    timeline: &Timeline,
    result: &Bottlenecks,
    task: usize,
    (from, to): (i64, i64),
) -> f64 {
    let is_idle = |state| matches!(state, State::Sleep | State::Stopped | State::Other);
    let mut sums = 0.0;
    let mut all = 0.0;
    let parts = result.tasks.tasks[task].members.iter();
    for part in parts.filter(|part| part.from < to && part.to > from) {
        let within = timeline.within(part.process, from.max(part.from), to.min(part.to));
        sums += sum_of(&within, is_idle);
        all += within.iter().sum::<f64>();
    }
    if all > 0.0 { sums / all } else { 0.0 }
}
