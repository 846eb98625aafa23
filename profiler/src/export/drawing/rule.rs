//! The rule graph as a drawing that fits on a page.

use std::collections::{BTreeMap, HashMap};

use flowtrace_render::units;
use petgraph::graph::NodeIndex;
use petgraph::visit::{EdgeRef, IntoNodeReferences};

use super::process::{finish, forks_against_data, title};
use super::{Drawing, DrawnEdge, DrawnNode, Relation, Shape, Value, hue};
use crate::graph::groups::{Group, GroupEdge, Members, RuleGraph};
use crate::graph::{Dag, EdgeKind};
use crate::model::{Process, ProcessId, Workflow};
use crate::paths::{counted, relative};

/// Length of a name in a label, in characters.
const NAME: usize = 36;

/// Draws every group.
pub fn of_rules(workflow: &Workflow, dag: &Dag, rules: &RuleGraph) -> Drawing {
    let mut drawing = Drawing {
        title: title(workflow),
        ..Drawing::default()
    };
    let (mut rule_ids, mut file_ids) = (0, 0);
    let mut named: HashMap<&str, u32> = HashMap::new();
    for node in rules.graph.node_indices() {
        *named.entry(rules.name(node)).or_default() += 1;
    }
    for (place, group) in rules.graph.node_references() {
        let number = match group.members {
            Members::Processes { .. } => &mut rule_ids,
            Members::Files { .. } => &mut file_ids,
        };
        *number += 1;
        let mut drawn = node(&mut drawing, workflow, group, *number);
        // Groups of files are distinguished by their names if these differ.
        let is_file = matches!(group.members, Members::Files { .. });
        if group.rounds > 1 && !(is_file && named.get(rules.name(place)) == Some(&1)) {
            let which = format!("group {} of {}", group.round, group.rounds);
            drawn.label.push(which);
        }
        drawing.nodes.push(drawn);
    }
    let edges = rules.graph.edge_references();
    let drawn = edges.map(|e| edge((e.source(), e.target()), e.weight()));
    drawing.add_in_order(drawn.collect());
    let mut against: BTreeMap<(NodeIndex, NodeIndex), GroupEdge> = BTreeMap::new();
    for fork in forks_against_data(dag) {
        let [from, to] = [fork.from, fork.to].map(|node| rules.group_of[node.index()]);
        let more = GroupEdge::of(&fork.edge);
        if from != to {
            let all = against.entry((from, to));
            all.and_modify(|all| all.add(&more)).or_insert(more);
        }
    }
    let against = against.into_iter().map(|(ends, all)| edge(ends, &all));
    drawing.add_beside(against.collect());
    for (name, n) in [
        ("forks_not_drawn", rules.hidden_forks),
        ("edges_within_groups", rules.inner_edges),
    ] {
        drawing.attributes.push((name, Value::Integer(n as i64)));
    }
    finish(&mut drawing, workflow, dag);
    drawing
}

fn edge((from, to): (NodeIndex, NodeIndex), e: &GroupEdge) -> DrawnEdge {
    let mut drawn = DrawnEdge::plain((from.index(), to.index()), Relation::Graph(e.kind));
    drawn.moves(e.way, (e.bytes, e.back_bytes, e.is_bound), e.latency_ns);
    let numbers = [
        ("calls", e.calls),
        ("edges", e.count),
        ("latency_ns", e.latency_ns),
        ("first_ns", e.first_ns),
        ("last_ns", e.last_ns),
    ];
    let numbers = numbers.map(|(name, n)| (name, Value::Integer(n)));
    drawn.attributes.extend(numbers);
    if e.kind == EdgeKind::Fork && e.count > 1 {
        drawn.label.push(format!("×{}", units::count(e.count)));
    }
    drawn
}

fn node(drawing: &mut Drawing, workflow: &Workflow, group: &Group, number: i64) -> DrawnNode {
    let mut drawn = match &group.members {
        Members::Processes { rule, processes } => {
            let ends = |id: &&ProcessId| group.goes_on.binary_search(id).is_err();
            let ended = processes.iter().filter(ends);
            let members = || ended.clone().map(|&id| workflow.process(id));
            let cpu: Vec<i64> = members().filter_map(|p| p.cpu_ns).collect();
            let lives: Vec<i64> = members().filter_map(Process::duration_ns).collect();
            let (cpu_sum, life_sum) = (sum(&cpu), sum(&lives));
            let name = units::shorten(&units::plain(rule), NAME) + &group.mark();
            let mut label = vec![with_count(&name, processes.len())];
            if !lives.is_empty() {
                let mean = life_sum / lives.len() as i64;
                let each = if processes.len() > 1 { " each" } else { "" };
                let mut line = format!("{}{each}", units::duration(mean));
                if !cpu.is_empty() {
                    line += &format!(", cpu {}", units::duration(cpu_sum));
                }
                label.push(line);
            }
            let failed = members().filter(|p| p.has_failed()).count();
            if failed > 0 {
                label.push(format!("{failed} failed"));
            }
            if group.inner_files > 0 {
                let files = units::counted(group.inner_files, "file", "files");
                let size = units::bytes(group.inner_bytes);
                label.push(format!("{files} of its own, {size}"));
            }
            DrawnNode {
                id: format!("r{number}"),
                shape: Shape::Process,
                label,
                hue: Some(hue(rule)),
                processes: processes.clone(),
                goes_on: group.goes_on.clone(),
                is_critical: false,
                attributes: vec![
                    ("type", Value::Text("rule".into())),
                    ("rule", drawing.text(rule)),
                    ("count", Value::Integer(processes.len() as i64)),
                    ("cpu_ns", Value::Integer(cpu_sum)),
                    ("life_ns", Value::Integer(life_sum)),
                    ("failed", Value::Integer(failed as i64)),
                ],
                weight: life_sum,
            }
        }
        Members::Files {
            pattern,
            files,
            size_bytes,
        } => {
            let cwd = workflow.runs.first().map_or("", |run| run.cwd.as_str());
            let name = units::shorten_path(&units::plain(relative(pattern, cwd)), NAME);
            let mut attributes = vec![
                ("type", Value::Text("files".into())),
                ("path", drawing.text(pattern)),
                ("count", Value::Integer(files.len() as i64)),
            ];
            attributes.extend(size_bytes.map(|size| ("size_bytes", Value::Integer(size))));
            DrawnNode {
                id: format!("g{number}"),
                shape: Shape::File,
                label: vec![counted(&name, files.len())],
                hue: None,
                processes: Vec::new(),
                goes_on: Vec::new(),
                is_critical: false,
                attributes,
                weight: size_bytes.unwrap_or(0),
            }
        }
    };
    drawn
        .attributes
        .push(("part", Value::Integer(i64::from(group.round))));
    if group.versions > 1 {
        let version = Value::Integer(i64::from(group.version));
        drawn.attributes.push(("version", version));
    }
    drawn
}

fn with_count(name: &str, count: usize) -> String {
    match count {
        1 => name.into(),
        count => format!("{name} ×{}", units::count(count as i64)),
    }
}

fn sum(values: &[i64]) -> i64 {
    values.iter().copied().fold(0, i64::saturating_add)
}
