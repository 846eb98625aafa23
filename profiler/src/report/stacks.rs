//! Flame graphs: sampled call stacks folded by step, and along the critical path.

use std::collections::HashMap;

use serde::Serialize;

use super::rules::Numbers;
use crate::analysis::critical_path::CriticalPath;
use crate::analysis::hot;
use crate::model::Workflow;
use crate::stacks::{Flame, FunctionId, Sample, Samples};

/// Most nodes of a graph; those with the fewest samples are left out.
const MOST_NODES: usize = 4_000;
/// Most steps that have a graph of their own.
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
    samples: u64,
    function: Vec<u32>,
    /// Place of the caller among the nodes; -1: outermost.
    caller: Vec<i64>,
    /// Samples of the node with all that it calls.
    all: Vec<u64>,
    own: Vec<u64>,
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
    let mut by_rule: HashMap<usize, Vec<&Sample>> = HashMap::new();
    for sample in &samples.samples {
        let rule = numbers.of_image(&workflow.images[sample.image]);
        by_rule.entry(rule).or_default().push(sample);
    }
    let mut groups: Vec<(Option<usize>, Vec<&Sample>)> = by_rule
        .into_iter()
        .map(|(rule, samples)| (Some(rule), samples))
        .collect();
    groups.sort_by_key(|(rule, samples)| (std::cmp::Reverse(samples.len()), *rule));
    groups.truncate(MOST_STEPS);
    let on_path = hot::on_path(samples, workflow, path);
    let on_path: Vec<&Sample> = on_path.into_iter().map(|(sample, _)| sample).collect();
    if !on_path.is_empty() {
        groups.insert(0, (None, on_path));
    }
    let mut stacks = Stacks {
        period_ns: samples.period_ns,
        ..Stacks::default()
    };
    let mut places = HashMap::new();
    for (rule, own) in groups {
        let flame = Flame::of(samples, own);
        let graph = stacks.graph(samples, rule, &flame, &mut places);
        stacks.graphs.push(graph);
    }
    stacks
}

impl Stacks {
    fn graph(
        &mut self,
        samples: &Samples,
        rule: Option<usize>,
        flame: &Flame,
        places: &mut HashMap<FunctionId, u32>,
    ) -> Graph {
        let least = least(flame);
        let mut graph = Graph {
            rule,
            samples: flame.samples,
            function: Vec::new(),
            caller: Vec::new(),
            all: Vec::new(),
            own: Vec::new(),
        };
        let mut kept: Vec<Option<i64>> = Vec::with_capacity(flame.nodes.len());
        for node in &flame.nodes {
            // A caller has no fewer samples, so it is kept, too.
            if node.all < least {
                kept.push(None);
                continue;
            }
            let caller = node.caller.and_then(|caller| kept[caller as usize]);
            kept.push(Some(graph.function.len() as i64));
            graph
                .function
                .push(self.function(samples, node.function, places));
            graph.caller.push(caller.unwrap_or(-1));
            graph.all.push(node.all);
            graph.own.push(node.own);
        }
        graph
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

/// Fewest samples of a node that is kept.
fn least(flame: &Flame) -> u64 {
    let mut all: Vec<u64> = flame.nodes.iter().map(|node| node.all).collect();
    if all.len() <= MOST_NODES {
        return 0;
    }
    all.sort_unstable_by_key(|&count| std::cmp::Reverse(count));
    all[MOST_NODES] + 1
}
