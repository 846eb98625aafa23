//! The step or channel that limits a run now.

use flowtrace_render::units::plain;
use flowtrace_schema::{Result, Trace};
use serde::Serialize;

use crate::analysis::bottlenecks::chart::subject_name;
use crate::analysis::bottlenecks::{Bottleneck, Bottlenecks, Options, Subject, analyse, by_rule};
use crate::intervals::union;
use crate::load::load;
use crate::{graph, timeline};

/// Length of a window, ns, and number of windows that are examined.
pub(super) const WINDOW_NS: i64 = 1_000_000_000;
pub(super) const WINDOWS: usize = 30;
/// Time before the end of the last complete window that counts as now, ns.
const NOW_NS: i64 = 5_000_000_000;
/// Most bars.
const MOST: usize = 6;

/// What limits a run now.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Limiting {
    /// The step or channel; `None`: none does, or it is not known yet.
    pub name: Option<String>,
    /// True for a channel.
    pub is_channel: bool,
    /// The resource that it lacks.
    pub resource: &'static str,
    /// Confidence in that.
    pub confidence: &'static str,
    /// Its share of the last seconds.
    pub share: f64,
    /// Numbers of its steps.
    pub steps: Vec<usize>,
    /// Numbers of the steps at the ends of its channels.
    pub edges: Vec<(usize, usize)>,
    /// End of the last complete window, ns.
    pub until_ns: i64,
    /// Begin of the first window, ns.
    pub from_ns: i64,
    /// Length of a window, ns.
    pub window_ns: i64,
    /// All that limited the run in the windows, the longest first.
    pub bars: Vec<Bar>,
}

/// A step or channel that limited the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// Its number, if it is one step.
    pub step: Option<usize>,
    /// Begin and end of each interval, ns.
    pub intervals: Vec<(i64, i64)>,
}

/// Searches a copy of the last seconds of a trace. `number` numbers a step.
pub(super) fn limiting(
    trace: &Trace,
    from_ns: i64,
    number: impl Fn(&str) -> Option<usize>,
) -> Result<Limiting> {
    let workflow = load(trace)?;
    let timeline = timeline::read(trace, &workflow)?;
    let dag = graph::build(&workflow);
    let options = Options {
        window_ns: Some(WINDOW_NS),
        ..Options::default()
    };
    let names = by_rule(&workflow);
    let result = analyse(&workflow, &dag, &timeline, &names, true, options);
    let mut limiting = Limiting {
        until_ns: result.span.1.max(from_ns),
        from_ns,
        window_ns: WINDOW_NS,
        ..Limiting::default()
    };
    let now = |found: &Bottleneck| {
        let from = result.span.1 - NOW_NS;
        let within = found
            .intervals
            .iter()
            .map(|&(a, b)| (b.min(result.span.1) - a.max(from)).max(0));
        within.sum::<i64>()
    };
    let best = result.found.iter().max_by_key(|found| now(found));
    if let Some(found) = best.filter(|found| now(found) > 0) {
        limiting.name = Some(plain(&subject_name(&result, &found.subject)));
        limiting.is_channel = matches!(found.subject, Subject::Edges(_));
        limiting.resource = found.resource.name();
        limiting.confidence = found.confidence.name();
        limiting.share = now(found) as f64 / NOW_NS.min(result.span.1 - from_ns).max(1) as f64;
        (limiting.steps, limiting.edges) = places(&result, &found.subject, &number);
    }
    for found in &result.found {
        let name = plain(&subject_name(&result, &found.subject));
        let known = limiting.bars.iter_mut().find(|bar| bar.name == name);
        // The same step limits the run as a whole, and by single processes.
        if let Some(bar) = known {
            bar.intervals.extend(&found.intervals);
            bar.intervals.sort_unstable();
            bar.intervals = union(std::mem::take(&mut bar.intervals));
        } else if limiting.bars.len() < MOST {
            let step = match places(&result, &found.subject, &number).0[..] {
                [one] => Some(one),
                _ => None,
            };
            limiting.bars.push(Bar {
                name,
                step,
                intervals: found.intervals.clone(),
            });
        }
    }
    Ok(limiting)
}

fn places(
    result: &Bottlenecks,
    subject: &Subject,
    number: impl Fn(&str) -> Option<usize>,
) -> (Vec<usize>, Vec<(usize, usize)>) {
    let of = |task: usize| number(&result.tasks.tasks[task].group);
    match subject {
        Subject::Tasks(tasks) => (
            tasks.iter().filter_map(|&task| of(task)).collect(),
            Vec::new(),
        ),
        Subject::Edges(edges) => {
            let ends = |&edge: &usize| {
                let (from, to) = result.tasks.edges[edge].ends();
                Some((of(from)?, of(to)?))
            };
            (Vec::new(), edges.iter().filter_map(ends).collect())
        }
    }
}
