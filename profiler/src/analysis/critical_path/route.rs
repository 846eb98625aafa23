//! The critical path as one way through a graph.
//!
//! Over time, the path returns to the process that starts the steps: make waits for each job and then
//! starts the next. A drawing of that would be a star. Here the path enters each node once, when it first
//! reaches it. From one node to the next it follows data, else the fork, else a wait: the next process
//! began or went on when the one before had ended or released it. So every process of the path is drawn,
//! with only the edges between them.

use std::collections::{HashMap, VecDeque};

use petgraph::graph::NodeIndex;

use super::CriticalPath;
use crate::graph::{Dag, EdgeKind, Node};
use crate::model::{ProcessId, Workflow};

/// A part of the path in one version of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// The node; `None`: the drawn part of the graph does not have it.
    pub node: Option<NodeIndex>,
    /// True if the process of the stay before started this one.
    pub is_forked: bool,
}

/// An edge of the graph that is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Place of the first node.
    pub from: usize,
    /// Place of the second node.
    pub to: usize,
    /// Relation of the nodes.
    pub kind: EdgeKind,
    /// Bytes moved along it.
    pub bytes: i64,
}

/// A step from one node of the path to the next without an edge of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Place of the first node.
    pub from: usize,
    /// Place of the second node.
    pub to: usize,
    /// True if the first node started the second; else the second waited for the first.
    pub is_fork: bool,
}

/// The way of a critical path through a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// For every node, true if it is on the way.
    pub is_node: Vec<bool>,
    /// For every edge, true if it is on the way.
    pub is_edge: Vec<bool>,
    /// Steps without an edge.
    pub added: Vec<Added>,
}

impl CriticalPath {
    /// The nodes of a graph that the path goes through, in the order of time. A node occurs each time the
    /// path comes back to it.
    pub fn stays(&self, workflow: &Workflow, dag: &Dag) -> Vec<Stay> {
        let mut node_of: HashMap<(ProcessId, u32), NodeIndex> = HashMap::new();
        for node in dag.graph.node_indices() {
            if let Node::Process { id, version, .. } = dag.graph[node] {
                node_of.insert((id, version), node);
            }
        }
        let mut stays: Vec<Stay> = Vec::new();
        let mut last = None;
        for step in &self.steps {
            let id = step.process;
            let cuts = dag.cuts.get(&id).map_or(&[][..], Vec::as_slice);
            let before = |at_ns: i64| cuts.partition_point(|&cut| cut < at_ns) as u32 + 1;
            let first = cuts.partition_point(|&cut| cut <= step.from_ns) as u32 + 1;
            for version in first..=before(step.to_ns).max(first) {
                if last == Some((id, version)) {
                    continue;
                }
                let parent = workflow.process(id).parent;
                let is_new = last.is_none_or(|(last, _)| last != id);
                stays.push(Stay {
                    node: node_of.get(&(id, version)).copied(),
                    is_forked: is_new && parent.is_some() && parent == last.map(|last| last.0),
                });
                last = Some((id, version));
            }
        }
        stays
    }
}

/// The way of a path through a graph with nodes `is_file` and edges `links`. `stays` has the places of the
/// nodes that the path goes through, in the order of time (`None`: not drawn), each with true if the node
/// before started it.
pub fn route(
    stays: impl IntoIterator<Item = (Option<usize>, bool)>,
    is_file: &[bool],
    links: &[Link],
) -> Route {
    let mut found = Route {
        is_node: vec![false; is_file.len()],
        is_edge: vec![false; links.len()],
        added: Vec::new(),
    };
    let mut into: Vec<Vec<usize>> = vec![Vec::new(); is_file.len()];
    for (number, link) in links.iter().enumerate() {
        into[link.to].push(number);
    }
    // Heaviest first.
    let heaviest = |number: &usize| (std::cmp::Reverse(links[*number].bytes), *number);
    for numbers in &mut into {
        numbers.sort_by_key(heaviest);
    }
    let mut has_data = vec![false; is_file.len()];
    for link in links.iter().filter(|link| link.kind.is_data()) {
        (has_data[link.from], has_data[link.to]) = (true, true);
    }
    let graph = Graph {
        into: &into,
        is_file,
        links,
    };
    // Last node that the way entered, and the nodes that the path has returned to since then.
    let (mut drawn, mut before): (Option<usize>, Option<usize>) = (None, None);
    let mut returns: Vec<usize> = Vec::new();
    // True if since then the path was at a node that is not drawn.
    let mut is_gap = false;
    // The node entered last, if it has no part in any data.
    let mut starter: Option<(usize, usize)> = None;
    for (place, is_forked) in stays {
        let came_from = std::mem::replace(&mut before, place);
        let Some(at) = place else {
            is_gap = true;
            continue;
        };
        if found.is_node[at] {
            returns.push(at);
            continue;
        }
        found.is_node[at] = true;
        let is_fork = is_forked && came_from == drawn;
        let step = |from| Added {
            from,
            to: at,
            is_fork,
        };
        // Data goes past a shell that only starts the next step.
        let past = starter.take().filter(|_| is_fork);
        let past = past.and_then(|(from, wait)| Some((wait, graph.data(from, at)?)));
        if let Some(from) = drawn {
            if let Some(edges) = graph.data(from, at) {
                found.mark(&edges, links);
            } else if let Some(edges) = graph.back_and_on((from, at), &returns) {
                found.mark(&edges, links);
            } else if let Some(edge) = graph.control(from, at) {
                found.is_edge[edge] = true;
            } else if !is_gap {
                found.added.push(step(from));
                if !is_fork && !has_data[at] {
                    starter = Some((from, found.added.len() - 1));
                }
            }
        }
        if let Some((wait, edges)) = past {
            found.mark(&edges, links);
            found.added.remove(wait);
        }
        drawn = Some(at);
        returns.clear();
        is_gap = false;
    }
    found
}

impl Route {
    fn mark(&mut self, edges: &[usize], links: &[Link]) {
        for &edge in edges {
            self.is_edge[edge] = true;
            for node in [links[edge].from, links[edge].to] {
                self.is_node[node] = true;
            }
        }
    }
}

/// The drawn part of the graph.
struct Graph<'a> {
    /// The edges into each node, heaviest first.
    into: &'a [Vec<usize>],
    is_file: &'a [bool],
    links: &'a [Link],
}

impl Graph<'_> {
    /// The edges by which data leads from one node to another, directly or through files. Of several files
    /// it is the one of which the other node read most.
    fn data(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        // For every file from which data leads to `to`, the edge on that way.
        let mut on: HashMap<usize, usize> = HashMap::new();
        let mut next: VecDeque<usize> = VecDeque::from([to]);
        while let Some(node) = next.pop_front() {
            for &link in &self.into[node] {
                let before = self.links[link].from;
                if !self.links[link].kind.is_data() {
                    continue;
                }
                if before == from {
                    let mut edges = vec![link];
                    let mut at = node;
                    while at != to {
                        edges.push(on[&at]);
                        at = self.links[on[&at]].to;
                    }
                    return Some(edges);
                }
                if self.is_file[before] && !on.contains_key(&before) {
                    on.insert(before, link);
                    next.push_back(before);
                }
            }
        }
        None
    }

    /// The edges by which data leads from one node to another through a place that the path came back to.
    fn back_and_on(&self, (from, to): (usize, usize), returns: &[usize]) -> Option<Vec<usize>> {
        let through = |&place: &usize| {
            let mut edges = self.data(from, place)?;
            edges.extend(self.data(place, to)?);
            Some(edges)
        };
        returns.iter().rev().find_map(through)
    }

    /// The fork that leads from one node to another; else data the other way, if both nodes talk.
    fn control(&self, from: usize, to: usize) -> Option<usize> {
        let between = |from: usize, to: usize, is_data: bool| {
            let is = |link: &Link| link.from == from && link.kind.is_data() == is_data;
            let mut found = self.into[to].iter().copied();
            found.find(|&edge| is(&self.links[edge]))
        };
        between(from, to, false).or_else(|| between(to, from, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(from: usize, to: usize, kind: EdgeKind, bytes: i64) -> Link {
        Link {
            from,
            to,
            kind,
            bytes,
        }
    }

    /// make starts a, b and c. a writes two files, and b reads the larger one. c has nothing to do with
    /// these files. make is on the path between all of them.
    #[test]
    fn each_node_is_entered_once_and_by_data_where_there_are() {
        let (make, a, b, c, small, large) = (0, 1, 2, 3, 4, 5);
        let is_file = [false, false, false, false, true, true];
        let links = [
            link(make, a, EdgeKind::Fork, 0),
            link(make, b, EdgeKind::Fork, 0),
            link(make, c, EdgeKind::Fork, 0),
            link(a, small, EdgeKind::Create, 10),
            link(a, large, EdgeKind::Create, 100),
            link(small, b, EdgeKind::Read, 10),
            link(large, b, EdgeKind::Read, 100),
        ];
        let stays = [
            (make, false),
            (a, true),
            (make, false),
            (b, true),
            (make, false),
            (c, true),
            (make, false),
        ];
        let found = route(
            stays.map(|(node, forked)| (Some(node), forked)),
            &is_file,
            &links,
        );
        assert_eq!(found.is_node, [true, true, true, true, false, true]);
        assert_eq!(
            found.is_edge,
            [true, false, false, false, true, false, true],
            "one edge into each node"
        );
        let wait = Added {
            from: b,
            to: c,
            is_fork: false,
        };
        assert_eq!(found.added, [wait]);
    }

    #[test]
    fn a_fork_that_is_not_drawn_is_added_and_a_gap_is_not_bridged() {
        let is_file = [false; 3];
        let of =
            |stays: &[(Option<usize>, bool)]| route(stays.iter().copied(), &is_file, &[]).added;
        let fork = Added {
            from: 0,
            to: 1,
            is_fork: true,
        };
        assert_eq!(of(&[(Some(0), false), (Some(1), true)]), [fork]);
        assert_eq!(of(&[(Some(0), false), (None, true), (Some(1), true)]), []);
    }

    /// A shell starts a step that reads a file written by the step before the shell.
    #[test]
    fn data_go_past_a_shell_that_only_starts() {
        let (a, shell, b, file) = (0, 1, 2, 3);
        let links = [
            link(a, file, EdgeKind::Create, 5),
            link(file, b, EdgeKind::Read, 5),
            link(shell, b, EdgeKind::Fork, 0),
        ];
        let stays = [(Some(a), false), (Some(shell), false), (Some(b), true)];
        let found = route(stays, &[false, false, false, true], &links);
        assert_eq!(found.is_edge, [true; 3]);
        assert_eq!(found.added, []);
    }

    /// One process asks a second one. The last process reads what the first made of the answers.
    #[test]
    fn the_way_comes_back_by_data() {
        let (asks, answers, last, file) = (0, 1, 2, 3);
        let links = [
            link(asks, answers, EdgeKind::Fork, 0),
            link(answers, asks, EdgeKind::Pipe, 5),
            link(asks, file, EdgeKind::Create, 5),
            link(file, last, EdgeKind::Read, 5),
        ];
        let stays = [asks, answers, asks, last].map(|node| (Some(node), node == answers));
        let found = route(stays, &[false, false, false, true], &links);
        assert_eq!(found.is_edge, [true; 4]);
        assert_eq!(found.added, []);
    }

    /// The parent asks its child, which answers: the way follows the fork to the child, not the answer.
    #[test]
    fn a_fork_goes_before_the_answer() {
        let links = [link(1, 0, EdgeKind::Pipe, 5), link(0, 1, EdgeKind::Fork, 0)];
        let stays = [(Some(0), false), (Some(1), true), (Some(0), false)];
        let found = route(stays, &[false; 2], &links);
        assert_eq!(found.is_edge, [false, true]);
        assert_eq!(found.added, []);
    }
}
