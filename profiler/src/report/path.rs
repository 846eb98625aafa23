//! The critical path: the chain of steps that decided how long the run took.

use serde::Serialize;

use super::processes::Kept;
use super::rules::Numbers;
use crate::analysis::critical_path::{CriticalPath, StepKind};
use crate::graph::lineage;
use crate::model::{ProcessId, Workflow};

#[derive(Debug, Serialize)]
pub(super) struct Path {
    length_ns: i64,
    start_ns: i64,
    end_ns: i64,
    /// Lower bound of the duration of the run, with unlimited cores and data dependencies only.
    by_data_alone_ns: i64,
    equal_paths: u64,
    /// The rules on the path, the largest contribution first.
    rules: Vec<RuleShare>,
    steps: Steps,
    /// For every process shown, the delay of its end that would not delay the run; `None`: no process waited
    /// for it.
    slack_ns: Vec<Option<i64>>,
}

#[derive(Debug, Serialize)]
struct RuleShare {
    rule: usize,
    processes: i64,
    ns: i64,
    /// Length of the path if the rule took half its time.
    halved_ns: i64,
}

/// The path in the order of time, in columns.
#[derive(Debug, Default, Serialize)]
struct Steps {
    /// Place of the process; `None`: it is not shown.
    process: Vec<Option<u32>>,
    rule: Vec<usize>,
    from_ns: Vec<i64>,
    to_ns: Vec<i64>,
    /// 0: it worked, 1: it woke late or the cause is not known, 2: it had not begun.
    kind: Vec<u8>,
    /// Number of shorter steps that are not shown.
    left_out: usize,
}

pub(super) fn of(
    workflow: &Workflow,
    path: &CriticalPath,
    numbers: &Numbers,
    kept: &Kept,
    most: usize,
) -> Path {
    let mut longest: Vec<_> = path.steps.iter().collect();
    if longest.len() > most {
        longest.sort_by_key(|step| (step.from_ns - step.to_ns, step.from_ns));
        longest.truncate(most);
        longest.sort_by_key(|step| (step.from_ns, step.to_ns));
    }
    let mut steps = Steps {
        left_out: path.steps.len() - longest.len(),
        ..Steps::default()
    };
    for step in longest {
        steps.process.push(kept.place(step.process));
        steps
            .rule
            .push(numbers.of_image(workflow.program(&step.program)));
        steps.from_ns.push(step.from_ns);
        steps.to_ns.push(step.to_ns);
        steps.kind.push(match step.kind {
            StepKind::Work => 0,
            StepKind::Late => 1,
            StepKind::NotBegun => 2,
            StepKind::Stopped => 3,
        });
    }
    let slack = |id: &ProcessId| path.slack_ns.get(id.0 as usize).copied().flatten();
    Path {
        length_ns: path.length_ns(),
        start_ns: path.start_ns,
        end_ns: path.end_ns,
        by_data_alone_ns: path.by_data_alone_ns(workflow, &lineage(workflow)),
        equal_paths: path.equal_paths,
        rules: path
            .by_rule(workflow)
            .into_iter()
            .map(|share| RuleShare {
                rule: numbers.get(&share.rule),
                processes: share.processes,
                ns: share.ns,
                halved_ns: share.halved_ns,
            })
            .collect(),
        steps,
        slack_ns: kept.ids().iter().map(slack).collect(),
    }
}
