//! Leaves out the fewest and weakest edges that keep the graph from being acyclic.
//!
//! A process is one node for its whole life, so a long-lived one closes cycles: make forks a child, and reads
//! the makefile that the child wrote; a workflow engine writes a job's script and reads its exit code. Rank
//! every process by its start, and every file version by the last started of its writers (and of those before
//! it that it builds on). Data edges then go from lower to higher or equal rank, except where a process read,
//! from a file or a pipe, data of a process that started later. So every cycle of data edges contains such a
//! *feedback* edge, and leaving out feedback edges is enough. Data wins over control: fork edges are tried
//! last.

use std::cmp::Reverse;

use petgraph::algo::{kosaraju_scc, toposort};
use petgraph::graph::{DiGraph, EdgeIndex};
use petgraph::visit::EdgeRef;

use super::order::Order;
use super::{Dropped, Edge, EdgeKind, Node};

/// Returns the graph without the edges that close cycles, and those edges. `ranks` has the rank
/// of every node.
pub(super) fn make(
    graph: DiGraph<Node, Edge>,
    ranks: &[u32],
) -> (DiGraph<Node, Edge>, Vec<Dropped>) {
    // is_cyclic_directed recurses, and forks may nest as deep as there are processes.
    if toposort(&graph, None).is_ok() {
        return (graph, Vec::new());
    }
    // An edge between two strongly connected components is on no cycle.
    let mut component = vec![0; graph.node_count()];
    for (i, nodes) in kosaraju_scc(&graph).into_iter().enumerate() {
        for node in nodes {
            component[node.index()] = i;
        }
    }
    let is_candidate = |edge: EdgeIndex| {
        let Some((from, to)) = graph.edge_endpoints(edge) else {
            return false;
        };
        let is_feedback = match (graph[edge].kind, graph[from]) {
            (EdgeKind::Fork, _) => true,
            (EdgeKind::Read | EdgeKind::Exec | EdgeKind::Pipe | EdgeKind::Socket, _) => {
                ranks[from.index()] >= ranks[to.index()]
            }
            (EdgeKind::Update | EdgeKind::Write | EdgeKind::Create, _) => false,
        };
        is_feedback && component[from.index()] == component[to.index()]
    };
    let mut candidates: Vec<EdgeIndex> =
        graph.edge_indices().filter(|&e| is_candidate(e)).collect();
    // The strongest first: those tried last find the cycles closed. Of forks the last first, because the data
    // that closes the cycle came in after the first fork.
    candidates.sort_by_key(|&edge| {
        let e = &graph[edge];
        let is_fork = e.kind == EdgeKind::Fork;
        let begin = if is_fork {
            e.first_ns.saturating_neg()
        } else {
            e.first_ns
        };
        (is_fork, Reverse(e.bytes()), begin, edge)
    });
    let mut is_out = vec![false; graph.edge_count()];
    for &edge in &candidates {
        is_out[edge.index()] = true;
    }
    let ends = |edge: EdgeIndex| {
        let (from, to) = graph.edge_endpoints(edge)?;
        Some((from.index() as u32, to.index() as u32))
    };
    let certain = graph
        .edge_indices()
        .filter(|edge| !is_out[edge.index()])
        .filter_map(ends);
    let Some(mut order) = Order::of(ranks, certain) else {
        unreachable!("edges that are no candidates never close a cycle");
    };
    for edge in candidates {
        if let Some((from, to)) = ends(edge) {
            is_out[edge.index()] = !order.add(from, to);
        }
    }
    let mut dropped: Vec<Dropped> = graph
        .edge_references()
        .filter(|edge| is_out[edge.id().index()])
        .map(|edge| Dropped {
            from: edge.source(),
            to: edge.target(),
            edge: *edge.weight(),
        })
        .collect();
    dropped.sort_by_key(|d| (d.from, d.to, d.edge.kind));
    let kept = graph.filter_map(
        |_, node| Some(*node),
        |edge, weight| (!is_out[edge.index()]).then_some(*weight),
    );
    (kept, dropped)
}
