//! Stragglers: the last of several instances, which goes on alone while the run waits for it.

use std::collections::HashSet;

use flowtrace_render::units;

use super::Finding;
use crate::analysis::bottlenecks::{Bottlenecks, Confidence};
use crate::argv::unquote;
use crate::model::{ProcessId, Relation, Workflow};
use crate::paths::relative;
use crate::timeline::{Part, State, Timeline, sum_of};

/// A straggler and the interval in which it was alone.
pub(super) struct Straggler {
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) program: usize,
    /// Share of its time beyond an even share of the work.
    pub(super) excess: f64,
    pub(super) finding: Finding,
}

/// Begin and end of an instance, and its program: a place in [`crate::model::Programs::stints`].
type Life = (i64, i64, usize);

/// A straggler takes at least this many times as long as the median of its task.
const LONGER: f64 = 1.5;

/// An instance began late if it began later than the first by this share of its time.
const LATE: f64 = 0.1;

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
        // A round is a set of instances that overlap. Each round has its own last instance.
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
            found.extend(of_round(workflow, result, timeline, at, round));
        }
    }
    found
}

/// The processes that others of the same step descend from. Such a process starts its copies and does not
/// share the work with them.
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
    workflow: &Workflow,
    result: &Bottlenecks,
    timeline: &Timeline,
    task: usize,
    round: &[Life],
) -> Option<Straggler> {
    let mut by_end = round.to_vec();
    by_end.sort_unstable_by_key(|life| life.1);
    let last = *by_end.last()?;
    let before = by_end[by_end.len() - 2];
    // A wait for a lock is not work.
    let without_locks = |life: &Life| {
        let process = timeline.programs.stints[life.2].process;
        let sums = timeline.within(process, life.0, life.1);
        (life.1 - life.0) - sums[State::Lock as usize] as i64
    };
    let mut lengths: Vec<i64> = round.iter().map(without_locks).collect();
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2 - usize::from(lengths.len().is_multiple_of(2))];
    let (length, from, to) = (without_locks(&last), before.1.max(last.0), last.1);
    if (length as f64) < LONGER * median as f64 || to <= from {
        return None;
    }
    // An instance that began when others had ended is the last one because it waited for its turn: a matter
    // of order, not of shares.
    let begun = round.first()?.0;
    if last.0 >= by_end.first()?.1 && (last.0 - begun) as f64 > LATE * length as f64 {
        return None;
    }
    // If other steps have work meanwhile, the run does not wait for the instance.
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
    // Its rest, spread over all instances with a CPU each.
    let cores = timeline.cores().unwrap_or(1.0);
    let side_by_side = (round.len() as f64).min(cores).max(1.0);
    let saving = tail * alone * (1.0 - 1.0 / side_by_side);
    // A step that only waits for time or for something else has no work that could be spread.
    if idle_share(timeline, result, task, (from, to)) > 0.5 {
        return None;
    }
    let name = result.tasks.tasks[task].name();
    let peers: Vec<usize> = round.iter().map(|life| life.2).collect();
    let which = distinction(workflow, timeline, last.2, &peers);
    let shown = units::shorten(&units::plain(&name), 40);
    Some(Straggler {
        from,
        to,
        program: last.2,
        excess: saving / length.max(1) as f64,
        finding: Finding {
            kind: "straggler",
            step: Some(name.clone()),
            title: format!(
                "one of {} {shown}, {which}, takes {:.1} times as long as the median and runs alone for the last {}: even shares of the work would help",
                round.len(),
                length as f64 / median.max(1) as f64,
                units::duration(to - from)
            ),
            saving_ns: saving as i64,
            evidence: format!(
                "it took {}, the median {}",
                units::duration(length),
                units::duration(median)
            ),
            action: format!("share the work of the {} {shown} evenly", round.len()),
            why: None,
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

/// A text that distinguishes one of several programs of a step: the arguments that only this one has, with
/// the option before each, and the file that it wrote; else its process id.
pub(super) fn distinction(
    workflow: &Workflow,
    timeline: &Timeline,
    one: usize,
    peers: &[usize],
) -> String {
    /// Most words of a command line in the text.
    const WORDS: usize = 3;
    let stint = |at: usize| &timeline.programs.stints[at];
    let words = |at: usize| {
        let command = workflow.program(stint(at)).command.as_deref();
        unquote(command.unwrap_or_default())
    };
    let others: HashSet<String> = peers
        .iter()
        .filter(|&&peer| peer != one)
        .flat_map(|&peer| words(peer))
        .collect();
    let own = words(one);
    let mut said: Vec<String> = Vec::new();
    for (at, word) in own.iter().enumerate().skip(1) {
        if others.contains(word) {
            continue;
        }
        let option = own[at - 1].as_str();
        let is_option = at > 1 && option.starts_with('-') && !word.starts_with('-');
        said.push(match is_option {
            true => format!("{option} {word}"),
            false => word.clone(),
        });
    }
    said.truncate(WORDS);
    let process = stint(one).process;
    let cwd = workflow.runs.first().map_or("", |run| run.cwd.as_str());
    let accesses = workflow.accesses.iter();
    let written = accesses
        .filter(|access| access.process == process && access.relation() >= Relation::Write)
        .filter(|access| workflow.file(access.file).is_regular)
        .max_by_key(|access| access.write_bytes)
        .and_then(|access| workflow.file(access.file).path.as_deref())
        .map(|path| relative(path, cwd).to_owned());
    if let Some(path) =
        written.filter(|path| !said.iter().any(|word| word.ends_with(path.as_str())))
    {
        said.push(format!(
            "{}{path}",
            if said.is_empty() { "that of " } else { "→ " }
        ));
    }
    match said.is_empty() {
        true => format!("process {}", workflow.process(process).pid),
        false => units::shorten(&units::plain(&said.join(" ")), 60),
    }
}

/// The part of an interval in which the processes of a step did nothing and waited for none of the others.
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
