//! Finds the steps that limit a run, and when: Battré et al. over time windows on any recorded workflow.
//!
//! [`analyse`] is the entry. Processes become tasks ([`tasks`]) and the run is cut into windows
//! ([`windows`]). Algorithms 1 to 3 are applied to each window ([`algorithm`]). Their results are merged
//! into intervals and given a cause ([`cause`]).

pub mod algorithm;
pub mod cause;
pub mod chart;
pub mod facts;
mod mount;
mod resource;
mod rests;
mod result;
pub mod tasks;
pub mod windows;

pub use resource::{Confidence, Resource};
pub use result::{Bottleneck, Bottlenecks, Cause, Options, Subject, Window, Without};
use tasks::Tasks;

use crate::analysis::bottlenecks::result::lives;
use crate::graph::Dag;
use crate::intervals::union;
use crate::model::{Programs, Workflow};
use crate::timeline::Timeline;

/// Finds the bottlenecks of a run. `names` groups the programs of the processes, one name for each. With
/// `split`, a group that stands at several places of the graph becomes several tasks.
pub fn analyse(
    workflow: &Workflow,
    dag: &Dag,
    timeline: &Timeline,
    names: &[String],
    split: bool,
    options: Options,
) -> Bottlenecks {
    let tasks = tasks::tasks(workflow, dag, timeline, names, split);
    let edges: Vec<(usize, usize)> = tasks.edges.iter().map(|e| (e.from, e.to)).collect();
    let graph = algorithm::contract(tasks.tasks.len(), &edges);
    let window_ns = options
        .window_ns
        .unwrap_or_else(|| windows::default_window(timeline.length()));
    let span = complete_windows(timeline, window_ns);
    let boundaries = windows::boundaries(span, &tasks, window_ns);
    let mut result = Bottlenecks {
        tasks,
        windows: Vec::new(),
        found: Vec::new(),
        without: Vec::new(),
        options,
        window_ns,
        span,
        is_partial: timeline.is_partial,
        graph,
        causes: Vec::new(),
    };
    result.windows = rests::examine(&result, timeline, boundaries);
    result.found = merge(&result, timeline);
    result.without = without(&result);
    result.causes = cause::causes(&result, timeline);
    result
}

/// The interval to examine. If the run goes on or was cut short, it ends with the last complete window: a
/// shorter window has no verdict.
fn complete_windows(timeline: &Timeline, window_ns: i64) -> (i64, i64) {
    let (from, to) = timeline.span;
    match timeline.is_partial {
        true => (from, to - (to - from) % window_ns.max(1)),
        false => (from, to),
    }
}

/// Group names by rule, which is the default grouping.
pub fn by_rule(workflow: &Workflow) -> Vec<String> {
    let programs = Programs::of(workflow);
    let rule = |stint| workflow.program(stint).rule.to_string();
    programs.stints.iter().map(rule).collect()
}

/// Joins the windows with the same bottleneck, cut to the intervals in which the bottleneck was alive.
fn merge(result: &Bottlenecks, timeline: &Timeline) -> Vec<Bottleneck> {
    let length = result.length().max(1) as f64;
    let mut all = Vec::new();
    for vertex in 0..result.graph.members.len() {
        for by_single in [false, true] {
            let is_it = |&w: &usize| {
                let found = &result.windows[w].found;
                found.cpu[vertex] && found.by_single == by_single
            };
            let flagged: Vec<usize> = (0..result.windows.len()).filter(is_it).collect();
            if flagged.is_empty() {
                continue;
            }
            let lives = lives(result, &result.graph.members[vertex]);
            let kind = (vertex, by_single);
            for phase in cause::phases(result, timeline, kind, &flagged) {
                let mean = mean(result, &phase, |window| match by_single {
                    true => window.single[vertex],
                    false => window.pt[vertex],
                });
                let intervals = intervals(result, &phase, &lives);
                all.push(cause::of_tasks(
                    result, timeline, kind, intervals, mean, length,
                ));
            }
        }
    }
    for edge in 0..result.graph.edges.len() {
        let flagged: Vec<usize> = (0..result.windows.len())
            .filter(|&w| result.windows[w].found.io[edge])
            .collect();
        if flagged.is_empty() {
            continue;
        }
        let members: Vec<usize> = (0..result.tasks.edges.len())
            .filter(|&e| result.graph.edge_of[e] == Some(edge))
            .collect();
        let carriers = |&e: &usize| result.tasks.edges[e].carriers(timeline);
        let carriers: Vec<usize> = members.iter().flat_map(carriers).collect();
        let lives = lives(result, &carriers);
        let mean = mean(result, &flagged, |window| window.st[edge]);
        let intervals = intervals(result, &flagged, &lives);
        all.push(cause::of_edges(
            result, timeline, &members, intervals, mean, length,
        ));
    }
    all.sort_by_key(|found| std::cmp::Reverse(found.ns));
    all
}

fn intervals(result: &Bottlenecks, flagged: &[usize], lives: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let within = |&w: &usize| rests::within(lives, &result.windows[w]);
    union(flagged.iter().flat_map(within).collect())
}

fn mean(result: &Bottlenecks, flagged: &[usize], of: impl Fn(&Window) -> Option<f64>) -> f64 {
    let (mut sum, mut weight) = (0.0, 0.0);
    for &w in flagged {
        let window = &result.windows[w];
        if let Some(share) = of(window) {
            let length = (window.to - window.from) as f64;
            sum += share * length;
            weight += length;
        }
    }
    if weight > 0.0 { sum / weight } else { 0.0 }
}

fn without(result: &Bottlenecks) -> Vec<(Without, i64)> {
    let mut found: Vec<(i64, i64)> = result
        .found
        .iter()
        .flat_map(|b| b.intervals.iter().copied())
        .collect();
    found.sort_unstable();
    let found = union(found);
    let steps = rests::steps(&result.tasks);
    let mut times = std::collections::BTreeMap::new();
    for window in &result.windows {
        let is_known = window.pt.iter().any(Option::is_some);
        for (from, to) in rests::rest(&rests::within(&found, window), window.from, window.to) {
            let alive = rests::overlap(&steps, from, to);
            let why = match is_known {
                true => Without::Balanced,
                false => Without::Unknown,
            };
            for (why, ns) in [(why, alive), (Without::Nothing, to - from - alive)] {
                *times.entry(why).or_insert(0) += ns;
            }
        }
    }
    let mut times: Vec<_> = times.into_iter().filter(|&(_, ns)| ns > 0).collect();
    times.sort_by_key(|&(_, ns)| -ns);
    times
}
