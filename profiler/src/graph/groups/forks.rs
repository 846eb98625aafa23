//! The forks that a graph of groups draws.

use petgraph::Direction;
use petgraph::algo::toposort;
use petgraph::graph::DiGraph;
use petgraph::visit::EdgeRef;

use crate::graph::{Dag, Edge, EdgeKind, Node};

/// The graph without the forks to nodes that are connected by data, and the number of these forks: such a
/// node can be found without a fork edge. Forks that [order](orders) stay.
pub(super) fn without_plain(dag: &Dag, label_of: &[u32]) -> (DiGraph<Node, Edge>, usize) {
    let has_data = labels_with_data(dag, label_of);
    let orders = orders(dag);
    let part = dag.graph.filter_map(
        |_, node| Some(*node),
        |edge, weight| {
            let (_, to) = dag.graph.edge_endpoints(edge)?;
            let is_drawn = match dag.graph[to] {
                Node::Process { id, .. } => {
                    weight.kind.is_data()
                        || orders[edge.index()]
                        || !has_data[label_of[id.0 as usize] as usize]
                }
                Node::File { .. } => true,
            };
            is_drawn.then_some(*weight)
        },
    );
    let hidden = dag.graph.edge_count() - part.edge_count();
    (part, hidden)
}

/// For every edge: true if it is a fork that shows an order in time. These are the forks of a later version
/// of a process, whose children come after its data, and the forks of a process that reads a pipe and starts
/// others by its contents, as `xargs` and the loops of a shell do: it passes the data on by their arguments.
pub(crate) fn orders(dag: &Dag) -> Vec<bool> {
    let mut orders = led(dag);
    for edge in dag.graph.edge_references() {
        if let Node::Process { version, .. } = dag.graph[edge.source()] {
            orders[edge.id().index()] |= version > 1 && edge.weight().kind == EdgeKind::Fork;
        }
    }
    orders
}

/// For every edge: true if it is a fork by a process that had begun to read a pipe, or that was itself
/// started by such a process and got no other data.
fn led(dag: &Dag) -> Vec<bool> {
    let mut is_led = vec![false; dag.graph.edge_count()];
    for node in toposort(&dag.graph, None).unwrap_or_default() {
        let (mut piped_ns, mut has_data, mut is_below) = (None, false, false);
        for edge in dag.graph.edges_directed(node, Direction::Incoming) {
            let Edge { kind, first_ns, .. } = *edge.weight();
            if kind == EdgeKind::Pipe {
                piped_ns = Some(piped_ns.map_or(first_ns, |ns: i64| ns.min(first_ns)));
            }
            has_data |= kind.is_data();
            is_below |= is_led[edge.id().index()];
        }
        for edge in dag.graph.edges(node) {
            if edge.weight().kind == EdgeKind::Fork {
                is_led[edge.id().index()] = is_below && !has_data
                    || piped_ns.is_some_and(|ns| ns <= edge.weight().first_ns);
            }
        }
    }
    is_led
}

fn labels_with_data(dag: &Dag, label_of: &[u32]) -> Vec<bool> {
    let mut has_data = vec![false; label_of.iter().max().map_or(0, |&last| last as usize + 1)];
    for edge in dag
        .graph
        .edge_references()
        .filter(|edge| edge.weight().kind.is_data())
    {
        for end in [edge.source(), edge.target()] {
            if let Node::Process { id, .. } = dag.graph[end] {
                has_data[label_of[id.0 as usize] as usize] = true;
            }
        }
    }
    has_data
}
