//! Time and failures of processes, by rule.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use flowtrace_schema::RunRow;

use crate::intervals::union;
use crate::managers::{self, Runner};
use crate::model::{ProcessId, Relation, Unopened, Workflow};
use crate::signals::signal_name;

/// The time of all images of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleTime {
    /// The rule.
    pub rule: Arc<str>,
    /// Processes whose last program is of the rule.
    pub processes: i64,
    /// CPU time of all images of the rule, ns, including forks without exec.
    pub cpu_ns: i64,
    /// Life time of the images that forked no process, ns: an image that waits for children is not slow
    /// itself. Images with unknown CPU time do not count.
    pub leaf_ns: i64,
    /// CPU time of the same images, ns.
    pub leaf_cpu_ns: i64,
    /// Time that these images waited for a CPU, ns.
    pub leaf_queue_ns: i64,
    /// Time that these images waited for storage, ns.
    pub leaf_storage_ns: i64,
    /// Time that a tracer had stopped these images, ns.
    pub leaf_tracer_ns: i64,
    /// Time in which at least one of these images lived, ns.
    pub span_ns: i64,
}

impl RuleTime {
    /// Time in which the images that forked no process neither ran nor could run, ns: waits for files or
    /// other processes. Threads that ran at the same time may hide some of it.
    pub fn blocked_ns(&self) -> i64 {
        (self.leaf_ns - self.leaf_cpu_ns - self.leaf_queue_ns - self.leaf_tracer_ns).max(0)
    }
}

/// The rules by CPU time, the most first.
pub fn by_rule(workflow: &Workflow) -> Vec<RuleTime> {
    let has_forked = workflow.have_forked();
    let mut rules: HashMap<&Arc<str>, RuleTime> = HashMap::new();
    let mut lives: HashMap<&Arc<str>, Vec<(i64, i64)>> = HashMap::new();
    for (at, image) in workflow.images.iter().enumerate() {
        let time = rules.entry(&image.rule).or_insert_with(|| RuleTime {
            rule: Arc::clone(&image.rule),
            processes: 0,
            cpu_ns: 0,
            leaf_ns: 0,
            leaf_cpu_ns: 0,
            leaf_queue_ns: 0,
            leaf_storage_ns: 0,
            leaf_tracer_ns: 0,
            span_ns: 0,
        });
        // In a mount session costs are not known, and so waits are not either.
        let is_known = image.cpu_ns.is_some();
        let cpu = image.cpu_ns.unwrap_or(0);
        time.cpu_ns += cpu;
        if is_known && !has_forked[at] {
            time.leaf_ns += image.end_ns.map_or(0, |end| end - image.start_ns);
            time.leaf_cpu_ns += cpu;
            time.leaf_queue_ns += image.run_queue_ns.unwrap_or(0);
            time.leaf_storage_ns += image.storage_ns.unwrap_or(0);
            time.leaf_tracer_ns += image.tracer_ns.unwrap_or(0);
            let life = image.end_ns.map(|end| (image.start_ns, end));
            lives.entry(&image.rule).or_default().extend(life);
        }
    }
    for (rule, mut lives) in lives {
        lives.sort_unstable();
        let lives = union(lives);
        if let Some(time) = rules.get_mut(rule) {
            time.span_ns = lives.iter().map(|(from, to)| to - from).sum();
        }
    }
    for id in workflow.process_ids() {
        if let Some(time) = rules.get_mut(&workflow.last_image(id).rule) {
            time.processes += 1;
        }
    }
    let mut rules: Vec<RuleTime> = rules.into_values().collect();
    rules.sort_by(|a, b| (b.cpu_ns, &a.rule).cmp(&(a.cpu_ns, &b.rule)));
    rules
}

/// Rules that were blocked for more than half of their life, the longest blocked first.
pub fn waiting(rules: &[RuleTime]) -> Vec<&RuleTime> {
    let mut waiting: Vec<&RuleTime> = rules
        .iter()
        .filter(|rule| rule.blocked_ns() > rule.leaf_ns / 2)
        .collect();
    waiting.sort_by(|a, b| (b.blocked_ns(), &a.rule).cmp(&(a.blocked_ns(), &b.rule)));
    waiting
}

/// The processes by which a workflow manager only asks the machine something: children of the manager, at most
/// of a shell of it, that soon failed and wrote no file, in a run that succeeded. `nvidia-smi` fails where there
/// is none, and nothing went wrong.
fn probes(workflow: &Workflow) -> HashSet<ProcessId> {
    /// Longest life of a probe, ns.
    const LONGEST: i64 = 1_000_000_000;
    if workflow.runs.iter().any(has_failed) {
        return HashSet::new();
    }
    let writers: HashSet<ProcessId> = workflow
        .accesses
        .iter()
        .filter(|access| access.relation() >= Relation::Write)
        .filter(|access| workflow.file(access.file).is_regular)
        .map(|access| access.process)
        .collect();
    let runner = |id: ProcessId| managers::runner_of_process(workflow, id);
    let is_asked_by_manager = |id: ProcessId| {
        let above = std::iter::successors(workflow.process(id).parent, |&id| {
            workflow.process(id).parent
        });
        let mut above =
            above.skip_while(|&id| matches!(runner(id), Some(Runner::Shell | Runner::Launcher)));
        above.next().is_some_and(|id| {
            runner(id) == Some(Runner::Manager) && !managers::is_make(&workflow.last_image(id).rule)
        })
    };
    workflow
        .process_ids()
        .filter(|&id| {
            let process = workflow.process(id);
            process.has_failed()
                && process.duration_ns().is_some_and(|ns| ns < LONGEST)
                && !writers.contains(&id)
                && is_asked_by_manager(id)
        })
        .collect()
}

/// The processes that failed, without those by which a manager only asked the machine something.
pub fn failed(workflow: &Workflow) -> HashSet<ProcessId> {
    let probes = probes(workflow);
    workflow
        .process_ids()
        .filter(|id| workflow.process(*id).has_failed() && !probes.contains(id))
        .collect()
}

/// Processes that ended by a signal or with another exit code than 0, with their rule and end, the most
/// frequent first; without those by which a manager only asked the machine something. Processes
/// that others ended count only if the run itself failed: in a run that succeeds that was meant.
pub fn failures(workflow: &Workflow) -> Vec<Failures> {
    let has_run_failed = workflow.runs.iter().any(has_failed);
    let failed = failed(workflow);
    let mut found: HashMap<(&Arc<str>, Ending), i64> = HashMap::new();
    for id in workflow.process_ids() {
        let process = workflow.process(id);
        if !(failed.contains(&id) || has_run_failed && process.was_cut_off()) {
            continue;
        }
        let code = process.exit_code.unwrap_or(0);
        let ending = match (process.exit_signal, &process.unopened) {
            (Some(signal), _) => Ending::Signal(signal),
            (None, Some(file)) => Ending::Unopened(code, file.clone()),
            (None, None) => Ending::Code(code),
        };
        let rule = &workflow.last_image(id).rule;
        *found.entry((rule, ending)).or_default() += 1;
    }
    let mut found: Vec<Failures> = found
        .into_iter()
        .map(|((rule, ending), count)| Failures {
            rule: Arc::clone(rule),
            ending,
            count,
        })
        .collect();
    // A signal is rarer and says more than a failing test of a script.
    let order = |f: &Failures| (!matches!(f.ending, Ending::Signal(_)), -f.count);
    found.sort_by(|a, b| (order(a), &a.rule, &a.ending).cmp(&(order(b), &b.rule, &b.ending)));
    found
}

/// True if the command of a run ended by a signal or with another code than 0.
pub(crate) fn has_failed(run: &RunRow) -> bool {
    run.exit_signal.is_some() || run.exit_code.is_some_and(|code| code != 0)
}

/// Processes of one rule that failed in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failures {
    /// The rule of their last image.
    pub rule: Arc<str>,
    /// Way in which they ended.
    pub ending: Ending,
    /// Number of processes.
    pub count: i64,
}

/// Way in which a failed process ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ending {
    /// By a signal.
    Signal(i64),
    /// With an exit code.
    Code(i64),
    /// With an exit code, shortly after it could not open a file.
    Unopened(i64, Unopened),
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ending::Code(code) => write!(f, "exit {code}"),
            Ending::Unopened(code, file) => write!(f, "exit {code} ({file})"),
            Ending::Signal(signal) => f.write_str(&signal_name(*signal)),
        }
    }
}
