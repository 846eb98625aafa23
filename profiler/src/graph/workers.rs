//! Processes that are copies of a program at work, as the workers of a pool: they are a different step from
//! the program itself.

use petgraph::Direction;

use super::{Dag, EdgeKind, Node};
use crate::model::{Image, ProcessId, Workflow};

/// For every process: true if it was forked, executed nothing, and used data of its own, while its parent is
/// of the same rule.
pub(super) fn workers(workflow: &Workflow, dag: &Dag) -> Vec<bool> {
    let is_copy = |id: ProcessId| {
        let parent = workflow.process(id).parent;
        workflow
            .images(id)
            .iter()
            .all(|image: &Image| image.is_fork)
            && parent.is_some_and(|parent| {
                workflow.is_of_rule(parent, |rule| *rule == **workflow.rule(id))
            })
    };
    let mut found = vec![false; workflow.processes.len()];
    for node in dag.graph.node_indices() {
        let Node::Process { id, .. } = dag.graph[node] else {
            continue;
        };
        let mut edges = [Direction::Incoming, Direction::Outgoing]
            .into_iter()
            .flat_map(|direction| dag.graph.edges_directed(node, direction));
        let is_own =
            |kind: EdgeKind| !matches!(kind, EdgeKind::Fork | EdgeKind::Update | EdgeKind::Exec);
        if !found[id.0 as usize] && edges.any(|edge| is_own(edge.weight().kind)) {
            found[id.0 as usize] = is_copy(id);
        }
    }
    found
}
