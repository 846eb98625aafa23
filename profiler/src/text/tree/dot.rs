//! The tree for Graphviz.

use std::io::{self, Write};

use flowtrace_render::dot::{quoted, shown};
use flowtrace_render::units;

use super::branch::{Branch, branches, life_ns, longest_chain};
use super::ending;
use crate::argv::without_directory;
use crate::export::dot::{CRITICAL, fill};
use crate::model::{Process, ProcessId, Workflow};

/// Characters of a command line in a node.
const LABEL: usize = 48;

/// Writes the tree as DOT: an ellipse for every process, or for every group of processes alike. The
/// longest chain is red. `is_full`: nothing is folded.
///
/// # Errors
/// When `out` fails.
pub fn dot(workflow: &Workflow, is_full: bool, out: &mut dyn Write) -> io::Result<()> {
    let chain = longest_chain(workflow);
    let branches = branches(workflow, is_full, &chain);
    let processes = units::counted(workflow.processes.len() as i64, "process", "processes");
    writeln!(out, "digraph tree {{")?;
    writeln!(
        out,
        "  graph [rankdir=LR, nodesep=0.15, ranksep=0.4, fontname=\"Helvetica\", labelloc=t,\n    \
         label={}, ft_processes={}, ft_longest_chain={}];",
        shown(&format!("process tree: {processes}")),
        workflow.processes.len(),
        chain.len(),
    )?;
    writeln!(
        out,
        "  node [fontname=\"Helvetica\", fontsize=11, margin=\"0.08,0.04\", style=filled];"
    )?;
    writeln!(
        out,
        "  edge [fontname=\"Helvetica\", fontsize=9, color=\"#555555\", style=dotted];"
    )?;
    for branch in &branches {
        write_node(workflow, branch, out)?;
    }
    for branch in &branches {
        let Some(parent) = branch.parent else {
            continue;
        };
        let red = match branch.is_on_chain && branches[parent].is_on_chain {
            true => format!(", style=solid, color=\"{CRITICAL}\", penwidth=2.0"),
            false => String::new(),
        };
        writeln!(
            out,
            "  {} -> {} [ft_kind=\"fork\", ft_count={}{red}];",
            name(workflow, &branches[parent]),
            name(workflow, branch),
            branch.members.len(),
        )?;
    }
    writeln!(out, "}}")
}

/// The same names as in the graph of the workflow: the upid of the first image of the first process.
fn name(workflow: &Workflow, branch: &Branch) -> String {
    format!("p{}", workflow.images(branch.members[0])[0].upid)
}

fn write_node(workflow: &Workflow, branch: &Branch, out: &mut dyn Write) -> io::Result<()> {
    let first = branch.members[0];
    let last = workflow.last_image(first);
    let lives = branch.members.iter().map(|&id| life_ns(workflow, id));
    let life: i64 = lives.fold(0, i64::saturating_add);
    let title = match branch.members.len() {
        1 => {
            let command = last.command.as_deref().unwrap_or(&last.rule);
            format!(
                "{} {}{}",
                workflow.process(first).pid,
                workflow.rules_before(first),
                without_directory(command)
            )
        }
        n => format!("{} × {}", units::count(n as i64), workflow.rule(first)),
    };
    let mean = life / branch.members.len() as i64;
    let mut label = vec![units::shorten(&units::plain(&title), LABEL)];
    label.push(match branch.members.len() {
        1 => units::duration(mean),
        _ => format!("{} each", units::duration(mean)),
    });
    label.extend(ending(workflow.process(first)));
    let border = match branch.is_on_chain {
        true => format!(", color=\"{CRITICAL}\", penwidth=2.0"),
        false => String::new(),
    };
    let sum = |of: fn(&Process) -> Option<i64>| {
        let known = branch
            .members
            .iter()
            .filter_map(|&id: &ProcessId| of(workflow.process(id)));
        known.reduce(i64::saturating_add)
    };
    let mut facts = format!(
        ", ft_rule={}, ft_count={}, ft_life_ns={life}, ft_longest_chain={}",
        quoted(workflow.rule(first)),
        branch.members.len(),
        u8::from(branch.is_on_chain)
    );
    for (fact, value) in [
        ("cpu_ns", sum(|p| p.cpu_ns)),
        ("read_bytes", sum(|p| p.read_bytes)),
        ("write_bytes", sum(|p| p.write_bytes)),
    ] {
        if let Some(value) = value {
            facts += &format!(", ft_{fact}={value}");
        }
    }
    writeln!(
        out,
        "  {} [shape=ellipse, fillcolor=\"{}\"{border}, label={}{facts}];",
        name(workflow, branch),
        fill(workflow.rule(first)),
        shown(&label.join("\n")),
    )
}
