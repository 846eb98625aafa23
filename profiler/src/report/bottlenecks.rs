//! The steps and channels that limited the run, over time.

use flowtrace_render::units::plain;
use flowtrace_schema::{Result, Trace};
use serde::Serialize;

use super::rules::Numbers;
use crate::analysis::bottlenecks::chart::subject_name;
use crate::analysis::bottlenecks::windows::default_window;
use crate::analysis::bottlenecks::{Bottleneck, Bottlenecks, Options, Subject, analyse};
use crate::analysis::critical_path::CriticalPath;
use crate::analysis::findings::{self, Verdict};
use crate::analysis::grouping::By;
use crate::analysis::hot;
use crate::graph::Dag;
use crate::intervals::divided;
use crate::model::Workflow;
use crate::stacks::Samples;
use crate::text::bottlenecks::answer;
use crate::timeline::Timeline;

/// Bars drawn; the others are counted.
const MOST: usize = 8;

#[derive(Debug, Serialize)]
pub(super) struct Limiting {
    /// The verdict of `summary`: the limit of the run, and what could be done about it.
    verdict: Verdict,
    /// The answer in one line.
    answer: String,
    /// The longest first.
    bars: Vec<Bar>,
    left_out: usize,
    /// Length of the windows that were examined, ns.
    window_ns: i64,
}

#[derive(Debug, Serialize)]
struct Bar {
    name: String,
    /// Number of the rule; `None`: a channel, or several steps that depend on each other.
    rule: Option<usize>,
    is_channel: bool,
    /// The resource that it lacked.
    resource: &'static str,
    /// Confidence in that.
    confidence: &'static str,
    /// Share of the run. Time in which several limited it is divided among them, so that all shares add up
    /// to at most 1.
    share: f64,
    ns: i64,
    /// Begin and end of each interval, in order, ns.
    intervals: Vec<(i64, i64)>,
}

impl Limiting {
    /// What to do first, with its gain.
    pub(super) fn action(&self) -> Option<&str> {
        self.verdict.action.as_deref()
    }
}

pub(super) fn of(
    workflow: &Workflow,
    timeline: &Timeline,
    (dag, path): (&Dag, &CriticalPath),
    numbers: &Numbers,
    (trace, samples): (&Trace, Option<&Samples>),
) -> Result<Limiting> {
    let by = By::Rule;
    let names = by.names(trace, workflow, timeline)?;
    let result = analyse(
        workflow,
        dag,
        timeline,
        &names,
        by.is_split(),
        Options {
            // A window narrower than a few pixels shows nothing, and each costs a search of all edges.
            window_ns: Some(default_window(timeline.length()).max(timeline.length() / 200)),
            ..Options::default()
        },
    );
    let mut verdict = findings::of_bottlenecks(workflow, timeline, &result, path);
    if let Some(samples) = samples {
        verdict.hot = hot::line(samples, workflow, path, verdict.step.as_deref());
    }
    Ok(limiting(&result, timeline, numbers, verdict))
}

fn limiting(
    result: &Bottlenecks,
    timeline: &Timeline,
    numbers: &Numbers,
    mut verdict: Verdict,
) -> Limiting {
    for finding in &mut verdict.findings {
        finding.title = plain(&finding.title);
        finding.evidence = plain(&finding.evidence);
        finding.action = plain(&finding.action);
        finding.step = finding.step.as_deref().map(plain);
    }
    verdict.action = verdict.action.as_deref().map(plain);
    verdict.why = verdict.why.as_deref().map(plain);
    verdict.bottleneck = verdict.bottleneck.as_deref().map(plain);
    verdict.step = verdict.step.as_deref().map(plain);
    let rule = |subject: &Subject| match subject {
        Subject::Tasks(tasks) => match tasks.as_slice() {
            [one] => numbers.named(&result.tasks.tasks[*one].group),
            _ => None,
        },
        Subject::Edges(_) => None,
    };
    let all: Vec<&[(i64, i64)]> = result.found.iter().map(|found| &*found.intervals).collect();
    let length = result.length().max(1) as f64;
    let times = divided(&all);
    let bar = |(found, time): (&Bottleneck, f64)| Bar {
        name: plain(&subject_name(result, &found.subject)),
        rule: rule(&found.subject),
        is_channel: matches!(found.subject, Subject::Edges(_)),
        resource: found.resource.name(),
        confidence: found.confidence.name(),
        share: time / length,
        ns: found.ns,
        intervals: found.intervals.clone(),
    };
    Limiting {
        verdict,
        answer: plain(&answer(result, timeline)),
        bars: result.found.iter().zip(times).take(MOST).map(bar).collect(),
        left_out: result.found.len().saturating_sub(MOST),
        window_ns: result.window_ns,
    }
}
