//! The shape of a workflow in a line, and its levels.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use flowtrace_render::units;
use petgraph::Direction;
use petgraph::algo::toposort;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;

use crate::graph::groups::{Members, RuleGraph};
use crate::graph::motifs::flows;
use crate::graph::{Dag, Edge, EdgeKind, Node};
use crate::model::{FileIndex, ProcessId, Workflow};

/// A step: processes of one rule that data connects to others.
struct Step {
    node: NodeIndex,
    level: usize,
    name: String,
    /// The name without the version of a process.
    whole: String,
    count: usize,
}

/// Data from which the shape of a workflow is written.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// The trace.
    pub workflow: &'a Workflow,
    /// Its graph.
    pub dag: &'a Dag,
    /// The graph contracted by steps.
    pub rules: &'a RuleGraph,
    /// Files that were not there any more at the end.
    pub removed: &'a HashSet<FileIndex>,
}

/// The steps in the order of data: `18 × mProject → 33 × mDiffFit → mConcatFit`. Steps on one level are
/// joined by `+`. Steps of one name become one, whatever they work on, and so do versions of one process with
/// nothing between them.
fn line(steps: &[Step]) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut last: Option<&str> = None;
    for level in steps.chunk_by(|a, b| a.level == b.level) {
        let one = &level[0].whole;
        let is_one = level.iter().all(|step| step.whole == *one);
        let is_version = level.iter().all(|step| step.whole != step.name);
        if is_one && is_version && last.replace(one) == Some(one) {
            shown.pop();
            let most = level.iter().map(|step| step.count).max().unwrap_or(1);
            shown.push(times(most, one));
            continue;
        }
        last = (is_one && is_version).then_some(one);
        let names: Vec<String> = level
            .chunk_by(|a, b| a.name == b.name)
            .map(|like| times(like.iter().map(|step| step.count).sum(), &like[0].name))
            .collect();
        shown.push(names.join(" + "));
    }
    if shown.is_empty() {
        return "no data went from one step to another".into();
    }
    shown.join(" → ")
}

fn times(count: usize, name: &str) -> String {
    match count {
        1 => name.into(),
        n => format!("{} × {name}", units::count(n as i64)),
    }
}

/// The line, and each step with its inputs and outputs.
pub fn text(shape: Shape<'_>, width: usize) -> String {
    let Shape { dag, rules, .. } = shape;
    let steps = steps(shape);
    let files = dag
        .graph
        .node_weights()
        .filter(|n| matches!(n, Node::File { .. }))
        .count();
    let processes = dag
        .graph
        .node_weights()
        .filter(|n| matches!(n, Node::Process { version: 1, .. }))
        .count();
    let mut text = format!(
        "{}\n\n  {}, {}, {} between them\n\n",
        line(&steps),
        units::counted(processes as i64, "process", "processes"),
        units::counted(files as i64, "version of a file", "versions of files"),
        units::counted(dag.graph.edge_count() as i64, "edge", "edges"),
    );
    let uses = uses(dag, rules);
    for step in &steps {
        let ends = |direction| ends(shape, &uses, step.node, direction);
        let count = if step.count == 1 {
            String::new()
        } else {
            format!(" ×{}", units::count(step.count as i64))
        };
        let line = format!(
            "  {:>3}  {}{count}: {} → {}",
            step.level,
            step.name,
            units::plain(&ends(Direction::Incoming)),
            units::plain(&ends(Direction::Outgoing))
        );
        text += &format!("{}\n", units::shorten(&line, width.max(40)));
    }
    text += &patterns(dag, rules, &steps, width);
    text
}

/// The files that go from one group to another, by the groups at the ends.
type Uses = BTreeMap<(NodeIndex, NodeIndex), BTreeSet<FileIndex>>;

/// The files that each group used of those in a group of files: where the processes of a rule are several
/// groups, each has its share of them.
fn uses(dag: &Dag, rules: &RuleGraph) -> Uses {
    let mut uses = Uses::new();
    for edge in dag.graph.edge_references() {
        let (from, to) = (edge.source(), edge.target());
        if let (Node::File { file, .. }, Node::Process { .. })
        | (Node::Process { .. }, Node::File { file, .. }) = (dag.graph[from], dag.graph[to])
        {
            let groups = (rules.group_of[from.index()], rules.group_of[to.index()]);
            uses.entry(groups).or_default().insert(file);
        }
    }
    uses
}

/// Inputs or outputs of a step: files, the other ends of channels, and where there are neither, the processes
/// that it started.
fn ends(shape: Shape<'_>, uses: &Uses, step: NodeIndex, direction: Direction) -> String {
    let Shape {
        workflow, rules, ..
    } = shape;
    let cwd = workflow.runs.first().map_or("", |run| run.cwd.as_str());
    let named = |counts: fn(EdgeKind) -> bool, before: &str| -> Vec<String> {
        let edges = rules.graph.edges_directed(step, direction);
        let mut names: Vec<String> = edges
            .filter(|edge| counts(edge.weight().kind))
            .map(|edge| {
                let other = match direction {
                    Direction::Incoming => edge.source(),
                    Direction::Outgoing => edge.target(),
                };
                match &rules.graph[other].members {
                    Members::Processes { rule, .. } => {
                        format!("{before}{rule}{}", rules.graph[other].mark())
                    }
                    Members::Files { .. } => {
                        let used = uses.get(&(edge.source(), edge.target()));
                        let path = |&file: &FileIndex| workflow.file(file).path.as_deref();
                        let paths: Vec<&str> = used
                            .into_iter()
                            .flatten()
                            .map(|file| path(file).unwrap_or("?"))
                            .collect();
                        let of_all = crate::paths::of_paths(&paths);
                        let name = crate::paths::relative(&of_all, cwd);
                        crate::paths::counted(name, paths.len())
                    }
                }
            })
            .collect();
        names.sort();
        names
    };
    let mut names = named(is_between, "| ");
    if names.is_empty() && direction == Direction::Outgoing {
        names = named(|kind| kind == EdgeKind::Fork, "starts ");
    }
    let more = names.len().saturating_sub(3);
    names.truncate(3);
    match (names.is_empty(), more) {
        (true, _) => "nothing".into(),
        (_, 0) => names.join(", "),
        (_, n) => format!("{}, +{n} more", names.join(", ")),
    }
}

/// Greatest number of pairs of steps shown for each pattern.
const PAIRS: usize = 6;

/// Patterns of the data from step to step.
fn patterns(dag: &Dag, rules: &RuleGraph, steps: &[Step], width: usize) -> String {
    let order: HashMap<NodeIndex, usize> = steps
        .iter()
        .enumerate()
        .map(|(at, step)| (step.node, at))
        .collect();
    let mut flows = flows(dag, rules);
    flows.retain(|flow| order.contains_key(&flow.from) && order.contains_key(&flow.to));
    flows.sort_by_key(|flow| (flow.motif, order.get(&flow.from), order.get(&flow.to)));
    let mut text = String::new();
    for flows in flows.chunk_by(|a, b| a.motif == b.motif) {
        let name = |node: NodeIndex, count: usize| {
            let name = units::between_arrows(&units::plain(rules.name(node)));
            let name = name + &rules.graph[node].mark();
            match count {
                1 => name,
                n => format!("{} × {name}", units::count(n as i64)),
            }
        };
        let mut shown: Vec<String> = flows
            .iter()
            .take(PAIRS)
            .map(|f| format!("{} → {}", name(f.from, f.senders), name(f.to, f.receivers)))
            .collect();
        if flows.len() > PAIRS {
            shown.push(format!("+{} more", flows.len() - PAIRS));
        }
        let line = format!("  {:<12}  {}", flows[0].motif.name(), shown.join(" · "));
        text += &format!("{}\n", units::shorten(&line, width.max(40)));
    }
    match text.is_empty() {
        true => text,
        false => format!("\n{text}"),
    }
}

/// Returns true if an edge carries data from one process to another, not on in the same process.
fn is_between(kind: EdgeKind) -> bool {
    kind.is_data() && kind != EdgeKind::Update
}

/// The groups that are steps. A process takes part if it made something that lasts or that another process
/// read, if data came to it through a channel, or if it read and started no other process: make, which reads
/// its rules and starts the compilers, is no step, nor is a driver that only opens the files that its
/// children work on.
fn taking_part(shape: Shape<'_>) -> HashSet<NodeIndex> {
    let mut starts = HashSet::new();
    for process in &shape.workflow.processes {
        starts.extend(process.parent);
    }
    let takes_part = |node: NodeIndex, id: ProcessId| {
        let ins = || shape.dag.graph.edges_directed(node, Direction::Incoming);
        let is_channel = |edge: &Edge| matches!(edge.kind, EdgeKind::Pipe | EdgeKind::Socket);
        makes(shape, node)
            || ins().any(|edge| is_channel(edge.weight()))
            || !starts.contains(&id) && ins().any(|edge| is_between(edge.weight().kind))
    };
    let mut found = HashSet::new();
    for node in shape.dag.graph.node_indices() {
        if let Node::Process { id, .. } = shape.dag.graph[node]
            && takes_part(node, id)
        {
            found.insert(shape.rules.group_of[node.index()]);
        }
    }
    found
}

/// Returns true if a process sent something, or made a file that lasts or that another process read. A
/// process that only makes the name of a temporary file, which another writes, made nothing.
fn makes(shape: Shape<'_>, process: NodeIndex) -> bool {
    let graph = &shape.dag.graph;
    graph.edges(process).any(|out| {
        let edge = out.weight();
        let Node::File { file, .. } = graph[out.target()] else {
            return is_between(edge.kind);
        };
        let is_other = |node: NodeIndex| node != process;
        let mut ins = graph.edges_directed(out.target(), Direction::Incoming);
        let is_name_only = edge.kind == EdgeKind::Create
            && edge.writes == 0
            && ins.any(|e| e.weight().kind == EdgeKind::Write && is_other(e.source()));
        let mut readers = graph.neighbors(out.target());
        is_between(edge.kind)
            && !is_name_only
            && (!shape.removed.contains(&file) || readers.any(is_other))
    })
}

fn steps(shape: Shape<'_>) -> Vec<Step> {
    let graph = &shape.rules.graph;
    let parts = taking_part(shape);
    let mut level = vec![0; graph.node_count()];
    for node in toposort(graph, None).unwrap_or_default() {
        // Forks, too: only those are drawn that show an order in time.
        let before = graph.edges_directed(node, Direction::Incoming);
        let own = before
            .map(|edge| level[edge.source().index()] + usize::from(parts.contains(&edge.source())))
            .max();
        level[node.index()] = own.unwrap_or(0);
    }
    let mut steps: Vec<Step> = graph
        .node_indices()
        .filter(|node| parts.contains(node))
        .filter_map(|node| match &graph[node].members {
            Members::Processes { rule, processes } => Some(Step {
                node,
                level: level[node.index()],
                name: units::between_arrows(&units::plain(rule)) + &graph[node].mark(),
                whole: units::between_arrows(&units::plain(rule)) + graph[node].fork_mark(),
                count: processes.len(),
            }),
            Members::Files { .. } => None,
        })
        .collect();
    steps.sort_by(|a, b| (a.level, &a.name, a.node).cmp(&(b.level, &b.name, b.node)));
    steps
}
