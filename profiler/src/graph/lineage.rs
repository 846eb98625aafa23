//! Cuts processes into versions in time, as files have versions, where the data that a process got back from
//! processes that it started would close a cycle.
//!
//! A script with `n=$(wc -l < out); echo $n > count` started `wc`, and got its answer: as one node it would
//! come before itself. Cut between its output and its later input, it is two versions: the first made the
//! file that `wc` counted, the second wrote `count`. Processes that lie on a cycle of data and forks are cut
//! where data came in after data went out; forks on such a cycle cut nothing ([`super::acyclic`] leaves out
//! those that contradict data).
//!
//! 1. An edge is known by its first and last time. A version begins where an edge in begins after an edge out
//!    has ended: edges that overlap stay together, so that no dependency is lost. An edge in leads to the
//!    version in which it began, an edge out from that in which it ended.
//! 2. Where that leaves a cycle, processes gave and got data over the same time. The edges on the cycle of
//!    the process that began first (it asked; the others answer) are *narrowed*: one in counts when it ended,
//!    one out when it began, and a version begins wherever one in follows one out. If a cycle is left, the
//!    edges of the next process are narrowed. Where all are narrowed, time goes forward along every way of
//!    data, so that no cycle is left.
//! 3. Data that leads off the cycle, such as a file that the asking process wrote meanwhile, comes after
//!    every answer that had begun before it ended: no dependency is lost, and none leads back.
//! 4. A process that had started a child before data came in is cut between both ([`past`]).

use std::collections::{BTreeMap, HashMap};

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, EdgeIndex, NodeIndex};
use petgraph::visit::EdgeRef;

use super::build::{process_ranks, raw, sound};
use super::{Dag, Edge, EdgeKind, MOST_VERSIONS, Node, past};
use crate::model::{ProcessId, Workflow};

type Graph = DiGraph<Node, Edge>;

/// Builds the workflow graph like [`super::build`], but with processes cut into versions where one node
/// would close a cycle: no edge of data is left out. First versions have the places of
/// [`super::build`]; the others follow the files.
pub fn lineage(workflow: &Workflow) -> Dag {
    let (graph, ranks) = raw(workflow);
    let in_cycle = on_cycles(&graph, |_| true);
    let is_cyclic = in_cycle.iter().any(|&at| at != NONE);
    let mut cuts = Cuts::default();
    for node in graph.node_indices() {
        if let Node::Process { id, .. } = graph[node]
            && in_cycle[node.index()] != NONE
        {
            let instants = after(instants(&graph, node, &cuts, |_, _| true), false);
            if !instants.is_empty() {
                cuts.of.insert(id, instants);
            }
        }
    }
    let mut split = cuts.applied(workflow, &graph, &in_cycle);
    for round in 0.. {
        if !is_cyclic {
            break;
        }
        let left = on_cycles(&split, EdgeKind::is_data);
        if left.iter().all(|&at| at == NONE)
            || !narrow(&graph, &split, (&left, round), &ranks, &mut cuts)
        {
            break;
        }
        split = cuts.applied(workflow, &graph, &in_cycle);
    }
    if cuts.by_forks(workflow, (&graph, &split), &in_cycle) {
        split = cuts.applied(workflow, &graph, &in_cycle);
    }
    let ranks = process_ranks(&split, &ranks);
    sound(workflow, split, &ranks, cuts.of)
}

/// The graph from which rules and levels are made: cut like [`lineage`], except when a process has more than
/// [`MOST_VERSIONS`] versions, as an engine that got back a thousand results. Such versions are no steps:
/// then every process is whole.
pub fn steps(workflow: &Workflow) -> Dag {
    let dag = lineage(workflow);
    match dag.most_versions() > MOST_VERSIONS {
        true => dag.merged(workflow),
        false => dag,
    }
}

/// No cycle.
const NONE: u32 = u32::MAX;

/// For every node, the number of the cycle that it lies on, made of the kinds of edges for which `counts` is
/// true.
fn on_cycles(graph: &Graph, counts: impl Fn(EdgeKind) -> bool) -> Vec<u32> {
    let part = graph.filter_map(|_, _| Some(()), |_, edge| counts(edge.kind).then_some(()));
    let mut cycle = vec![NONE; graph.node_count()];
    for (number, nodes) in kosaraju_scc(&part).into_iter().enumerate() {
        if nodes.len() > 1 {
            for node in nodes {
                cycle[node.index()] = number as u32;
            }
        }
    }
    cycle
}

/// Times at which processes are cut.
#[derive(Default)]
struct Cuts {
    /// Begins of the second and later versions of each process, ns, in order.
    of: BTreeMap<ProcessId, Vec<i64>>,
    /// For every edge of the whole graph: true if it is narrowed at its begin, and at its end.
    narrowed: Vec<[bool; 2]>,
}

impl Cuts {
    fn is_narrowed(&self, edge: EdgeIndex, is_in: bool) -> bool {
        let ends = self.narrowed.get(edge.index());
        ends.is_some_and(|ends| ends[usize::from(is_in)])
    }

    /// The version of a process, from 0, at one end of an edge.
    fn version(&self, id: ProcessId, edge: &Edge, is_in: bool, is_narrowed: bool) -> usize {
        let Some(cuts) = self.of.get(&id) else {
            return 0;
        };
        match (edge.kind, is_in, is_narrowed) {
            // A child exists before its data comes back, and knows nothing of data that came later.
            (EdgeKind::Fork, false, _) => cuts.partition_point(|&cut| cut < edge.first_ns),
            (EdgeKind::Fork, true, _) => 0,
            (_, true, false) => cuts.partition_point(|&cut| cut <= edge.first_ns),
            (_, true, true) => cuts.partition_point(|&cut| cut <= edge.last_ns),
            (_, false, false) => cuts.partition_point(|&cut| cut <= edge.last_ns),
            (_, false, true) => cuts.partition_point(|&cut| cut < edge.first_ns),
        }
    }

    /// Cuts further where forks would lead back in time. Returns true if it cut a process.
    fn by_forks(
        &mut self,
        workflow: &Workflow,
        graphs: (&Graph, &Graph),
        in_cycle: &[u32],
    ) -> bool {
        let answers = |fork| {
            graphs.0.edge_endpoints(fork).is_none_or(|(from, to)| {
                let cycle = in_cycle[from.index()];
                cycle != NONE && cycle == in_cycle[to.index()]
            })
        };
        let is_late = |edge| self.is_narrowed(edge, true);
        let found = past::cuts(workflow, graphs, &self.of, answers, is_late);
        let is_any = !found.is_empty();
        for (id, more) in found {
            let all = self.of.entry(id).or_default();
            all.extend(more);
            all.sort_unstable();
            all.dedup();
        }
        is_any
    }

    /// For each answer that a process got on its cycle: begin, and the least version whose later output may
    /// contain it. A narrowed answer counts only when it ended. Sorted; a later begin has a later version.
    fn answered(&self, graph: &Graph, node: NodeIndex, id: ProcessId) -> Vec<(i64, usize)> {
        let mut answers: Vec<(i64, usize)> = graph
            .edges_directed(node, petgraph::Direction::Incoming)
            .filter(|edge| edge.weight().kind.is_data() && self.is_narrowed(edge.id(), true))
            .map(|edge| {
                let version = self.version(id, edge.weight(), true, true);
                (edge.weight().first_ns, version)
            })
            .collect();
        answers.sort_unstable();
        let mut latest = 0;
        for (_, version) in &mut answers {
            latest = latest.max(*version);
            *version = latest;
        }
        answers
    }

    /// The graph with its processes cut. `cycle` has for every node of the whole graph the number of its
    /// cycle.
    fn applied(&self, workflow: &Workflow, whole: &Graph, cycle: &[u32]) -> Graph {
        let mut graph = whole.map(|_, node| *node, |_, edge| *edge);
        graph.clear_edges();
        let mut nodes: HashMap<ProcessId, Vec<NodeIndex>> = HashMap::new();
        for (&id, cuts) in &self.of {
            let versions = cuts.len() as u32 + 1;
            let first = NodeIndex::new(id.0 as usize);
            let node = |version| Node::Process {
                id,
                version,
                versions,
            };
            graph[first] = node(1);
            let later = (2..=versions).map(|version| graph.add_node(node(version)));
            nodes.insert(id, std::iter::once(first).chain(later).collect());
        }
        let answered: HashMap<ProcessId, Vec<(i64, usize)>> = self
            .of
            .keys()
            .map(|&id| (id, self.answered(whole, NodeIndex::new(id.0 as usize), id)))
            .collect();
        // An edge that leads off the cycle closes none, however late it comes.
        let leads_off = |edge: EdgeIndex| {
            whole.edge_endpoints(edge).is_some_and(|(from, to)| {
                whole[edge].kind.is_data() && cycle[from.index()] != cycle[to.index()]
            })
        };
        let end = |node: NodeIndex, edge: EdgeIndex, is_in: bool| {
            let Node::Process { id, .. } = whole[node] else {
                return (node, false);
            };
            let Some(versions) = nodes.get(&id) else {
                return (node, false);
            };
            let version = |narrowed| self.version(id, &whole[edge], is_in, narrowed);
            let is_narrowed = self.is_narrowed(edge, is_in);
            let mut at = version(is_narrowed);
            if !is_in && leads_off(edge) {
                let answers = &answered[&id];
                let before = answers.partition_point(|&(from, _)| from < whole[edge].last_ns);
                at = at.max(before.checked_sub(1).map_or(0, |last| answers[last].1));
            }
            (versions[at], is_narrowed && at != version(false))
        };
        for edge in whole.edge_references() {
            let (from, is_from_narrowed) = end(edge.source(), edge.id(), false);
            let (to, is_to_narrowed) = end(edge.target(), edge.id(), true);
            let is_narrowed = is_from_narrowed || is_to_narrowed;
            let edge = *edge.weight();
            graph.add_edge(
                from,
                to,
                Edge {
                    is_narrowed,
                    ..edge
                },
            );
        }
        for (id, versions) in self.of.keys().map(|id| (id, &nodes[id])) {
            let begins = self.of[id].iter();
            for (pair, &at) in versions.windows(2).zip(begins) {
                let at = at.max(workflow.process(*id).start_ns);
                graph.add_edge(pair[0], pair[1], Edge::at(EdgeKind::Update, at));
            }
        }
        graph
    }
}

/// The edges of data of a process: time at which each counts, ns, and true for an edge in. Data that comes in
/// at the same time as data goes out may be part of it, if the edge is not narrowed.
fn instants(
    graph: &Graph,
    node: NodeIndex,
    cuts: &Cuts,
    counts: impl Fn(EdgeIndex, bool) -> bool,
) -> Vec<(i64, bool)> {
    let mut found = Vec::new();
    for (direction, is_in) in [
        (petgraph::Direction::Incoming, true),
        (petgraph::Direction::Outgoing, false),
    ] {
        for edge in graph.edges_directed(node, direction) {
            let e = edge.weight();
            if e.kind.is_data() && counts(edge.id(), is_in) {
                let at = match is_in != cuts.is_narrowed(edge.id(), is_in) {
                    true => e.first_ns,
                    false => e.last_ns,
                };
                found.push((at, is_in));
            }
        }
    }
    found
}

/// Times of the edges in that follow an edge out.
fn after(mut instants: Vec<(i64, bool)>, is_out_first: bool) -> Vec<i64> {
    instants.sort_unstable_by_key(|&(at, is_in)| (at, is_in == is_out_first));
    let mut has_given = false;
    let mut cuts = Vec::new();
    for (at, is_in) in instants {
        if is_in && has_given {
            cuts.push(at);
        }
        has_given = !is_in;
    }
    cuts
}

/// After this number of rounds all edges that are left on cycles are narrowed at once.
const ROUNDS: u32 = 20;

/// Narrows the edges of data on the cycles that are left, of one process of each, and cuts the process by
/// them. Returns true if there was an edge to narrow.
fn narrow(
    whole: &Graph,
    split: &Graph,
    (cycle, round): (&[u32], u32),
    ranks: &[u32],
    cuts: &mut Cuts,
) -> bool {
    cuts.narrowed.resize(whole.edge_count(), [false; 2]);
    // The edges of the whole graph are the first of the split one, in the same order.
    // Edge ends by cycle, then by the start of their process.
    type End = (EdgeIndex, bool, NodeIndex);
    let mut ends: BTreeMap<(u32, u32), Vec<End>> = BTreeMap::new();
    for edge in whole.edge_references() {
        let Some((from, to)) = split.edge_endpoints(edge.id()) else {
            continue;
        };
        let number = cycle[from.index()];
        if !edge.weight().kind.is_data() || number == NONE || number != cycle[to.index()] {
            continue;
        }
        for (node, is_in) in [(edge.source(), false), (edge.target(), true)] {
            let is_process = matches!(whole[node], Node::Process { .. });
            if is_process && !cuts.is_narrowed(edge.id(), is_in) {
                let key = (number, ranks[node.index()]);
                ends.entry(key).or_default().push((edge.id(), is_in, node));
            }
        }
    }
    let mut last = None;
    let mut narrowed: Vec<NodeIndex> = Vec::new();
    for ((number, _), ends) in ends {
        // The ends of a cycle follow each other; the process that began first comes before the others.
        if round < ROUNDS && last.replace(number) == Some(number) {
            continue;
        }
        for (edge, is_in, node) in ends {
            cuts.narrowed[edge.index()][usize::from(is_in)] = true;
            narrowed.push(node);
        }
    }
    narrowed.sort_unstable();
    narrowed.dedup();
    for &node in &narrowed {
        let Node::Process { id, .. } = whole[node] else {
            continue;
        };
        let of_cycle = |edge, is_in| cuts.is_narrowed(edge, is_in);
        let more = after(instants(whole, node, cuts, of_cycle), true);
        if !more.is_empty() {
            let all = cuts.of.entry(id).or_default();
            all.extend(more);
            all.sort_unstable();
            all.dedup();
        }
    }
    !narrowed.is_empty()
}

impl Dag {
    /// Begin and end of a version of a process, ns; `None`: the end was not seen.
    pub fn version_ns(
        &self,
        workflow: &Workflow,
        id: ProcessId,
        version: u32,
    ) -> (i64, Option<i64>) {
        let process = workflow.process(id);
        let cuts = self.cuts.get(&id).map_or(&[][..], Vec::as_slice);
        let at = |place: usize| cuts.get(place).map(|&at| at.max(process.start_ns));
        let begin = match version {
            0 | 1 => process.start_ns,
            later => at(later as usize - 2).unwrap_or(process.start_ns),
        };
        (begin, at(version.max(1) as usize - 1).or(process.end_ns))
    }

    /// Greatest number of versions of a process.
    pub fn most_versions(&self) -> u32 {
        let versions = self.graph.node_weights().map(|node| match *node {
            Node::Process { versions, .. } => versions,
            Node::File { .. } => 1,
        });
        versions.max().unwrap_or(1)
    }

    /// The graph with the versions of every process taken together again; edges that close cycles then
    /// are left out.
    pub fn merged(&self, workflow: &Workflow) -> Dag {
        if self.most_versions() == 1 {
            return self.clone();
        }
        let mut graph = Graph::with_capacity(self.graph.node_count(), self.graph.edge_count());
        let mut of: HashMap<ProcessId, NodeIndex> = HashMap::new();
        let mut place = Vec::with_capacity(self.graph.node_count());
        for node in self.graph.node_weights() {
            place.push(match *node {
                Node::Process { id, .. } => *of
                    .entry(id)
                    .or_insert_with(|| graph.add_node(Node::process(id))),
                file => graph.add_node(file),
            });
        }
        let ends = |from: NodeIndex, to: NodeIndex| (place[from.index()], place[to.index()]);
        for edge in self.graph.edge_references() {
            let (from, to) = ends(edge.source(), edge.target());
            if from != to {
                graph.add_edge(from, to, *edge.weight());
            }
        }
        for dropped in &self.dropped {
            let (from, to) = ends(dropped.from, dropped.to);
            graph.add_edge(from, to, dropped.edge);
        }
        let ranks = process_ranks(&graph, &super::build::start_order(workflow));
        sound(workflow, graph, &ranks, BTreeMap::new())
    }
}
