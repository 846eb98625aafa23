//! Processes and files that are alike and have neighbours alike.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::graph::endings::Endings;
use crate::graph::{Edge, Node, part_of_life};
use crate::model::Workflow;

/// Files of one depth below the root and one ending are of a kind.
pub(super) type Kind = (usize, Arc<str>);

/// Numbers nodes so that two have the same number if they are of one rule or kind of file and their
/// neighbours in either direction have the same numbers; the number of neighbours does not matter.
pub(super) fn numbers(
    workflow: &Workflow,
    part: &DiGraph<Node, Edge>,
    label_of: &[u32],
) -> Vec<u32> {
    type Key = (Option<(u32, u32)>, Option<Kind>);
    let endings = Endings::of(workflow);
    let mut begin: HashMap<Key, u32> = HashMap::new();
    let mut number: Vec<u32> = part
        .node_indices()
        .map(|node| {
            let key = match part[node] {
                Node::Process { id, .. } => (
                    Some((label_of[id.0 as usize], part_of_life(&part[node]))),
                    None,
                ),
                Node::File { file, .. } => {
                    let path = workflow.file(file).path.as_deref().unwrap_or("");
                    (
                        None,
                        Some((path.split('/').count(), endings.get(path).into())),
                    )
                }
            };
            let next = begin.len() as u32;
            *begin.entry(key).or_insert(next)
        })
        .collect();
    let mut count = begin.len();
    loop {
        let around = |node: NodeIndex, direction: Direction| -> Vec<u32> {
            let found: BTreeSet<u32> = part
                .neighbors_directed(node, direction)
                .map(|other| number[other.index()])
                .collect();
            found.into_iter().collect()
        };
        let mut refined: HashMap<(u32, Vec<u32>, Vec<u32>), u32> = HashMap::new();
        let next: Vec<u32> = part
            .node_indices()
            .map(|node| {
                let key = (
                    number[node.index()],
                    around(node, Direction::Incoming),
                    around(node, Direction::Outgoing),
                );
                let next = refined.len() as u32;
                *refined.entry(key).or_insert(next)
            })
            .collect();
        // Every round splits groups or changes nothing, so the loop ends.
        let is_stable = refined.len() == count;
        count = refined.len();
        number = next;
        if is_stable {
            return number;
        }
    }
}
