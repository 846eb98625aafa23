//! The shape of a workflow in a line, and its levels.

use std::collections::HashMap;

use petgraph::Direction;
use petgraph::algo::toposort;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;

use crate::graph::groups::{Members, RuleGraph};
use crate::graph::motifs::flows;
use crate::graph::{Dag, EdgeKind, Node};
use crate::model::Workflow;
use crate::text::units;

/// A step: processes of one rule that data connects to others.
struct Step {
    node: NodeIndex,
    level: usize,
    name: String,
    count: usize,
}

/// The steps in the order of data: `18 × mProject → 33 × mDiffFit → mConcatFit`. Steps on one level
/// are joined by `+`; steps without data of others are left out.
pub fn line(rules: &RuleGraph) -> String {
    let mut shown: Vec<String> = Vec::new();
    let steps = steps(rules);
    for level in steps.chunk_by(|a, b| a.level == b.level) {
        let names: Vec<String> = level
            .iter()
            .map(|step| match step.count {
                1 => step.name.clone(),
                n => format!("{} × {}", units::count(n as i64), step.name),
            })
            .collect();
        shown.push(names.join(" + "));
    }
    if shown.is_empty() {
        return "no data went from one step to another".into();
    }
    shown.join(" → ")
}

/// The line, and each step with what it takes and what for.
pub fn text(workflow: &Workflow, dag: &Dag, rules: &RuleGraph, width: usize) -> String {
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
        line(rules),
        units::counted(processes as i64, "process", "processes"),
        units::counted(files as i64, "version of a file", "versions of files"),
        units::counted(dag.graph.edge_count() as i64, "edge", "edges"),
    );
    let cwd = workflow.runs.first().map_or("", |run| run.cwd.as_str());
    for step in steps(rules) {
        let ends = |direction: Direction| -> String {
            let mut names: Vec<String> = rules
                .graph
                .edges_directed(step.node, direction)
                .filter(|edge| is_between(edge.weight().kind))
                .map(|edge| {
                    let other = match direction {
                        Direction::Incoming => edge.source(),
                        Direction::Outgoing => edge.target(),
                    };
                    match &rules.graph[other].members {
                        Members::Processes { rule, .. } => {
                            format!("| {rule}{}", rules.graph[other].mark())
                        }
                        Members::Files { pattern, files } => {
                            let name = crate::graph::pattern::relative(pattern, cwd);
                            match files.len() {
                                1 => name.to_owned(),
                                n => format!("{name} ×{n}"),
                            }
                        }
                    }
                })
                .collect();
            names.sort();
            let more = names.len().saturating_sub(3);
            names.truncate(3);
            match (names.is_empty(), more) {
                (true, _) => "nothing".into(),
                (_, 0) => names.join(", "),
                (_, n) => format!("{}, +{n} more", names.join(", ")),
            }
        };
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
    text += &patterns(dag, rules, width);
    text
}

/// Pairs of steps shown for each pattern.
const PAIRS: usize = 6;

/// How steps feed each other, by pattern.
fn patterns(dag: &Dag, rules: &RuleGraph, width: usize) -> String {
    let order: HashMap<NodeIndex, usize> = steps(rules)
        .iter()
        .enumerate()
        .map(|(at, step)| (step.node, at))
        .collect();
    let mut flows = flows(dag, rules);
    flows.sort_by_key(|flow| (flow.motif, order.get(&flow.from), order.get(&flow.to)));
    let mut text = String::new();
    for flows in flows.chunk_by(|a, b| a.motif == b.motif) {
        let name = |node: NodeIndex, count: usize| {
            let name = units::plain(rules.name(node)) + &rules.graph[node].mark();
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

/// Whether data goes from one process to another, not on in the same.
fn is_between(kind: EdgeKind) -> bool {
    kind.is_data() && kind != EdgeKind::Update
}

fn steps(rules: &RuleGraph) -> Vec<Step> {
    let graph = &rules.graph;
    let mut level = vec![0; graph.node_count()];
    let is_step = |node: NodeIndex| matches!(graph[node].members, Members::Processes { .. });
    for node in toposort(graph, None).unwrap_or_default() {
        let before = graph.edges_directed(node, Direction::Incoming);
        // What a later version started came after it.
        let is_later = |node: NodeIndex| graph[node].version > 1;
        let before = before.filter(|edge| edge.weight().kind.is_data() || is_later(edge.source()));
        let own = before
            .map(|edge| level[edge.source().index()] + usize::from(is_step(edge.source())))
            .max();
        level[node.index()] = own.unwrap_or(0);
    }
    let has_data = |node: NodeIndex| {
        [Direction::Incoming, Direction::Outgoing]
            .into_iter()
            .flat_map(|direction| graph.edges_directed(node, direction))
            .any(|edge| is_between(edge.weight().kind))
    };
    let mut steps: Vec<Step> = graph
        .node_indices()
        .filter(|&node| has_data(node))
        .filter_map(|node| match &graph[node].members {
            Members::Processes { rule, processes } => Some(Step {
                node,
                level: level[node.index()],
                name: units::plain(rule) + &graph[node].mark(),
                count: processes.len(),
            }),
            Members::Files { .. } => None,
        })
        .collect();
    steps.sort_by(|a, b| (a.level, &a.name, a.node).cmp(&(b.level, &b.name, b.node)));
    steps
}
