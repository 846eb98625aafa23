//! Forks that would lead back in time: from data that a process got to a child that existed before.
//!
//! A script that runs `mkdir`, and later takes the answer of `perl` into a variable, is one node that got the
//! answer and started `mkdir`: it would put perl before mkdir, which is wrong. Such a process is cut where
//! the answer came in ([`cuts`]), unless that makes too many versions of it; then the fork is left out
//! ([`leave_out`]).
//!
//! The events on the ways of data decide the order in time: the begins of processes, writes and channels.
//! Reading does not count: a file that was there before is no event.

use std::collections::{BTreeMap, HashSet};

use petgraph::Direction;
use petgraph::graph::{DiGraph, EdgeIndex, NodeIndex};
use petgraph::visit::EdgeRef;

use super::{Dag, Dropped, Edge, EdgeKind, MOST_VERSIONS, Node};
use crate::model::{ProcessId, Workflow};

type Graph = DiGraph<Node, Edge>;

/// The latest event that an edge of data brings, where `latest` is that of the node at its begin.
fn brought(edge: &Edge, latest: i64) -> i64 {
    match edge.kind {
        EdgeKind::Pipe | EdgeKind::Socket | EdgeKind::Write | EdgeKind::Create => {
            latest.max(edge.first_ns)
        }
        EdgeKind::Read | EdgeKind::Exec | EdgeKind::Update | EdgeKind::Fork => latest,
    }
}

/// For every node the latest event on a way of data to it, ns: nodes after it began no sooner. The data must
/// make no cycle.
fn latest(workflow: &Workflow, graph: &Graph) -> Vec<i64> {
    let is_data = |edge: &petgraph::graph::EdgeReference<'_, Edge>| edge.weight().kind.is_data();
    let mut latest = Vec::with_capacity(graph.node_count());
    let mut missing = vec![0_u32; graph.node_count()];
    for node in graph.node_weights() {
        latest.push(match node {
            Node::Process { id, .. } => workflow.process(*id).start_ns,
            Node::File { .. } => i64::MIN,
        });
    }
    for edge in graph.edge_references().filter(is_data) {
        missing[edge.target().index()] += 1;
    }
    let mut ready: Vec<NodeIndex> = graph.node_indices().collect();
    ready.retain(|node| missing[node.index()] == 0);
    while let Some(node) = ready.pop() {
        for edge in graph.edges(node).filter(is_data) {
            let to = edge.target().index();
            latest[to] = latest[to].max(brought(edge.weight(), latest[node.index()]));
            missing[to] -= 1;
            if missing[to] == 0 {
                ready.push(edge.target());
            }
        }
    }
    latest
}

/// The forks of a graph that lead back in time. The data of the graph makes no cycle.
fn of_graph(graph: &Graph, latest: &[i64]) -> HashSet<EdgeIndex> {
    let forks = graph
        .edge_references()
        .filter(|edge| edge.weight().kind == EdgeKind::Fork);
    forks
        .filter(|edge| latest[edge.source().index()] > edge.weight().first_ns)
        .map(|edge| edge.id())
        .collect()
}

/// Times at which processes must be cut further so that no fork leads back in time, in order. `whole` has
/// every process as one node; its edges are the first of `split`, where processes are cut at the times of
/// `done` and whose data makes no cycle. `answers` is true for a fork of `whole` whose child gave something
/// back: such a fork alone cuts nothing. `is_late` is true for an edge that counts when it ended.
pub(super) fn cuts(
    workflow: &Workflow,
    (whole, split): (&Graph, &Graph),
    done: &BTreeMap<ProcessId, Vec<i64>>,
    answers: impl Fn(EdgeIndex) -> bool,
    is_late: impl Fn(EdgeIndex) -> bool,
) -> BTreeMap<ProcessId, Vec<i64>> {
    let latest = latest(workflow, split);
    let mut of_past: Vec<NodeIndex> = of_graph(split, &latest)
        .into_iter()
        .filter(|&fork| !answers(fork))
        .filter_map(|fork| Some(whole.edge_endpoints(fork)?.0))
        .collect();
    of_past.sort_unstable();
    of_past.dedup();
    let mut found = BTreeMap::new();
    for node in of_past {
        let Node::Process { id, .. } = whole[node] else {
            continue;
        };
        let known = done.get(&id).map_or(&[][..], Vec::as_slice);
        // Time; 0, 1 or 2 for a fork, a known cut, or data in; for data the latest event in it.
        let mut events: Vec<(i64, u8, i64)> = known.iter().map(|&at| (at, 1, 0)).collect();
        for edge in whole.edges(node) {
            if edge.weight().kind == EdgeKind::Fork && !answers(edge.id()) {
                events.push((edge.weight().first_ns, 0, 0));
            }
        }
        for edge in whole.edges_directed(node, Direction::Incoming) {
            let e = edge.weight();
            let from = split.edge_endpoints(edge.id()).map(|(from, _)| from);
            if let Some(from) = from.filter(|_| e.kind.is_data()) {
                let at = if is_late(edge.id()) {
                    e.last_ns
                } else {
                    e.first_ns
                };
                events.push((at, 2, brought(e, latest[from.index()])));
            }
        }
        events.sort_unstable();
        let mut begun: Option<i64> = None;
        let mut more = Vec::new();
        for (at, what, event) in events {
            match what {
                0 => begun = begun.or(Some(at)),
                1 => begun = None,
                _ if begun.is_some_and(|fork| event > fork) => {
                    more.push(at);
                    begun = None;
                }
                _ => {}
            }
        }
        more.dedup();
        if !more.is_empty() && known.len() + more.len() < MOST_VERSIONS as usize {
            found.insert(id, more);
        }
    }
    found
}

/// Leaves out the forks that lead back in time.
pub(super) fn leave_out(workflow: &Workflow, dag: Dag) -> Dag {
    let of_past = of_graph(&dag.graph, &latest(workflow, &dag.graph));
    if of_past.is_empty() {
        return dag;
    }
    let Dag {
        graph,
        mut dropped,
        cuts,
    } = dag;
    for edge in graph.edge_references() {
        if of_past.contains(&edge.id()) {
            dropped.push(Dropped {
                from: edge.source(),
                to: edge.target(),
                edge: *edge.weight(),
            });
        }
    }
    dropped.sort_by_key(|d| (d.from, d.to, d.edge.kind));
    let graph = graph.filter_map(
        |_, node| Some(*node),
        |edge, weight| (!of_past.contains(&edge)).then_some(*weight),
    );
    Dag {
        graph,
        dropped,
        cuts,
    }
}
