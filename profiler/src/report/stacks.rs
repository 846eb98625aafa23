//! Flame graphs: sampled call stacks folded by step, and along the critical path.

use std::collections::HashMap;

use serde::Serialize;

use super::rules::Numbers;
use crate::analysis::critical_path::CriticalPath;
use crate::analysis::hot;
use crate::model::Workflow;
use crate::stacks::{Flame, FunctionId, Sample, Samples};

/// Most nodes of a graph; those with the least time are left out.
const MOST_NODES: usize = 4_000;
/// Most graphs of steps, of each kind.
const MOST_STEPS: usize = 60;

/// All graphs.
#[derive(Debug, Default, Serialize)]
pub(super) struct Stacks {
    /// CPU time for which a sample stands.
    period_ns: i64,
    /// Names of functions, and where each one is.
    name: Vec<String>,
    place: Vec<String>,
    /// 1 for a function of the kernel, 2 for one that is known by its address alone, 0 for others.
    kind: Vec<u8>,
    graphs: Vec<Graph>,
}

/// One graph, as columns of its nodes; a caller comes before those that it calls.
#[derive(Debug, Serialize)]
struct Graph {
    /// Number of the step; `null`: the critical path.
    rule: Option<usize>,
    /// The stacks are those of threads that have waited, not of those on a CPU.
    waits: bool,
    samples: u64,
    time_ns: i64,
    function: Vec<u32>,
    /// Place of the caller among the nodes; -1: outermost.
    caller: Vec<i64>,
    /// Time of the node with all that it calls, ns.
    all_ns: Vec<i64>,
    own_ns: Vec<i64>,
}

pub(super) fn of(
    workflow: &Workflow,
    samples: Option<&Samples>,
    path: &CriticalPath,
    numbers: &Numbers,
) -> Stacks {
    let Some(samples) = samples else {
        return Stacks::default();
    };
    let mut stacks = Stacks {
        period_ns: samples.period_ns,
        ..Stacks::default()
    };
    let mut places = HashMap::new();
    let on_path = hot::on_path(samples, workflow, path);
    let on_path: Vec<&Sample> = on_path.into_iter().map(|(sample, _)| sample).collect();
    if !on_path.is_empty() {
        let flame = Flame::of(samples, on_path);
        stacks.add(samples, None, false, &flame, &mut places);
    }
    for (which, waits) in [(&samples.samples, false), (&samples.waits, true)] {
        for (rule, flame) in by_rule(samples, which, workflow, numbers) {
            stacks.add(samples, Some(rule), waits, &flame, &mut places);
        }
    }
    stacks
}

/// The graph of each step, the one with most time first.
fn by_rule(
    samples: &Samples,
    which: &[Sample],
    workflow: &Workflow,
    numbers: &Numbers,
) -> Vec<(usize, Flame)> {
    let mut by_rule: HashMap<usize, Vec<&Sample>> = HashMap::new();
    for sample in which {
        let rule = numbers.of_image(&workflow.images[sample.image]);
        by_rule.entry(rule).or_default().push(sample);
    }
    let flames = by_rule.into_iter();
    let mut flames: Vec<(usize, Flame)> = flames
        .map(|(rule, which)| (rule, Flame::of(samples, which)))
        .collect();
    flames.sort_by_key(|(rule, flame)| (std::cmp::Reverse(flame.time_ns), *rule));
    flames.truncate(MOST_STEPS);
    flames
}

impl Stacks {
    fn add(
        &mut self,
        samples: &Samples,
        rule: Option<usize>,
        waits: bool,
        flame: &Flame,
        places: &mut HashMap<FunctionId, u32>,
    ) {
        let least = least(flame);
        let mut graph = Graph {
            rule,
            waits,
            samples: flame.samples,
            time_ns: flame.time_ns,
            function: Vec::new(),
            caller: Vec::new(),
            all_ns: Vec::new(),
            own_ns: Vec::new(),
        };
        let mut kept: Vec<Option<i64>> = Vec::with_capacity(flame.nodes.len());
        for node in &flame.nodes {
            // A caller has no less time, so it is kept, too.
            if node.all_ns < least {
                kept.push(None);
                continue;
            }
            let caller = node.caller.and_then(|caller| kept[caller as usize]);
            kept.push(Some(graph.function.len() as i64));
            graph
                .function
                .push(self.function(samples, node.function, places));
            graph.caller.push(caller.unwrap_or(-1));
            graph.all_ns.push(node.all_ns);
            graph.own_ns.push(node.own_ns);
        }
        self.graphs.push(graph);
    }

    fn function(
        &mut self,
        samples: &Samples,
        id: FunctionId,
        places: &mut HashMap<FunctionId, u32>,
    ) -> u32 {
        *places.entry(id).or_insert_with(|| {
            let function = samples.function(id);
            self.name.push(function.name.to_string());
            self.place.push(function.place(None));
            self.kind.push(match function.has_symbols {
                _ if function.is_of_kernel() => 1,
                true => 0,
                false => 2,
            });
            self.name.len() as u32 - 1
        })
    }
}

/// Least time of a node that is kept, ns.
fn least(flame: &Flame) -> i64 {
    let mut all: Vec<i64> = flame.nodes.iter().map(|node| node.all_ns).collect();
    if all.len() <= MOST_NODES {
        return 0;
    }
    all.sort_unstable_by_key(|&time_ns| std::cmp::Reverse(time_ns));
    all[MOST_NODES] + 1
}
