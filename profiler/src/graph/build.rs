//! From accesses, streams and forks to nodes and edges.

use std::collections::{BTreeMap, HashMap};

use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use super::versions::{Use, versions};
use super::{Dag, Edge, EdgeKind, Node, acyclic, past};
use crate::model::{Access, FileIndex, ProcessId, Relation, Return, Way, Workflow};

/// Builds the workflow graph: a node for every process and every version of a regular file that a process
/// read or wrote. Edges that close a cycle are left out, as are forks that lead back in time;
/// [`super::lineage`] cuts processes instead.
pub fn build(workflow: &Workflow) -> Dag {
    let (graph, ranks) = raw(workflow);
    sound(workflow, graph, &ranks, BTreeMap::new())
}

/// The graph without edges that close cycles, and without forks that lead back in time.
pub(super) fn sound(
    workflow: &Workflow,
    graph: DiGraph<Node, Edge>,
    ranks: &[u32],
    cuts: BTreeMap<ProcessId, Vec<i64>>,
) -> Dag {
    let (graph, dropped) = acyclic::make(graph, ranks);
    let dag = Dag {
        graph,
        dropped,
        cuts,
    };
    past::leave_out(workflow, dag)
}

/// The graph with all edges, cycles included, and the ranks of its nodes.
pub(super) fn raw(workflow: &Workflow) -> (DiGraph<Node, Edge>, Vec<u32>) {
    let mut graph = DiGraph::with_capacity(workflow.processes.len(), workflow.accesses.len());
    for process in workflow.process_ids() {
        graph.add_node(Node::process(process));
    }
    // `acyclic` explains ranks; the rank of a process is its place in the order of starts.
    let mut ranks = start_order(workflow);
    for accesses in by_file(workflow)
        .iter()
        .filter(|accesses| !accesses.is_empty())
    {
        add_file(&mut graph, &mut ranks, accesses, &workflow.returns);
    }
    add_executions(&mut graph, &mut ranks, workflow);
    add_streams(&mut graph, workflow);
    add_forks(&mut graph, workflow);
    (graph, ranks)
}

/// The ranks of the nodes of a graph whose processes may be cut or left out: `of_processes` has those of
/// processes by their ids.
pub(super) fn process_ranks(graph: &DiGraph<Node, Edge>, of_processes: &[u32]) -> Vec<u32> {
    let process = |id: ProcessId| of_processes.get(id.0 as usize).copied().unwrap_or(0);
    let mut ranks = vec![0; graph.node_count()];
    // The versions of a file follow each other in order.
    for node in graph.node_indices() {
        ranks[node.index()] = match graph[node] {
            Node::Process { id, .. } => process(id),
            Node::File { .. } => graph
                .neighbors_directed(node, petgraph::Direction::Incoming)
                .map(|before| match graph[before] {
                    Node::Process { id, .. } => process(id),
                    Node::File { .. } => ranks[before.index()],
                })
                .max()
                .unwrap_or(0),
        };
    }
    ranks
}

/// The node of a process: processes are added first, in their order.
fn node_of(process: ProcessId) -> NodeIndex {
    NodeIndex::new(process.0 as usize)
}

pub(super) fn start_order(workflow: &Workflow) -> Vec<u32> {
    let mut order: Vec<ProcessId> = workflow.process_ids().collect();
    order.sort_by_key(|&id| (workflow.process(id).start_ns, id));
    let mut ranks = vec![0; order.len()];
    for (rank, id) in order.into_iter().enumerate() {
        ranks[id.0 as usize] = rank as u32 + 1;
    }
    ranks
}

fn by_file(workflow: &Workflow) -> Vec<Vec<&Access>> {
    let mut by_file = vec![Vec::new(); workflow.files.len()];
    for access in &workflow.accesses {
        if access.relation() != Relation::None && workflow.file(access.file).is_regular {
            by_file[access.file.0 as usize].push(access);
        }
    }
    by_file
}

fn add_file(
    graph: &mut DiGraph<Node, Edge>,
    ranks: &mut Vec<u32>,
    accesses: &[&Access],
    returns: &[Return],
) {
    let returned = |access: &&Access| {
        let key = (access.process, access.file);
        let at = returns.binary_search_by_key(&key, |found| (found.process, found.file));
        at.ok().map(|at| returns[at])
    };
    let returns: Vec<Option<Return>> = accesses.iter().map(returned).collect();
    let found = versions(accesses, &returns);
    let count = found.builds_on_previous.len() as u32;
    let file = accesses[0].file;
    let nodes: Vec<NodeIndex> = (1..=count)
        .map(|version| {
            graph.add_node(Node::File {
                file,
                version,
                versions: count,
            })
        })
        .collect();
    let mut rank = vec![0; nodes.len()];
    for ((access, used), returned) in accesses.iter().zip(&found.uses).zip(&returns) {
        let process = node_of(access.process);
        let again = returned.filter(|_| used.reread.is_some() || used.rewrote.is_some());
        let (first, again) = Part::of(access, again.as_ref(), used);
        let has_reads = used.read.is_none();
        let kind = match access.relation() {
            Relation::Create => EdgeKind::Create,
            _ => EdgeKind::Write,
        };
        for (version, kind, part, holds_reads) in [
            (used.wrote, kind, &first, has_reads),
            (used.rewrote, EdgeKind::Write, &again, false),
        ] {
            if let Some(wrote) = version {
                rank[wrote] = rank[wrote].max(ranks[process.index()]);
                graph.add_edge(process, nodes[wrote], write_edge(kind, part, holds_reads));
            }
        }
        for (version, part) in [(used.read, &first), (used.reread, &again)] {
            if let Some(read) = version {
                graph.add_edge(nodes[read], process, read_edge(part));
            }
        }
    }
    for (next, &builds) in found.builds_on_previous.iter().enumerate() {
        if builds {
            rank[next] = rank[next].max(rank[next - 1]);
            graph.add_edge(nodes[next - 1], nodes[next], update_edge());
        }
    }
    ranks.extend(rank);
}

/// Calls of a process on a file, before it came back to the file or after.
struct Part {
    read_ns: (i64, i64),
    reads: i64,
    read_bytes: i64,
    read_time_ns: i64,
    write_ns: (i64, i64),
    writes: i64,
    write_bytes: i64,
    write_time_ns: i64,
}

impl Part {
    /// Both parts; without a return the first has all.
    fn of(access: &Access, returned: Option<&Return>, used: &Use) -> (Part, Part) {
        let all = Part {
            read_ns: access.read_ns.unwrap_or(access.span_ns),
            reads: access.reads,
            read_bytes: access.read_bytes,
            read_time_ns: access.read_time_ns,
            write_ns: access.write_ns.unwrap_or(access.span_ns),
            writes: access.writes,
            write_bytes: access.write_bytes,
            write_time_ns: access.write_time_ns,
        };
        let none = Return::default();
        let Some(back) = returned else {
            return (all, Part::after(&none, false));
        };
        // Calls without an edge of their own stay with the first part.
        let again = Part::after(back, used.reread.is_some());
        let first = Part {
            read_ns: (all.read_ns.0, all.read_ns.1.min(back.read_ns.0)),
            reads: all.reads - again.reads,
            read_bytes: all.read_bytes - again.read_bytes,
            read_time_ns: all.read_time_ns - again.read_time_ns,
            write_ns: (access.write_start(), back.wrote_until_ns),
            writes: all.writes - again.writes,
            write_bytes: all.write_bytes - again.write_bytes,
            write_time_ns: all.write_time_ns - again.write_time_ns,
        };
        (first, again)
    }

    fn after(back: &Return, has_read: bool) -> Part {
        let of_reads = |value: i64| if has_read { value } else { 0 };
        Part {
            read_ns: back.read_ns,
            reads: of_reads(back.reads),
            read_bytes: of_reads(back.read_bytes),
            read_time_ns: of_reads(back.read_time_ns),
            write_ns: back.write_ns.unwrap_or(back.read_ns),
            writes: back.writes,
            write_bytes: back.write_bytes,
            write_time_ns: back.write_time_ns,
        }
    }
}

fn write_edge(kind: EdgeKind, part: &Part, holds_reads: bool) -> Edge {
    Edge {
        kind,
        way: Way::Forth,
        write_bytes: part.write_bytes,
        writes: part.writes,
        read_bytes: if holds_reads { part.read_bytes } else { 0 },
        reads: if holds_reads { part.reads } else { 0 },
        latency_ns: part.write_time_ns,
        first_ns: part.write_ns.0,
        last_ns: part.write_ns.1,
        is_narrowed: false,
        is_bound: false,
    }
}

fn read_edge(part: &Part) -> Edge {
    Edge {
        kind: EdgeKind::Read,
        way: Way::Forth,
        write_bytes: 0,
        writes: 0,
        read_bytes: part.read_bytes,
        reads: part.reads,
        latency_ns: part.read_time_ns,
        first_ns: part.read_ns.0,
        last_ns: part.read_ns.1,
        is_narrowed: false,
        is_bound: false,
    }
}

fn update_edge() -> Edge {
    Edge::at(EdgeKind::Update, 0)
}

/// Marks the program that a process ran. Where the kernel's reading of it was recorded there is an edge
/// already; else the edge is added here, to the version that was there at the time.
fn add_executions(graph: &mut DiGraph<Node, Edge>, ranks: &mut Vec<u32>, workflow: &Workflow) {
    let mut nodes: HashMap<FileIndex, Vec<NodeIndex>> = HashMap::new();
    for node in graph.node_indices() {
        if let Node::File { file, .. } = graph[node] {
            nodes.entry(file).or_default().push(node);
        }
    }
    for &(process, file) in &workflow.executions {
        let versions = nodes.entry(file).or_insert_with(|| {
            ranks.push(0);
            vec![graph.add_node(Node::File {
                file,
                version: 1,
                versions: 1,
            })]
        });
        let to = node_of(process);
        // From the side of the process: a program may have been run by many.
        let known = graph
            .edges_directed(to, Direction::Incoming)
            .filter_map(|edge| {
                let version = versions.iter().position(|&node| node == edge.source())?;
                Some((version, edge.id()))
            })
            .min();
        if let Some((_, edge)) = known {
            graph[edge].kind = EdgeKind::Exec;
            continue;
        }
        // The process's own output, run later under the same pid, would close a cycle.
        if versions.iter().any(|&node| graph.contains_edge(to, node)) {
            continue;
        }
        let start = workflow.process(process).start_ns;
        let newest = versions.iter().rev().find(|&&node| {
            let mut writers = graph.edges_directed(node, petgraph::Direction::Incoming);
            writers.all(|edge| edge.weight().first_ns <= start)
        });
        let from = newest.or(versions.first()).copied();
        if let Some(from) = from {
            graph.add_edge(from, to, Edge::at(EdgeKind::Exec, start));
        }
    }
}

fn add_streams(graph: &mut DiGraph<Node, Edge>, workflow: &Workflow) {
    for stream in &workflow.streams {
        let edge = Edge {
            kind: if stream.is_socket {
                EdgeKind::Socket
            } else {
                EdgeKind::Pipe
            },
            way: stream.way,
            write_bytes: match (stream.moved, stream.is_socket) {
                (Some((forth, _)), _) => forth,
                (None, true) => 0,
                (None, false) => stream.at_most_bytes.unwrap_or(0),
            },
            read_bytes: stream.moved.map_or(0, |(_, back)| back),
            last_ns: stream.last_ns,
            is_bound: !stream.is_socket && !stream.is_exact,
            ..Edge::at(EdgeKind::Pipe, stream.first_ns)
        };
        graph.add_edge(node_of(stream.from), node_of(stream.to), edge);
    }
}

fn add_forks(graph: &mut DiGraph<Node, Edge>, workflow: &Workflow) {
    for child in workflow.process_ids() {
        if let Some(parent) = workflow.process(child).parent {
            let at = workflow.process(child).start_ns;
            graph.add_edge(
                node_of(parent),
                node_of(child),
                Edge::at(EdgeKind::Fork, at),
            );
        }
    }
}
