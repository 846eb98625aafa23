//! The workflow graph as a drawing: every process, every file version (ParaTrac, figure 13).

use flowtrace_render::units;
use petgraph::graph::NodeIndex;
use petgraph::visit::{EdgeRef, IntoNodeReferences};

use super::labels::Labels;
use super::{Drawing, DrawnEdge, DrawnNode, Relation, Shape, Value, hue};
use crate::graph::{Dag, Dropped, Edge, EdgeKind, Node};
use crate::model::{FileIndex, ProcessId, Way, Workflow};
use crate::paths::base;

/// Length of a command in a label, in characters.
const COMMAND: usize = 32;

/// Draws every node.
pub fn of_processes(workflow: &Workflow, dag: &Dag) -> Drawing {
    let mut drawing = Drawing {
        title: title(workflow),
        ..Drawing::default()
    };
    let labels = Labels::of(workflow);
    for (index, node) in dag.graph.node_references() {
        let moved: i64 = dag
            .graph
            .edges(index)
            .map(|edge| edge.weight().bytes())
            .fold(0, i64::saturating_add);
        let drawn = match *node {
            Node::Process {
                id,
                version,
                versions,
            } => {
                let lived = dag.version_ns(workflow, id, version);
                let which = (version, versions);
                process(&mut drawing, workflow, &labels, id, which, lived)
            }
            Node::File {
                file,
                version,
                versions,
            } => {
                let bytes = (node.size_bytes(workflow), moved);
                self::file(&mut drawing, workflow, file, (version, versions), bytes)
            }
        };
        drawing.nodes.push(drawn);
    }
    let edges = dag.graph.edge_references();
    let drawn = edges.map(|e| edge((e.source(), e.target()), e.weight()));
    drawing.add_in_order(drawn.collect());
    let against = forks_against_data(dag).map(|fork| edge((fork.from, fork.to), &fork.edge));
    drawing.add_beside(against.collect());
    finish(&mut drawing, workflow, dag);
    drawing
}

/// The forks of children that, by the data, must come before their parent.
pub(super) fn forks_against_data(dag: &Dag) -> impl Iterator<Item = &Dropped> {
    dag.dropped.iter().filter(|d| d.edge.kind == EdgeKind::Fork)
}

fn edge((from, to): (NodeIndex, NodeIndex), e: &Edge) -> DrawnEdge {
    let mut drawn = DrawnEdge::plain((from.index(), to.index()), Relation::Graph(e.kind));
    drawn.moves(e.way, (e.bytes(), e.back_bytes(), e.is_bound), e.latency_ns);
    let numbers = [
        ("calls", e.calls()),
        ("latency_ns", e.latency_ns),
        ("first_ns", e.first_ns),
        ("last_ns", e.last_ns),
    ];
    let numbers = numbers.map(|(name, n)| (name, Value::Integer(n)));
    drawn.attributes.extend(numbers);
    if matches!(e.kind, EdgeKind::Create | EdgeKind::Write) && e.reads > 0 {
        let back = [
            ("read_back_bytes", e.read_bytes),
            ("read_back_calls", e.reads),
        ];
        let back = back.map(|(name, n)| (name, Value::Integer(n)));
        drawn.attributes.extend(back);
    }
    if e.is_narrowed {
        drawn.attributes.push(("narrowed", Value::Integer(1)));
    }
    drawn
}

impl DrawnEdge {
    /// Adds the bytes moved along the edge, or their upper bound; through sockets also the direction,
    /// and the bytes moved back if known; and the rate. The rate is that of the time in the calls,
    /// since a file read in the first and the last second of a run was not read slowly.
    pub(super) fn moves(
        &mut self,
        way: Way,
        (bytes, back_bytes, is_bound): (i64, i64, bool),
        in_calls_ns: i64,
    ) {
        let rate = (bytes as f64 * 1e9 / in_calls_ns as f64) as i64;
        self.way = way;
        self.bytes = bytes;
        self.bytes_per_s = (bytes > 0 && in_calls_ns > 0 && !is_bound).then_some(rate);
        let is_socket = self.relation == Relation::Graph(EdgeKind::Socket);
        let way = is_socket.then(|| ("way", Value::Text(way.name().into())));
        // Bytes that were not counted are left out, for they are not 0.
        let counted = (bytes > 0 || !is_socket).then_some(("bytes", Value::Integer(bytes)));
        let back = (back_bytes > 0).then_some(("back_bytes", Value::Integer(back_bytes)));
        let rate = self.bytes_per_s;
        let per_s = rate.map(|rate| ("bytes_per_s", Value::Integer(rate)));
        let facts = [way, counted, back, per_s];
        self.attributes.extend(facts.into_iter().flatten());
        match (bytes, is_bound) {
            (..=0, _) => {}
            (bytes, _) if back_bytes > 0 => {
                let forth = units::bytes(bytes.saturating_sub(back_bytes));
                let back = units::bytes(back_bytes);
                self.label.push(format!("{forth} → · ← {back}"));
            }
            (bytes, true) => self.label.push(format!("≤ {}", units::bytes(bytes))),
            (bytes, false) => self.label.push(units::bytes(bytes)),
        }
        self.label
            .extend(rate.map(|rate| units::bytes(rate) + "/s"));
    }
}

/// Adds the facts about the whole graph that both drawings have.
pub(super) fn finish(drawing: &mut Drawing, workflow: &Workflow, dag: &Dag) {
    drawing.add_degrees();
    let forks = forks_against_data(dag).count();
    let data = dag.dropped.len() - forks;
    let system_files = workflow.files.iter().filter(|file| file.is_system).count();
    let cut = dag.graph.node_weights().filter(|node| match node {
        Node::Process {
            version, versions, ..
        } => *version == 1 && *versions > 1,
        Node::File { .. } => false,
    });
    let cut = cut.count();
    if cut > 0 {
        let cut = Value::Integer(cut as i64);
        drawing.attributes.push(("processes_cut", cut));
    }
    let facts = [
        ("processes", workflow.processes.len()),
        ("forks_against_data", forks),
        ("cycle_data_edges_left_out", data),
        ("system_files_left_out", system_files),
        ("texts_shortened", drawing.shortened as usize),
    ];
    for (name, n) in facts {
        drawing.attributes.push((name, Value::Integer(n as i64)));
    }
    if workflow.is_cut_short() {
        drawing.attributes.push(("cut_short", Value::Integer(1)));
    }
}

pub(super) fn title(workflow: &Workflow) -> String {
    let run = workflow.runs.first();
    let command = run
        .and_then(|run| run.command.as_deref())
        .unwrap_or("recording");
    let cut = match (workflow.is_live, workflow.is_cut_short()) {
        (true, _) => " so far",
        (false, true) => ", cut short",
        (false, false) => "",
    };
    let command = units::shorten(&units::plain(command), 100);
    let length = units::duration(workflow.duration_ns());
    let unseen = if workflow.runs.iter().any(|run| !run.sees_descriptors()) {
        " · pipes and sockets are not drawn"
    } else {
        ""
    };
    format!("{command} ({length}{cut}){unseen}")
}

fn process(
    drawing: &mut Drawing,
    workflow: &Workflow,
    labels: &Labels<'_>,
    id: ProcessId,
    (version, versions): (u32, u32),
    (from_ns, to_ns): (i64, Option<i64>),
) -> DrawnNode {
    let p = workflow.process(id);
    let is_last = version == versions;
    let images = workflow.images(id);
    let command = workflow.joint_command(id);
    let life = to_ns.map_or_else(|| "?".into(), |to| units::duration(to - from_ns));
    let short = labels.short(workflow, id);
    let mark = match versions {
        1 => String::new(),
        _ => format!(" [{version}/{versions}]"),
    };
    let mut label = vec![units::shorten(&units::plain(&short), COMMAND) + &mark];
    let failure = match (p.exit_signal, p.exit_code) {
        _ if !is_last => String::new(),
        (Some(signal), _) => format!(", signal {signal}"),
        (None, Some(code)) if code != 0 => format!(", exit {code}"),
        _ => String::new(),
    };
    label.push(format!("{life}{failure}"));
    let upids: Vec<_> = images.iter().map(|image| image.upid.to_string()).collect();
    let mut attributes = vec![
        ("type", Value::Text("process".into())),
        ("rule", drawing.text(workflow.rule(id))),
        ("command", drawing.text(&command)),
        ("pid", Value::Integer(p.pid)),
        ("upids", drawing.text(&upids.join(" "))),
        ("start_ns", Value::Integer(from_ns)),
    ];
    if versions > 1 {
        attributes.push(("version", Value::Integer(i64::from(version))));
        attributes.push(("versions", Value::Integer(i64::from(versions))));
    }
    attributes.extend(to_ns.map(|ns| ("end_ns", Value::Integer(ns))));
    // Values measured for the whole process are given once.
    let known = [
        ("cpu_ns", p.cpu_ns),
        (
            "storage_ns",
            sum(images.iter().map(|image| image.storage_ns)),
        ),
        ("wait_ns", sum(images.iter().map(|image| image.wait_ns))),
        ("exit_code", p.exit_code),
        ("exit_signal", p.exit_signal),
    ];
    attributes.extend(
        known
            .into_iter()
            .filter(|_| is_last)
            .filter_map(|(name, n)| Some((name, Value::Integer(n?)))),
    );
    DrawnNode {
        id: match version {
            1 => format!("p{}", images[0].upid),
            version => format!("p{}_{version}", images[0].upid),
        },
        shape: Shape::Process,
        label,
        hue: Some(hue(workflow.rule(id))),
        processes: vec![id],
        goes_on: if is_last { Vec::new() } else { vec![id] },
        is_critical: false,
        attributes,
        weight: to_ns.unwrap_or(workflow.last_ns) - from_ns,
    }
}

fn file(
    drawing: &mut Drawing,
    workflow: &Workflow,
    index: FileIndex,
    (version, versions): (u32, u32),
    (size, moved): (Option<i64>, i64),
) -> DrawnNode {
    let file = workflow.file(index);
    let path = file.path.as_deref().unwrap_or("?");
    let mut label = vec![units::shorten_path(&units::plain(base(path)), COMMAND)];
    if versions > 1 {
        label.push(format!("version {version} of {versions}"));
    }
    let mut attributes = vec![
        ("type", Value::Text("file".into())),
        ("path", drawing.text(path)),
        ("version", Value::Integer(i64::from(version))),
    ];
    attributes.extend(size.map(|size| ("size_bytes", Value::Integer(size))));
    DrawnNode {
        id: match version {
            1 => format!("f{}", file.file_id),
            version => format!("f{}_{version}", file.file_id),
        },
        shape: Shape::File,
        label,
        hue: None,
        processes: Vec::new(),
        goes_on: Vec::new(),
        is_critical: false,
        attributes,
        // A byte weighs as a nanosecond, since a disk takes about a second for a gigabyte.
        weight: moved.max(size.unwrap_or(0)),
    }
}

/// The sum of the known values; `None` if none is known.
fn sum(values: impl Iterator<Item = Option<i64>>) -> Option<i64> {
    values.flatten().reduce(i64::saturating_add)
}
