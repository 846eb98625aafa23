//! Splits groups of nodes so that the graph of the groups is acyclic.
//!
//! Contracting an acyclic graph may close cycles: project -> table -> model -> image -> project.
//! Only groups on such a cycle are split, and only as often as a path comes back to them: the
//! *round* of a node counts how often a path to it went back in the order of the groups.

use std::collections::{BTreeSet, HashMap, HashSet};

use petgraph::Direction;
use petgraph::algo::{kosaraju_scc, toposort};
use petgraph::graph::{DiGraph, NodeIndex};

/// A group that is split anyhow is split into at most this number of parts for the sake of its neighbours.
const PARTS: usize = 12;

/// Splits groups that are split already further, so that the members of a part have the same neighbours: two
/// unrelated uses of one program then do not make a path that does not exist. Parts with edges between their
/// own members stay whole, because splitting these could close a cycle. `may` is true for the nodes to
/// consider.
pub(crate) fn by_neighbours<N, E>(
    graph: &DiGraph<N, E>,
    group: &[u32],
    rounds: &mut Rounds,
    may: impl Fn(NodeIndex) -> bool,
) {
    type Part = (u32, u32);
    let part = |node: NodeIndex| -> Part { (group[node.index()], rounds.of[node.index()]) };
    let mut split: HashMap<u32, BTreeSet<u32>> = HashMap::new();
    for node in graph.node_indices() {
        let (group, round) = part(node);
        split.entry(group).or_default().insert(round);
    }
    let ends = graph.edge_indices().filter_map(|e| graph.edge_endpoints(e));
    let whole: HashSet<Part> = ends
        .filter(|&(from, to)| part(from) == part(to))
        .map(|(from, _)| part(from))
        .collect();
    let around = |node: NodeIndex, direction: Direction| -> BTreeSet<Part> {
        graph
            .neighbors_directed(node, direction)
            .map(part)
            .collect()
    };
    // The kinds of neighbours of a part, numbered in the order of their first members.
    type Around = (BTreeSet<Part>, BTreeSet<Part>);
    let mut sorts: HashMap<Part, HashMap<Around, u32>> = HashMap::new();
    let mut sort_of = vec![0; graph.node_count()];
    for node in graph.node_indices() {
        let of = part(node);
        if split[&of.0].len() > 1 && !whole.contains(&of) && may(node) {
            let sorts = sorts.entry(of).or_default();
            let next = sorts.len() as u32;
            let around = (
                around(node, Direction::Incoming),
                around(node, Direction::Outgoing),
            );
            sort_of[node.index()] = *sorts.entry(around).or_insert(next);
        }
    }
    let mut parts: HashMap<u32, usize> = HashMap::new();
    for (&group, rounds) in &split {
        let of_round = |&round: &u32| sorts.get(&(group, round)).map_or(1, HashMap::len);
        parts.insert(group, rounds.iter().map(of_round).sum());
    }
    let most = sort_of.iter().max().map_or(1, |&last| last + 1);
    for node in graph.node_indices() {
        let at = node.index();
        let is_few = parts[&group[at]] <= PARTS;
        rounds.of[at] = rounds.of[at] * most + if is_few { sort_of[at] } else { 0 };
    }
}

/// Result of [`rounds`].
pub(crate) struct Rounds {
    /// For every node the round, from 0, that its group must be split by.
    pub(crate) of: Vec<u32>,
    /// The groups that lie on cycles with each other when they are not split, each list in the order of
    /// their numbers.
    pub(crate) cycles: Vec<Vec<u32>>,
}

/// Splits the groups of an acyclic `graph`. `group` has the group of every node, numbered from 0; edges
/// within a group do not count.
pub(crate) fn rounds<N, E>(graph: &DiGraph<N, E>, group: &[u32]) -> Rounds {
    let order = toposort(graph, None).unwrap_or_default();
    let groups = group.iter().max().map_or(0, |&last| last as usize + 1);
    // Each pair once. Not by `update_edge`, which searches all edges of a node: a group that touches every
    // file has as many edges as there are files.
    let ends = graph
        .edge_indices()
        .filter_map(|edge| graph.edge_endpoints(edge));
    let mut pairs: Vec<(u32, u32)> = ends
        .map(|(from, to)| (group[from.index()], group[to.index()]))
        .filter(|(from, to)| from != to)
        .collect();
    pairs.sort_unstable();
    pairs.dedup();
    let mut quotient: DiGraph<(), ()> = DiGraph::with_capacity(groups, pairs.len());
    for _ in 0..groups {
        quotient.add_node(());
    }
    for (from, to) in pairs {
        quotient.add_edge(
            NodeIndex::new(from as usize),
            NodeIndex::new(to as usize),
            (),
        );
    }
    let mut component = vec![0; groups];
    let mut is_cyclic = vec![false; groups];
    let mut cycles = Vec::new();
    for (i, nodes) in kosaraju_scc(&quotient).into_iter().enumerate() {
        if nodes.len() > 1 {
            let mut cycle: Vec<u32> = nodes.iter().map(|node| node.index() as u32).collect();
            cycle.sort_unstable();
            cycles.push(cycle);
        }
        for node in &nodes {
            component[node.index()] = i;
            is_cyclic[node.index()] = nodes.len() > 1;
        }
    }
    // The order of the groups: by the depth of their first node. Few paths go back in it, and it does not
    // depend on timing, so that two runs give the same picture.
    let mut level = vec![0; graph.node_count()];
    let mut place = vec![(u32::MAX, 0); groups];
    for &node in &order {
        let above = graph.neighbors_directed(node, Direction::Incoming);
        let own = above
            .map(|before| level[before.index()] + 1)
            .max()
            .unwrap_or(0);
        level[node.index()] = own;
        let group = group[node.index()] as usize;
        place[group] = place[group].min((own, group));
    }
    let mut round = vec![0; graph.node_count()];
    for &node in &order {
        let own = group[node.index()] as usize;
        if !is_cyclic[own] {
            continue;
        }
        for before in graph.neighbors_directed(node, Direction::Incoming) {
            let theirs = group[before.index()] as usize;
            if component[theirs] == component[own] && theirs != own {
                let back = u32::from(place[theirs] >= place[own]);
                round[node.index()] = round[node.index()].max(round[before.index()] + back);
            } else if theirs == own {
                round[node.index()] = round[node.index()].max(round[before.index()]);
            }
        }
    }
    cycles.sort_unstable();
    Rounds { of: round, cycles }
}
