//! Patterns of workflows: how the processes of one step feed those of another.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::Direction;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;

use super::groups::{Members, RuleGraph};
use super::{Dag, EdgeKind, Node};

/// Pattern of the data from one step to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Motif {
    /// One process to one process.
    Chain,
    /// Each of several to one of its own: a map in parallel.
    ParallelMap,
    /// One to several.
    FanOut,
    /// Several to one, or to each of a few.
    FanIn,
    /// Each to all.
    AllToAll,
    /// To some that overlap: a neighbourhood.
    Overlap,
}

impl Motif {
    /// The pattern in words.
    pub const fn name(self) -> &'static str {
        match self {
            Motif::Chain => "chain",
            Motif::ParallelMap => "parallel map",
            Motif::FanOut => "fan-out",
            Motif::FanIn => "fan-in",
            Motif::AllToAll => "all to all",
            Motif::Overlap => "overlapping",
        }
    }
}

/// Data that goes from the processes of one group to those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The sender: a node of the rule graph.
    pub from: NodeIndex,
    /// The receiver.
    pub to: NodeIndex,
    /// Processes that send.
    pub senders: usize,
    /// Processes that receive.
    pub receivers: usize,
    /// Pairs of them.
    pub pairs: usize,
    /// The pattern that they form.
    pub motif: Motif,
}

/// The flows between steps, through files and channels from process to process, in the order of the rule
/// graph's nodes.
pub fn flows(dag: &Dag, rules: &RuleGraph) -> Vec<Flow> {
    let mut pairs: BTreeMap<(usize, usize), BTreeSet<(u32, u32)>> = BTreeMap::new();
    let mut add = |from: NodeIndex, to: NodeIndex| {
        let groups = (rules.group_of[from.index()], rules.group_of[to.index()]);
        if groups.0 != groups.1 {
            let ends = (from.index() as u32, to.index() as u32);
            pairs
                .entry((groups.0.index(), groups.1.index()))
                .or_default()
                .insert(ends);
        }
    };
    for edge in dag
        .graph
        .edge_references()
        .filter(|e| e.weight().kind.is_data() && e.weight().kind != EdgeKind::Update)
    {
        match (dag.graph[edge.source()], dag.graph[edge.target()]) {
            (Node::Process { .. }, Node::Process { .. }) => add(edge.source(), edge.target()),
            (Node::File { .. }, Node::Process { .. }) => {
                for writer in dag
                    .graph
                    .neighbors_directed(edge.source(), Direction::Incoming)
                {
                    if matches!(dag.graph[writer], Node::Process { .. }) {
                        add(writer, edge.target());
                    }
                }
            }
            _ => {}
        }
    }
    let is_step = |group: usize| {
        let group = NodeIndex::new(group);
        matches!(rules.graph[group].members, Members::Processes { .. })
    };
    pairs
        .into_iter()
        .filter(|((from, to), _)| is_step(*from) && is_step(*to))
        .map(|((from, to), pairs)| flow(from, to, &pairs))
        .collect()
}

fn flow(from: usize, to: usize, pairs: &BTreeSet<(u32, u32)>) -> Flow {
    let (mut outs, mut ins) = (BTreeMap::new(), BTreeMap::new());
    for &(a, b) in pairs {
        *outs.entry(a).or_insert(0_usize) += 1;
        *ins.entry(b).or_insert(0_usize) += 1;
    }
    let (senders, receivers) = (outs.len(), ins.len());
    let most_out = outs.values().copied().max().unwrap_or(0);
    let most_in = ins.values().copied().max().unwrap_or(0);
    let motif = match (senders, receivers) {
        (1, 1) => Motif::Chain,
        (1, _) => Motif::FanOut,
        (_, 1) => Motif::FanIn,
        _ if most_out == 1 && most_in == 1 => Motif::ParallelMap,
        _ if most_out == 1 => Motif::FanIn,
        _ if most_in == 1 => Motif::FanOut,
        _ if pairs.len() == senders * receivers => Motif::AllToAll,
        _ => Motif::Overlap,
    };
    Flow {
        from: NodeIndex::new(from),
        to: NodeIndex::new(to),
        senders,
        receivers,
        pairs: pairs.len(),
        motif,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn motif(pairs: &[(u32, u32)]) -> Motif {
        flow(0, 1, &pairs.iter().copied().collect()).motif
    }

    #[test]
    fn patterns_are_distinguished() {
        assert_eq!(motif(&[(1, 10)]), Motif::Chain);
        assert_eq!(motif(&[(1, 10), (2, 20), (3, 30)]), Motif::ParallelMap);
        assert_eq!(motif(&[(1, 10), (1, 20), (1, 30)]), Motif::FanOut);
        assert_eq!(motif(&[(1, 10), (2, 10), (3, 10)]), Motif::FanIn);
        // Three bands of two tiles each, each band to one table.
        assert_eq!(motif(&[(1, 10), (2, 10), (3, 20), (4, 20)]), Motif::FanIn);
        assert_eq!(motif(&[(1, 10), (1, 20), (2, 30), (2, 40)]), Motif::FanOut);
        assert_eq!(
            motif(&[(1, 10), (1, 20), (2, 10), (2, 20)]),
            Motif::AllToAll
        );
        // Each difference is of two neighbours.
        assert_eq!(motif(&[(1, 10), (2, 10), (2, 20), (3, 20)]), Motif::Overlap);
    }
}
