//! The workflow graph: by rule, and the members of its nodes.

use std::cmp::Reverse;

use flowtrace_render::units::plain;
use petgraph::visit::{EdgeRef, IntoNodeReferences};
use serde::Serialize;

use super::rules::Numbers;
use super::{files, processes};
use crate::analysis::critical_path::route::{Link, Route, Stay, route};
use crate::graph::groups::{Group, Members, RuleGraph};
use crate::graph::{Dag, EdgeKind, Node};
use crate::model::{ProcessId, Workflow};
use crate::paths::relative;

/// The groups that are drawn: all, or the heaviest.
#[derive(Debug)]
pub(super) struct Drawn {
    /// Numbers in the drawing, by group.
    places: Vec<Option<u32>>,
    count: usize,
}

impl Drawn {
    pub(super) fn of(workflow: &Workflow, groups: &RuleGraph, most: usize) -> Drawn {
        let weight = |group: &Group| match &group.members {
            Members::Processes { processes, .. } => {
                let life = |&id| workflow.process(id).duration_ns().unwrap_or(0);
                // Steps before files, because steps are asked for first.
                (
                    true,
                    processes.iter().map(life).fold(0, i64::saturating_add),
                )
            }
            Members::Files { size_bytes, .. } => (false, size_bytes.unwrap_or(0)),
        };
        let mut order: Vec<_> = groups
            .graph
            .node_references()
            .map(|(node, group)| (Reverse(weight(group)), node))
            .collect();
        if order.len() > most {
            order.sort_unstable();
            order.truncate(most);
            order.sort_unstable_by_key(|&(_, node)| node);
        }
        let mut places = vec![None; groups.graph.node_count()];
        for (place, (_, node)) in (0..).zip(&order) {
            places[node.index()] = Some(place);
        }
        Drawn {
            places,
            count: order.len(),
        }
    }
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Graph {
    nodes: Vec<GroupNode>,
    edges: Vec<GroupEdge>,
    /// Steps of the critical path that no edge stands for.
    steps: Steps,
    /// Groups that are not drawn, and their edges.
    left_out: usize,
    edges_left_out: usize,
    /// Forks not drawn because data connects the child already.
    hidden_forks: usize,
    /// Edges left out because they would close a cycle.
    cycle_edges: usize,
}

#[derive(Debug, Serialize)]
struct GroupNode {
    /// Number of the rule; `None`: files.
    rule: Option<usize>,
    /// Name of the rule, or pattern of the files seen from the directory of the run.
    name: String,
    count: usize,
    /// Number of the part of its group, where it was split to keep the graph acyclic.
    part: u32,
    parts: u32,
    /// True if the node has all processes of the rule: neither one version of them nor copies.
    is_whole: bool,
    cpu_ns: i64,
    life_ns: i64,
    failed: usize,
    size_bytes: Option<i64>,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
    /// True if the critical path goes through the node.
    is_critical: bool,
}

/// Steps of the critical path from one node to the next that are no edges: forks that are not drawn, and waits.
#[derive(Debug, Default, Serialize)]
struct Steps {
    from: Vec<u32>,
    to: Vec<u32>,
    is_fork: Vec<bool>,
}

impl Steps {
    fn of(found: &Route) -> Steps {
        Steps {
            from: found.added.iter().map(|step| step.from as u32).collect(),
            to: found.added.iter().map(|step| step.to as u32).collect(),
            is_fork: found.added.iter().map(|step| step.is_fork).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct GroupEdge {
    from: u32,
    to: u32,
    kind: &'static str,
    count: i64,
    /// Direction of the data: forth, both or unknown.
    way: &'static str,
    bytes: i64,
    /// The part of the bytes that went back.
    back_bytes: i64,
    calls: i64,
    latency_ns: i64,
    first_ns: i64,
    last_ns: i64,
    is_critical: bool,
}

pub(super) fn of(
    workflow: &Workflow,
    (dag, stays): (&Dag, &[Stay]),
    groups: &RuleGraph,
    drawn: &Drawn,
    numbers: &Numbers,
) -> Graph {
    let mut graph = Graph {
        left_out: groups.graph.node_count() - drawn.count,
        hidden_forks: groups.hidden_forks,
        cycle_edges: dag.dropped.len(),
        ..Graph::default()
    };
    for (node, group) in groups.graph.node_references() {
        if drawn.places[node.index()].is_some() {
            graph.nodes.push(group_node(workflow, dag, group, numbers));
        }
    }
    let mut links = Vec::new();
    for edge in groups.graph.edge_references() {
        let ends = [edge.source(), edge.target()].map(|node| drawn.places[node.index()]);
        let [Some(from), Some(to)] = ends else {
            graph.edges_left_out += 1;
            continue;
        };
        let e = edge.weight();
        links.push(Link {
            from: from as usize,
            to: to as usize,
            kind: e.kind,
            bytes: e.bytes,
        });
        graph.edges.push(GroupEdge {
            from,
            to,
            kind: e.kind.name(),
            count: e.count,
            way: e.way.name(),
            bytes: e.bytes,
            back_bytes: e.back_bytes,
            calls: e.calls,
            latency_ns: e.latency_ns,
            first_ns: e.first_ns,
            last_ns: e.last_ns,
            is_critical: false,
        });
    }
    let place = |stay: &Stay| {
        let group = stay.node.map(|node| groups.group_of[node.index()]);
        let place = group.and_then(|group| drawn.places[group.index()]);
        (place.map(|place| place as usize), stay.is_forked)
    };
    let is_file: Vec<bool> = graph.nodes.iter().map(|node| node.rule.is_none()).collect();
    let found = route(stays.iter().map(place), &is_file, &links);
    for (node, is_on) in graph.nodes.iter_mut().zip(&found.is_node) {
        node.is_critical = *is_on;
    }
    for (edge, is_on) in graph.edges.iter_mut().zip(&found.is_edge) {
        edge.is_critical = *is_on;
    }
    graph.steps = Steps::of(&found);
    graph
}

fn group_node(workflow: &Workflow, dag: &Dag, group: &Group, numbers: &Numbers) -> GroupNode {
    let node = |rule, name, count| GroupNode {
        rule,
        name,
        count,
        part: group.round,
        parts: group.rounds,
        is_whole: group.rounds == 1 && group.versions < 2 && !group.is_fork,
        cpu_ns: 0,
        life_ns: 0,
        failed: 0,
        size_bytes: None,
        first_ns: None,
        last_ns: None,
        is_critical: false,
    };
    match &group.members {
        Members::Processes { rule, processes } => {
            // The measured values of a whole process belong to its last version.
            let ends = |id: &&ProcessId| group.goes_on.binary_search(id).is_err();
            let members = || {
                processes
                    .iter()
                    .filter(ends)
                    .map(|&id| workflow.process(id))
            };
            let lived = |&id: &ProcessId| dag.version_ns(workflow, id, group.version);
            let end = |end: Option<i64>| end.unwrap_or(workflow.last_ns);
            GroupNode {
                cpu_ns: members()
                    .filter_map(|p| p.cpu_ns)
                    .fold(0, i64::saturating_add),
                life_ns: members()
                    .map(|p| (end(p.end_ns) - p.start_ns).max(0))
                    .fold(0, i64::saturating_add),
                failed: members().filter(|p| p.has_failed()).count(),
                first_ns: processes.iter().map(|id| lived(id).0).min(),
                last_ns: processes.iter().map(|id| end(lived(id).1)).max(),
                ..node(
                    processes
                        .first()
                        .map(|&id| numbers.of_process(workflow, id)),
                    plain(rule) + &group.mark(),
                    processes.len(),
                )
            }
        }
        Members::Files {
            pattern,
            files,
            size_bytes,
        } => {
            let cwd = workflow.runs.first().map_or("", |run| run.cwd.as_str());
            GroupNode {
                size_bytes: *size_bytes,
                ..node(None, plain(relative(pattern, cwd)), files.len())
            }
        }
    }
}

/// The graph of single processes and files, to open groups with, in columns.
#[derive(Debug, Default, Serialize)]
pub(super) struct MemberEdges {
    /// Number of the group in the drawing; `None`: not drawn. Nodes that are neither shown one by
    /// one nor the end of an edge have no place here.
    group: Vec<Option<u32>>,
    /// Place of the process; or −1 minus the place of the file; `None`: not shown one by one.
    member: Vec<Option<i64>>,
    /// Version of a file that was changed after a process had read it, or of a process that got back data
    /// that it had caused, from 1; 0: there is only one version.
    version: Vec<u32>,
    /// Places of versions that others replaced: the sizes of these are not known.
    replaced: Vec<u32>,
    from: Vec<u32>,
    to: Vec<u32>,
    /// Place in `kinds`.
    kind: Vec<u8>,
    bytes: Vec<i64>,
    /// The part of the bytes that went back.
    back_bytes: Vec<i64>,
    way: Vec<&'static str>,
    /// Time in the calls that moved the bytes, ns.
    latency_ns: Vec<i64>,
    /// Places of the nodes and of the edges on the critical path, and its other steps.
    path_nodes: Vec<u32>,
    path_edges: Vec<u32>,
    steps: Steps,
    kinds: Vec<&'static str>,
    left_out: usize,
}

pub(super) fn members(
    (dag, stays): (&Dag, &[Stay]),
    (groups, drawn): (&RuleGraph, &Drawn),
    processes: &processes::Kept,
    files: &files::Kept,
    most: usize,
) -> MemberEdges {
    const KINDS: [EdgeKind; 8] = [
        EdgeKind::Fork,
        EdgeKind::Update,
        EdgeKind::Exec,
        EdgeKind::Socket,
        EdgeKind::Pipe,
        EdgeKind::Read,
        EdgeKind::Write,
        EdgeKind::Create,
    ];
    let mut edges: Vec<_> = dag.graph.edge_references().collect();
    let all = edges.len();
    if all > most {
        // Data before forks, then the most bytes.
        edges.sort_by_key(|e| {
            let w = e.weight();
            (Reverse((w.kind.is_data(), w.bytes())), e.id())
        });
        edges.truncate(most);
        edges.sort_by_key(EdgeRef::id);
    }
    let mut members = MemberEdges {
        kinds: KINDS.iter().map(|kind| kind.name()).collect(),
        left_out: all - edges.len(),
        ..MemberEdges::default()
    };
    let mut is_end = vec![false; dag.graph.node_count()];
    for edge in &edges {
        is_end[edge.source().index()] = true;
        is_end[edge.target().index()] = true;
    }
    let mut places: Vec<Option<u32>> = vec![None; dag.graph.node_count()];
    let mut is_file = Vec::new();
    for (node, what) in dag.graph.node_references() {
        let group = groups.group_of.get(node.index());
        let group = group.and_then(|group| drawn.places[group.index()]);
        let is_shown = match *what {
            Node::Process { id, .. } => processes.place(id).is_some(),
            Node::File { file, .. } => files.place(file).is_some(),
        };
        if !(is_end[node.index()] || is_shown && group.is_some()) {
            continue;
        }
        places[node.index()] = Some(members.group.len() as u32);
        is_file.push(matches!(what, Node::File { .. }));
        members.group.push(group);
        let (member, version) = match *what {
            Node::Process {
                id,
                version,
                versions,
            } => (
                processes.place(id).map(i64::from),
                if versions > 1 { version } else { 0 },
            ),
            Node::File {
                file,
                version,
                versions,
            } => (
                files.place(file).map(|place| -1 - i64::from(place)),
                if versions > 1 { version } else { 0 },
            ),
        };
        if matches!(*what, Node::File { version, versions, .. } if version < versions) {
            members.replaced.push(members.version.len() as u32);
        }
        members.member.push(member);
        members.version.push(version);
    }
    let mut links = Vec::new();
    for edge in edges {
        let weight = edge.weight();
        let ends = [edge.source(), edge.target()].map(|node| places[node.index()]);
        let [Some(from), Some(to)] = ends else {
            continue;
        };
        members.from.push(from);
        members.to.push(to);
        members.latency_ns.push(weight.latency_ns);
        links.push(Link {
            from: from as usize,
            to: to as usize,
            kind: weight.kind,
            bytes: weight.bytes(),
        });
        let kind = KINDS.iter().position(|&kind| kind == weight.kind);
        members.kind.push(kind.unwrap_or(0) as u8);
        members.bytes.push(weight.bytes());
        members.back_bytes.push(weight.back_bytes());
        members.way.push(weight.way.name());
    }
    let place = |stay: &Stay| {
        let place = stay.node.and_then(|node| places[node.index()]);
        (place.map(|place| place as usize), stay.is_forked)
    };
    let found = route(stays.iter().map(place), &is_file, &links);
    let on = |is_on: &[bool]| {
        let all = (0..).zip(is_on).filter(|(_, is_on)| **is_on);
        all.map(|(place, _)| place).collect()
    };
    members.path_nodes = on(&found.is_node);
    members.path_edges = on(&found.is_edge);
    members.steps = Steps::of(&found);
    members
}
