//! Locks of files that make processes take turns, and the length of the run without the waits for them.

use std::collections::{BTreeMap, BTreeSet};

use flowtrace_render::units;

use crate::analysis::bottlenecks::Confidence;
use crate::analysis::bound::Bound;
use crate::analysis::findings::Finding;
use crate::analysis::serial::LEAST_NS;
use crate::intervals::{at_once, union};
use crate::model::{FileIndex, ProcessId};
use crate::paths::relative;
use crate::timeline::LockWait;

/// The lock of one file.
pub(super) struct Turns {
    /// Intervals in which a process waited for the lock, in order.
    pub(super) intervals: Vec<(i64, i64)>,
    pub(super) finding: Finding,
}

/// Most names of steps in a sentence; more are counted.
const NAMED: usize = 2;

/// The locks for which processes waited, the greatest saving first.
pub(super) fn turns(bound: &Bound<'_>) -> Vec<Turns> {
    let mut waits: BTreeMap<FileIndex, Vec<&LockWait>> = BTreeMap::new();
    for wait in &bound.timeline.lock_waits {
        waits.entry(wait.file).or_default().push(wait);
    }
    // The saving is at most the wait. Short waits cannot become a finding, and need no prediction: there
    // may be many locks.
    let waited = |waits: &[&LockWait]| waits.iter().map(|wait| wait.to - wait.from).sum::<i64>();
    waits.retain(|_, waits| waited(waits) as f64 >= LEAST_NS);
    let mut found: Vec<Turns> = waits
        .into_iter()
        .map(|(file, waits)| of_lock(bound, file, &waits))
        .collect();
    found.sort_by_key(|one| -one.finding.saving_ns);
    found
}

fn of_lock(bound: &Bound<'_>, file: FileIndex, waits: &[&LockWait]) -> Turns {
    let mut intervals: Vec<(i64, i64)> = waits.iter().map(|wait| (wait.from, wait.to)).collect();
    intervals.sort_unstable();
    let waited: i64 = intervals.iter().map(|(from, to)| to - from).sum();
    let most_waiting = at_once(&intervals);
    let intervals = union(intervals);
    let length = bound.path.length_ns();
    let could = bound.without_lock(waits);
    let path = bound.workflow.file(file).path.as_deref();
    let cwd = bound.workflow.runs.first().map_or("", |run| &*run.cwd);
    let name = path.map_or_else(
        || "a file without a name".into(),
        |path| units::shorten_path(&units::plain(relative(path, cwd)), 48),
    );
    let processes: BTreeSet<ProcessId> = waits
        .iter()
        .flat_map(|wait| [wait.process, wait.by])
        .collect();
    let waiters = steps(waits.iter().map(|wait| rule(bound, wait.process, wait.to)));
    let holders = steps(
        waits
            .iter()
            .map(|wait| rule(bound, at_work_for(bound, wait), wait.to)),
    );
    let most = waiters.first().map(|(name, _)| name.clone());
    let holding = match most == holders.first().map(|(name, _)| name.clone()) {
        true => String::new(),
        false => format!(" while {} runs with it", named(&holders)),
    };
    Turns {
        intervals,
        finding: Finding {
            kind: "lock",
            title: format!(
                "the lock on {name} lets one of up to {} {} go on at a time{holding}: the run takes {:.1} times as long for it",
                most_waiting + 1,
                named(&waiters),
                length as f64 / could.max(1) as f64
            ),
            step: most,
            saving_ns: (length - could).max(0),
            evidence: format!(
                "{} took part, and waited {}, for {} in all",
                units::counted(processes.len() as i64, "process", "processes"),
                units::counted(waits.len() as i64, "time", "times"),
                units::duration(waited)
            ),
            confidence: Confidence::High.name(),
            command: "waits",
            action: format!("shorten the time for which the lock on {name} is taken"),
            why: None,
        },
    }
}

/// The process that ran under the lock: of `flock FILE COMMAND` the command.
fn at_work_for(bound: &Bound<'_>, wait: &LockWait) -> ProcessId {
    let overlap = |id: ProcessId| {
        let instance = bound.timeline.instance(id);
        instance.to.min(wait.to) - instance.from.max(wait.from)
    };
    let children = bound.children(wait.by).iter().copied();
    let longest = children
        .map(|id| (overlap(id), id))
        .filter(|one| one.0 > 0)
        .max();
    longest.map_or(wait.by, |(_, id)| id)
}

fn rule(bound: &Bound<'_>, id: ProcessId, ns: i64) -> String {
    let programs = &bound.timeline.programs;
    let instance = bound.timeline.instance(id);
    let at = ns.clamp(instance.from, (instance.to - 1).max(instance.from));
    let stint = &programs.stints[programs.at(id, at)];
    bound.workflow.program(stint).rule.to_string()
}

/// Names with their number of occurrences, the most frequent first.
fn steps(names: impl Iterator<Item = String>) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|one| std::cmp::Reverse(one.1));
    counts
}

fn named(steps: &[(String, usize)]) -> String {
    let names = steps.iter().take(NAMED);
    let names: Vec<String> = names
        .map(|(name, _)| units::shorten(&units::plain(name), 32))
        .collect();
    match steps.len().saturating_sub(NAMED) {
        0 => names.join(" and "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
