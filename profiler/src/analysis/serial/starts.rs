//! Programs that are started again and again for little work each time. One run for all of it would fork, execute
//! and link once, and wait once for the device.

use std::collections::BTreeMap;

use super::is_relevant;
use crate::analysis::bound::Bound;
use crate::managers::{Runner, runner_of_process};
use crate::model::ProcessId;
use crate::timeline::{State, sum_of};

/// Least number of runs that are many.
const MANY: usize = 50;
/// Mean CPU time of a run above which it may have work of its own, ns. An interpreter takes longer to start; so
/// does the work of many programs.
const SHORT_NS: f64 = 5e6;
/// The same, as a multiple of the CPU time of the shortest run of any program: that is a start, and nothing else.
const LIKE_SHORTEST: f64 = 4.0;
/// Share of their time that the starts must have.
const MOSTLY: f64 = 0.5;

/// Many short runs of one program.
#[derive(Clone, Debug, PartialEq)]
pub struct Starts {
    /// The process that runs them.
    pub runner: ProcessId,
    /// Rule of the runner.
    pub runner_name: String,
    /// Rule of the runs.
    pub name: String,
    /// Begin and end of each run, ns.
    pub runs: Vec<(i64, i64)>,
    /// Time for which all of them were at work, ns.
    pub took_ns: f64,
    /// The part of that before they read a file, and after their last use of one, ns.
    pub start_ns: f64,
    /// The part in calls that wait until the device has the data, ns.
    pub sync_ns: f64,
    /// Time that the run could save with one run for all, ns: at most what the critical path allows.
    pub saving_ns: i64,
}

/// Finds the programs that a script, or another program, starts many times, the largest saving first.
pub(crate) fn starts(bound: &Bound<'_>) -> Vec<Starts> {
    let (workflow, timeline) = (bound.workflow, bound.timeline);
    let is_program = |&id: &ProcessId| {
        bound.children(id).is_empty() && workflow.images(id).iter().any(|image| image.is_exec)
    };
    let programs: Vec<ProcessId> = workflow.process_ids().filter(is_program).collect();
    let cpu = |id: ProcessId| timeline.instance(id).cpu_ns();
    let known = programs.iter().map(|&id| cpu(id)).filter(|&ns| ns > 0.0);
    let most = SHORT_NS.min(LIKE_SHORTEST * known.fold(f64::INFINITY, f64::min));
    let mut groups: BTreeMap<(ProcessId, &str), Vec<ProcessId>> = BTreeMap::new();
    for id in programs {
        if let Some(runner) = script_of(bound, id) {
            let rule = &*workflow.last_image(id).rule;
            groups.entry((runner, rule)).or_default().push(id);
        }
    }
    groups.retain(|_, runs| {
        let cpu: f64 = runs.iter().map(|&id| cpu(id)).sum();
        runs.len() >= MANY && cpu <= most * runs.len() as f64
    });
    let mut found: Vec<Starts> = groups
        .into_iter()
        .filter_map(|((runner, rule), runs)| judge(bound, (runner, rule), &runs))
        .filter(|one| is_relevant(one.saving_ns as f64, timeline))
        .collect();
    found.sort_by_key(|one| -one.saving_ns);
    found
}

/// The nearest process above that has a program of its own: a shell copies itself for a loop, a pipeline or
/// `$(…)`. `None`: a manager, whose jobs have inputs and outputs of their own.
fn script_of(bound: &Bound<'_>, id: ProcessId) -> Option<ProcessId> {
    let workflow = bound.workflow;
    let parent = |id: &ProcessId| workflow.process(*id).parent;
    let mut above = std::iter::successors(parent(&id), parent);
    let is_copy = |id: &ProcessId| workflow.images(*id).iter().all(|image| image.is_fork);
    let script = above.find(|id| !is_copy(id) || parent(id).is_none())?;
    (runner_of_process(workflow, script) != Some(Runner::Manager)).then_some(script)
}

/// The parts of a run, ns.
struct Run {
    took_ns: f64,
    start_ns: f64,
    sync_ns: f64,
}

impl Run {
    /// The work with the data of files stays. That is the time between the first read and the last use, but for
    /// the waits until the device has the data.
    fn of(bound: &Bound<'_>, id: ProcessId) -> Run {
        let timeline = bound.timeline;
        let instance = timeline.instance(id);
        let at_work = |from, to| sum_of(&timeline.within(id, from, to), State::is_at_work);
        let accesses = bound.workflow.accesses_of(id);
        let reads = accesses.iter().filter_map(|access| access.read_ns);
        let writes = accesses.iter().filter_map(|access| access.write_ns);
        let first = reads.clone().map(|span| span.0).min();
        let last = reads.chain(writes).map(|span| span.1).max();
        let took_ns = at_work(instance.from, instance.to);
        let work = match first.zip(last) {
            Some((first, last)) if first < last => at_work(first, last),
            _ => 0.0,
        };
        let synced: i64 = accesses.iter().map(|access| access.sync_time_ns).sum();
        Run {
            took_ns,
            start_ns: took_ns - work,
            sync_ns: work.min(synced as f64),
        }
    }
}

fn judge(
    bound: &Bound<'_>,
    (runner, rule): (ProcessId, &str),
    ids: &[ProcessId],
) -> Option<Starts> {
    let runs: Vec<Run> = ids.iter().map(|&id| Run::of(bound, id)).collect();
    let sum = |of: fn(&Run) -> f64| runs.iter().map(of).sum::<f64>();
    let (took_ns, start_ns, sync_ns) = (
        sum(|run| run.took_ns),
        sum(|run| run.start_ns),
        sum(|run| run.sync_ns),
    );
    if start_ns + sync_ns < MOSTLY * took_ns {
        return None;
    }
    // One run remains.
    let others = 1.0 - 1.0 / ids.len() as f64;
    let share = |run: &Run| others * (run.start_ns + run.sync_ns) / run.took_ns.max(1.0);
    let shares = ids.iter().zip(&runs).map(|(&id, run)| (id, share(run)));
    let lives = ids.iter().map(|&id| bound.timeline.instance(id));
    Some(Starts {
        runner,
        runner_name: bound.workflow.rule(runner).to_string(),
        name: rule.to_owned(),
        runs: lives.map(|instance| (instance.from, instance.to)).collect(),
        took_ns,
        start_ns,
        sync_ns,
        saving_ns: bound.without(shares),
    })
}
