//! Graphviz DOT. Ellipses are processes, boxes files; dotted lines are forks.

use std::io::{self, Write};

use super::drawing::{Drawing, DrawnEdge, DrawnNode, Shape, Value};
use super::markup::escaped;
use crate::graph::EdgeKind;
use crate::model::Way;
use crate::text::units::is_noncharacter;

/// What is on the critical path.
pub(crate) const CRITICAL: &str = "#d0021b";

/// Writes the drawing.
///
/// # Errors
/// When `out` fails.
pub fn write(drawing: &Drawing, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "digraph flowtrace {{")?;
    writeln!(
        out,
        "  graph [rankdir=TB, nodesep=0.3, ranksep=0.6, outputorder=edgesfirst, fontname=\"Helvetica\","
    )?;
    writeln!(
        out,
        "    labelloc=t, label={}{}];",
        shown(&title(drawing)),
        facts(&drawing.attributes)
    )?;
    writeln!(
        out,
        "  node [fontname=\"Helvetica\", fontsize=11, margin=\"0.08,0.04\", style=filled];"
    )?;
    writeln!(
        out,
        "  edge [fontname=\"Helvetica\", fontsize=9, color=\"#555555\"];"
    )?;
    for node in &drawing.nodes {
        write_node(node, out)?;
    }
    for edge in &drawing.edges {
        write_edge(drawing, edge, out)?;
    }
    writeln!(out, "}}")
}

/// The title names what was left out, for those who only see the picture.
fn title(drawing: &Drawing) -> String {
    let left_out: i64 = drawing
        .attributes
        .iter()
        .filter_map(|(name, value)| match value {
            Value::Integer(n) if name.starts_with("cycle_") => Some(*n),
            _ => None,
        })
        .sum();
    match left_out {
        0 => drawing.title.clone(),
        1 => format!(
            "{}\n1 edge that contradicts others is left out",
            drawing.title
        ),
        n => format!(
            "{}\n{n} edges that contradict others are left out",
            drawing.title
        ),
    }
}

fn write_node(node: &DrawnNode, out: &mut impl Write) -> io::Result<()> {
    let shape = match node.shape {
        Shape::Process => "ellipse",
        Shape::File => "box",
        Shape::More => "plaintext",
    };
    let fill = match (node.shape, node.hue) {
        (Shape::Process, Some(hue)) => shade(hue),
        (Shape::File, _) => "#f4f4f0".into(),
        _ => "#ffffff".into(),
    };
    let border = match node.is_critical {
        true => format!(", color=\"{CRITICAL}\", penwidth=2.0"),
        false => String::new(),
    };
    writeln!(
        out,
        "  {} [shape={shape}, fillcolor=\"{fill}\"{border}, label={}{}];",
        node.id,
        shown(&node.label.join("\n")),
        facts(&node.attributes)
    )
}

/// The colour of a rule's processes: the same in every drawing of every run.
pub(crate) fn fill(rule: &str) -> String {
    shade(super::drawing::hue(rule))
}

fn shade(hue: u16) -> String {
    format!("{:.3} 0.250 0.960", f64::from(hue) / 360.0)
}

fn write_edge(drawing: &Drawing, edge: &DrawnEdge, out: &mut impl Write) -> io::Result<()> {
    let look = match edge.kind {
        EdgeKind::Fork => "style=dotted, arrowhead=open",
        EdgeKind::Update => "style=dashed, arrowhead=empty",
        EdgeKind::Exec => "color=\"#7a4fa3\", arrowhead=diamond",
        EdgeKind::Pipe => "color=\"#2e7d4f\", arrowhead=normal",
        EdgeKind::Socket => match edge.way {
            Way::Forth => "color=\"#2e7d4f\", style=dashed, arrowhead=normal",
            Way::Both => "color=\"#2e7d4f\", style=dashed, dir=both",
            Way::Unknown => "color=\"#2e7d4f\", style=dashed, dir=none",
        },
        EdgeKind::Read => "color=\"#2b6ca3\", arrowhead=normal",
        EdgeKind::Write => "color=\"#b3541e\", arrowhead=vee",
        EdgeKind::Create => "color=\"#b3541e\", arrowhead=normal",
    };
    // Thicker where more flowed: one step per factor of a thousand.
    let width = match edge.attributes.iter().find(|(name, _)| *name == "bytes") {
        Some((_, Value::Integer(bytes))) if *bytes >= 1_000_000_000 => 3.0,
        Some((_, Value::Integer(bytes))) if *bytes >= 1_000_000 => 2.0,
        _ => 1.0,
    };
    let label = match edge.label.as_str() {
        "" => String::new(),
        // On a ground of its own: lines that cross it do not strike it out.
        label => format!(
            ", label=<<table border=\"0\" cellborder=\"0\" cellpadding=\"1\" bgcolor=\"white\"><tr><td>{}</td></tr></table>>",
            escaped(label)
        ),
    };
    let look = match edge.is_critical {
        true => format!("{look}, color=\"{CRITICAL}\""),
        false => look.into(),
    };
    let width = if edge.is_critical { width + 1.0 } else { width };
    writeln!(
        out,
        "  {} -> {} [{look}, penwidth={width:.1}{label}{}];",
        drawing.nodes[edge.from].id,
        drawing.nodes[edge.to].id,
        facts(&edge.attributes)
    )
}

/// Attributes that graphviz does not know: it keeps them for other programs. They get a prefix,
/// because some of its own (`weight`, `path`) would change the picture.
fn facts(attributes: &[(&'static str, Value)]) -> String {
    let mut text = String::new();
    for (name, value) in attributes {
        let value = match value {
            Value::Integer(n) => n.to_string(),
            Value::Text(value) => quoted(value),
        };
        text += &format!(", ft_{name}={value}");
    }
    text
}

/// A quoted string that Graphviz shows, as a label or as the name of a node: it takes `&lt;` and the like in it for
/// characters, and writes some that are none into an SVG as they are.
pub fn shown(text: &str) -> String {
    quoted(&text.replace('&', "&amp;"))
}

/// A quoted string that Graphviz only keeps. A newline becomes the two characters `\n`, which graphviz centres.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() || is_noncharacter(c) => quoted.push('\u{fffd}'),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
