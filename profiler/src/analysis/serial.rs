//! False serialisation: steps of a script that run one after another although nothing connects them.
//!
//! A run is judged phase by phase. A phase is a stretch in which a shell runs one step at a time. Its steps
//! are scheduled again in the order of the script, each as soon as its dependencies have ended and a CPU is
//! free. The saving is an upper bound: exit codes and variables of the shell are not seen, except for what
//! it read from pipes and files.

mod jobs;
mod late;
mod order;
mod runs;
mod starts;
mod steps;

use std::collections::{BTreeMap, HashSet};

pub(crate) use jobs::{Job, Work};
pub use late::{LateStart, late_starts};
use order::{Dependencies, Limits, Schedule};
pub use runs::RunBy;
use runs::{continues_recipe, run_by};
pub use starts::Starts;
pub(crate) use starts::starts;
use steps::{Runners, Step};

use crate::analysis::bound::Bound;
use crate::analysis::critical_path::CriticalPath;
use crate::model::{FileCalls, ProcessId, Workflow};
use crate::timeline::Timeline;

/// Least share of the run that makes a saving relevant.
const LEAST: f64 = 0.03;
/// Least time that makes a saving relevant, ns: nobody notices less.
pub(crate) const LEAST_NS: f64 = 100e6;
/// Two steps overlap if they share more than this part of the shorter one.
const OVERLAP: f64 = 0.1;
/// The steps that are named have this part of the time side by side.
const NEARLY_ALL: f64 = 0.95;

/// A stretch of a script whose steps could run side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Serial {
    /// The shell, or make.
    pub runner: ProcessId,
    /// Rule of the runner.
    pub name: String,
    /// Begin of the first step, ns.
    pub from: i64,
    /// End of the last step, ns.
    pub to: i64,
    /// Begin and end of each of these steps, ns.
    pub spans: Vec<(i64, i64)>,
    /// Names of the steps, with the number of runs and their total time, ns; the longest first.
    pub steps: Vec<(String, usize, i64)>,
    /// Time of these steps one after another, ns.
    pub took_ns: i64,
    /// Time of these steps side by side, ns.
    pub could_ns: i64,
    /// Time that the run could save, ns: at most what the critical path allows.
    pub saving_ns: i64,
    /// CPUs that the schedule used: those of the machine.
    pub cores: f64,
    /// Number of pairs of these steps that depend on each other.
    pub dependencies: usize,
    /// Kind of the runner.
    pub run_by: RunBy,
    /// A step of the runner, or of a build above it, that used the output of another step. The steps may
    /// run side by side only if that is declared. `None`: nothing seen connects any of them.
    pub needs: Option<Need>,
}

/// A step of a build that used the output of another step, which the rules of the build may declare or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The step that used it.
    pub used_by: String,
    /// The file or directory that it used.
    pub what: String,
    /// The step that made it.
    pub made_by: String,
}

/// The first step of a build, or of a build above it, that used the output of another step. All advice to
/// let a build run several steps at a time, or in another order, needs it: no trace shows if the rules of
/// the build declare the order.
fn need(
    workflow: &Workflow,
    timeline: &Timeline,
    runners: &mut Runners<'_>,
    runner: ProcessId,
) -> Option<Need> {
    let above = |id: &ProcessId| workflow.process(*id).parent;
    let is_build = |id: &ProcessId| {
        let program = timeline.programs.longest(workflow, *id);
        crate::managers::is_build(&workflow.program(&timeline.programs.stints[program]).rule)
    };
    std::iter::successors(Some(runner), above)
        .filter(is_build)
        .find_map(|id| {
            let steps = runners.steps(id)?;
            let name = |file| match &workflow.file(file).path {
                Some(path) => path.to_string(),
                None => String::from("a file"),
            };
            let (made_by, used_by, what) = Dependencies::data(&steps, 1, name).pop()?;
            Some(Need {
                used_by: steps[used_by].name.clone(),
                what,
                made_by: steps[made_by].name.clone(),
            })
        })
}

/// Finds the stretches, the largest saving first. Finds none if files, pipes or files outside the traced
/// directories were not seen: then the dependencies of steps are not known. `path` bounds the savings.
pub fn serial(workflow: &Workflow, timeline: &Timeline, path: &CriticalPath) -> Vec<Serial> {
    let Some(cores) = cores(workflow, timeline) else {
        return Vec::new();
    };
    let mut runners = Runners::of(workflow, timeline);
    let with_jobs = runs::with_jobs(workflow, timeline);
    let bound = Bound::new(workflow, timeline, path);
    let mut found: Vec<Serial> = Vec::new();
    for id in workflow.process_ids() {
        if runners.children[id.0 as usize].len() < 2 {
            continue;
        }
        let Some(run_by) = run_by(workflow, timeline, &with_jobs, id) else {
            continue;
        };
        let Some(steps) = runners.steps(id) else {
            continue;
        };
        for stretch in stretches(&steps) {
            let steps = &steps[stretch];
            let by =
                |run_by, continues: &[bool]| judge(&bound, (id, run_by), (steps, continues), cores);
            let free = vec![false; steps.len()];
            found.extend(match run_by {
                RunBy::Shell | RunBy::Snakemake => by(run_by, &free),
                _ => by(run_by, &continues_recipe(workflow, id, steps))
                    .or_else(|| by(RunBy::Recipe, &free)),
            });
        }
    }
    // A make passes `-j` to those that it runs. If their steps save as much, its own may stay in order.
    let by_others_below = |one: &Serial| {
        let above = |id: &ProcessId| workflow.process(*id).parent;
        let is_below = |id| std::iter::successors(above(&id), above).any(|id| id == one.runner);
        let others = found.iter().filter(|other| other.run_by == RunBy::Make);
        let below = others.filter(|other| is_below(other.runner));
        below.map(|other| other.saving_ns).sum::<i64>() as f64
    };
    let is_enough = |one: &Serial| by_others_below(one) >= 0.9 * one.saving_ns as f64;
    let recursive = |one: &Serial| one.run_by == RunBy::Recipe && is_enough(one);
    let recursive: Vec<bool> = found.iter().map(recursive).collect();
    for (one, _) in found.iter_mut().zip(recursive).filter(|(_, is)| *is) {
        one.run_by = RunBy::Make;
    }
    for one in &mut found {
        if one.run_by != RunBy::Shell {
            one.needs = need(workflow, timeline, &mut runners, one.runner);
        }
    }
    found.sort_by_key(|one| (-one.saving_ns, one.from));
    found
}

/// CPUs that the run may use; `None`: there is only one, or the dependencies of steps are not known.
fn cores(workflow: &Workflow, timeline: &Timeline) -> Option<f64> {
    let is_seen = workflow.file_calls() != FileCalls::None && workflow.sees_outside();
    let cores = timeline.cores().filter(|&cores| cores > 1.0);
    cores.filter(|_| is_seen && timeline.length() > 0)
}

/// Ranges of steps that stood alone, by their places. A deliberate pause of the script ends a range.
fn stretches(steps: &[Step]) -> Vec<std::ops::Range<usize>> {
    let overlaps = |a: &Step, b: &Step| {
        let shared = (a.to.min(b.to) - a.from.max(b.from)).max(0) as f64;
        let shorter = (a.to - a.from).min(b.to - b.from).max(1) as f64;
        shared > OVERLAP * shorter
    };
    // Only neighbours in the order of begins, and the step that runs longest so far, can overlap.
    let mut is_alone = vec![true; steps.len()];
    let mut longest: Option<usize> = None;
    for at in 0..steps.len() {
        if let Some(before) = longest
            && overlaps(&steps[before], &steps[at])
        {
            is_alone[before] = false;
            is_alone[at] = false;
        }
        if longest.is_none_or(|before| steps[at].to > steps[before].to) {
            longest = Some(at);
        }
    }
    let mut found = Vec::new();
    let mut begin = None;
    for at in 0..=steps.len() {
        let is_in = at < steps.len() && is_alone[at] && !steps[at].is_pause;
        match (begin, is_in) {
            (None, true) => begin = Some(at),
            (Some(from), false) => {
                if at - from > 1 {
                    found.push(from..at);
                }
                begin = None;
            }
            _ => {}
        }
    }
    found
}

/// Judges a stretch of steps. `continues`: steps that must come after the one before.
fn judge(
    bound: &Bound<'_>,
    (runner, run_by): (ProcessId, RunBy),
    (steps, continues): (&[Step], &[bool]),
    cores: f64,
) -> Option<Serial> {
    let timeline = bound.timeline;
    let (from, to) = (steps.first()?.from, steps.last()?.to);
    let length = timeline.length() as f64;
    if ((to - from) as f64) < LEAST * length {
        return None;
    }
    let dependencies = Dependencies::of(steps);
    let order = dependencies.and_after_previous(|at| continues[at]);
    let schedule = Schedule::of(steps, &order, Limits::of_cores(cores));
    let running: i64 = steps.iter().map(Step::length).sum();
    let could_ns = schedule.end.max((work(steps) / cores) as i64);
    // The schedule knows of no other work on the machine, but the run competed with it. So the schedule is
    // scaled by the time that the steps took.
    let took: i64 = steps.iter().map(|step| step.to - step.from).sum();
    let slower = took as f64 / running.max(1) as f64;
    let could_ns = (could_ns as f64 * slower) as i64;
    let (moved, share) = moved(steps, &schedule.beside);
    let saved = (took - could_ns) as f64 * share;
    let took: i64 = moved.iter().map(|&at| steps[at].to - steps[at].from).sum();
    // Each of these steps gets shorter by the same share.
    let each = saved / took.max(1) as f64;
    let members = moved.iter().flat_map(|&at| &steps[at].members);
    let most = bound.without(members.map(|&id| (id, each)));
    let saving = (saved * alone(timeline, steps, from, to)).min(most as f64);
    if !is_relevant(saving, timeline) {
        return None;
    }
    let mut names: BTreeMap<&str, (usize, i64)> = BTreeMap::new();
    for &at in &moved {
        let entry = names.entry(steps[at].name.as_str()).or_default();
        entry.0 += 1;
        entry.1 += steps[at].to - steps[at].from;
    }
    let mut names: Vec<(String, usize, i64)> = names
        .into_iter()
        .map(|(name, (count, ns))| (name.to_owned(), count, ns))
        .collect();
    names.sort_by_key(|(_, _, ns)| -ns);
    let spans = moved.iter().map(|&at| (steps[at].from, steps[at].to));
    Some(Serial {
        runner,
        name: rule_at(bound.workflow, timeline, runner, from),
        from: spans.clone().map(|(from, _)| from).min()?,
        to: spans.clone().map(|(_, to)| to).max()?,
        spans: spans.collect(),
        steps: names,
        took_ns: took,
        could_ns: took - saved as i64,
        saving_ns: saving as i64,
        cores,
        dependencies: dependencies.pairs(|at| moved.binary_search(&at).is_ok()),
        run_by,
        needs: None,
    })
}

/// The places of the steps that a schedule runs side by side, and their part of that time. Steps that keep
/// their place are not part of the problem, nor are kinds of steps that hardly have a part of that time: the
/// removal of a directory beside a long step.
fn moved(steps: &[Step], beside: &[i64]) -> (Vec<usize>, f64) {
    let mut kinds: BTreeMap<&str, i64> = BTreeMap::new();
    for (step, ns) in steps.iter().zip(beside) {
        *kinds.entry(&step.name).or_default() += ns;
    }
    let all: i64 = kinds.values().sum();
    let mut kinds: Vec<(&str, i64)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, ns)| -ns);
    let mut sum = 0;
    let mut named: HashSet<&str> = HashSet::new();
    for (name, ns) in kinds {
        if sum as f64 >= NEARLY_ALL * all as f64 {
            break;
        }
        sum += ns;
        named.insert(name);
    }
    let is_moved = |&at: &usize| beside[at] > 0 && named.contains(steps[at].name.as_str());
    let moved = (0..steps.len()).filter(is_moved).collect();
    (moved, sum as f64 / all.max(1) as f64)
}

fn rule_at(workflow: &Workflow, timeline: &Timeline, id: ProcessId, ns: i64) -> String {
    let programs = &timeline.programs;
    let program = &programs.stints[programs.at(id, ns)];
    workflow.program(program).rule.to_string()
}

fn is_relevant(saving: f64, timeline: &Timeline) -> bool {
    saving >= LEAST * timeline.length() as f64 && saving >= LEAST_NS
}

/// CPU time of the steps, ns.
fn work(steps: &[Step]) -> f64 {
    steps.iter().map(|step| step.cpu_ns).sum()
}

/// Share of the stretch in which nothing else of the run had work: only then does a faster stretch make the
/// run faster.
fn alone(timeline: &Timeline, steps: &[Step], from: i64, to: i64) -> f64 {
    let own: HashSet<ProcessId> = steps
        .iter()
        .flat_map(|step| step.members.iter().copied())
        .collect();
    let mut busy = Vec::new();
    for instance in &timeline.instances {
        if own.contains(&instance.process) || instance.is_orchestrator {
            continue;
        }
        for piece in timeline.pieces_within(instance.process, from, to) {
            let shares = timeline.shares(piece);
            if crate::timeline::sum_of(shares, |s| s.is_active() || s.is_storage()) > 0.5 {
                busy.push((piece.from.max(from), piece.to.min(to)));
            }
        }
    }
    busy.sort_unstable();
    let busy: i64 = crate::intervals::union(busy)
        .iter()
        .map(|&(from, to)| to - from)
        .sum();
    1.0 - busy as f64 / (to - from).max(1) as f64
}
