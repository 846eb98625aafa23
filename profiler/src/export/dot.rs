//! Graphviz DOT. Ellipses are processes, boxes are files, dotted lines are forks. The legend is in the
//! title, so that all nodes and edges are those of the workflow.

use std::io::{self, Write};

use flowtrace_render::dot::{quoted, shown};
use flowtrace_render::markup::escaped;

use super::drawing::{Drawing, DrawnEdge, DrawnNode, Order, Relation, Shape, Value};
use crate::graph::EdgeKind;
use crate::model::Way;

/// Colour of the critical path.
pub(crate) const CRITICAL: &str = "#d0021b";

/// The quantity that the width of a line shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Width {
    /// Bytes that moved along the edge.
    #[default]
    Bytes,
    /// Bytes per second of the time in the calls that moved them.
    Rate,
}

impl Width {
    fn of(self, edge: &DrawnEdge) -> f64 {
        match self {
            Width::Bytes => self.pen(edge.bytes),
            Width::Rate => self.pen(edge.bytes_per_s.unwrap_or(0)),
        }
    }

    /// The width in points. Each decade adds the same, so that pictures can be compared.
    fn pen(self, value: i64) -> f64 {
        let (thinnest, decade) = match self {
            Width::Bytes => (1e3, 0.6),
            Width::Rate => (1e5, 0.8),
        };
        let decades = (value.max(1) as f64 / thinnest).log10();
        0.8 + decade * decades.clamp(0.0, 9.0)
    }

    /// The caption of the scale, and the values that it shows.
    const fn scale(self) -> (&'static str, [(i64, &'static str); 3]) {
        const K: i64 = 1000;
        match self {
            Width::Bytes => (
                "line width: bytes moved",
                [(K, "1 kB"), (K * K, "1 MB"), (K * K * K, "1 GB")],
            ),
            Width::Rate => (
                "line width: bytes per second in calls",
                [
                    (100 * K, "100 kB/s"),
                    (10 * K * K, "10 MB/s"),
                    (K * K * K, "1 GB/s"),
                ],
            ),
        }
    }
}

/// Writes the drawing.
///
/// # Errors
/// When `out` fails.
pub fn write(drawing: &Drawing, width: Width, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "digraph flowtrace {{")?;
    writeln!(
        out,
        "  graph [rankdir=TB, nodesep=0.3, ranksep=0.6, outputorder=edgesfirst, fontname=\"Helvetica\","
    )?;
    writeln!(
        out,
        "    labelloc=t, label=<{}>{}];",
        title(drawing, width),
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
        write_edge(drawing, edge, width, out)?;
    }
    writeln!(out, "}}")
}

/// The title, which names what was left out since some readers see only the picture, and the legend
/// below it.
fn title(drawing: &Drawing, width: Width) -> String {
    let left_out = drawing.attributes.iter().find_map(|fact| match fact {
        ("cycle_data_edges_left_out", Value::Integer(n)) => Some(*n),
        _ => None,
    });
    let mut rows = vec![escaped(&drawing.title)];
    rows.extend(match left_out {
        None | Some(0) => None,
        Some(1) => Some("1 edge of data that contradicts others is left out".into()),
        Some(n) => Some(format!(
            "{n} edges of data that contradict others are left out"
        )),
    });
    rows.extend(legend(drawing, width));
    let rows: String = rows
        .iter()
        .map(|row| format!("<tr><td>{row}</td></tr>"))
        .collect();
    format!("<table border=\"0\" cellborder=\"0\" cellpadding=\"2\">{rows}</table>")
}

/// The rows of the legend: each kind of edge that occurs, with its sign.
fn legend(drawing: &Drawing, width: Width) -> Vec<String> {
    let coloured = |colour: &str, sign: &str| format!("<font color=\"{colour}\">{sign}</font>");
    let mut signs: Vec<String> = EDGE_STYLES
        .iter()
        .filter(|drawn| drawing.edges.iter().any(|edge| drawn.is_of(edge)))
        .map(|drawn| format!("{} {}", coloured(drawn.colour, drawn.sign), drawn.says))
        .collect();
    if drawing.edges.iter().any(|edge| edge.is_critical) {
        signs.push(coloured(CRITICAL, "━━ critical path"));
    }
    if signs.is_empty() {
        return Vec::new();
    }
    let small = |text: &str| format!("<font point-size=\"9\">{text}</font>");
    let mut rows = vec![small(&signs.join(" &#160; "))];
    if drawing.edges.iter().any(|edge| edge.bytes > 0) {
        let (says, values) = width.scale();
        let mut cells = format!("<td>{}</td>", small(says));
        for (value, name) in values {
            // A line of that width, with free space above and below.
            let line = width.pen(value).round();
            cells += &format!(
                "<td><table border=\"0\" cellborder=\"0\" cellspacing=\"0\" cellpadding=\"0\"><tr>\
                 <td width=\"26\" height=\"{line}\" fixedsize=\"true\" bgcolor=\"#555555\"></td></tr></table></td><td>{}</td>",
                small(name)
            );
        }
        let on_lines =
            "on lines: bytes moved, and bytes per second of the time in the calls that moved them";
        cells += &format!("<td>&#160; {}</td>", small(on_lines));
        rows.push(format!(
            "<table border=\"0\" cellborder=\"0\" cellspacing=\"0\" cellpadding=\"2\"><tr>{cells}</tr></table>"
        ));
    }
    rows
}

/// The style of the edges of one kind.
struct EdgeStyle {
    relation: Relation,
    /// True if the edges lead against the order of the data.
    is_against: bool,
    colour: &'static str,
    style: &'static str,
    head: &'static str,
    /// Sign of the kind in the legend.
    sign: &'static str,
    says: &'static str,
}

impl EdgeStyle {
    const fn of(kind: EdgeKind, colour: &'static str, head: &'static str) -> EdgeStyle {
        EdgeStyle {
            relation: Relation::Graph(kind),
            is_against: false,
            colour,
            style: "solid",
            head,
            sign: "──▶",
            says: kind.name(),
        }
    }

    fn is_of(&self, edge: &DrawnEdge) -> bool {
        let is_fork = edge.relation == Relation::Graph(EdgeKind::Fork);
        let is_against = is_fork && edge.order == Order::Back;
        self.relation == edge.relation && self.is_against == is_against
    }
}

/// Arrowheads by operation; dotted lines for edges between processes without data (ParaTrac, section
/// 6.3.4).
const EDGE_STYLES: [EdgeStyle; 10] = [
    EdgeStyle::of(EdgeKind::Read, "#2b6ca3", "normal"),
    EdgeStyle {
        sign: "──◆",
        says: "run as program",
        ..EdgeStyle::of(EdgeKind::Exec, "#7a4fa3", "diamond")
    },
    EdgeStyle::of(EdgeKind::Create, "#b3541e", "normal"),
    EdgeStyle {
        sign: "──➤",
        ..EdgeStyle::of(EdgeKind::Write, "#b3541e", "vee")
    },
    EdgeStyle::of(EdgeKind::Pipe, "#2e7d4f", "normal"),
    EdgeStyle {
        style: "dashed",
        sign: "╌╌▶",
        ..EdgeStyle::of(EdgeKind::Socket, "#2e7d4f", "normal")
    },
    EdgeStyle {
        style: "dashed",
        sign: "╌╌▷",
        says: "next version",
        ..EdgeStyle::of(EdgeKind::Update, "#555555", "empty")
    },
    EdgeStyle {
        style: "dotted",
        sign: "┈┈›",
        says: "started",
        ..EdgeStyle::of(EdgeKind::Fork, "#555555", "open")
    },
    EdgeStyle {
        is_against: true,
        style: "dotted",
        sign: "┈┈◇",
        says: "started, and got its data back",
        ..EdgeStyle::of(EdgeKind::Fork, "#8a6d00", "odiamond")
    },
    EdgeStyle {
        relation: Relation::Wait,
        style: "dashed",
        sign: "╌╌○",
        says: "waited for that",
        ..EdgeStyle::of(EdgeKind::Fork, CRITICAL, "odot")
    },
];

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

/// The colour of a rule's processes, the same in every drawing of every run.
pub(crate) fn fill(rule: &str) -> String {
    shade(super::drawing::hue(rule))
}

fn shade(hue: u16) -> String {
    format!("{:.3} 0.250 0.960", f64::from(hue) / 360.0)
}

fn write_edge(
    drawing: &Drawing,
    edge: &DrawnEdge,
    width: Width,
    out: &mut impl Write,
) -> io::Result<()> {
    let Some(drawn) = EDGE_STYLES.iter().find(|drawn| drawn.is_of(edge)) else {
        unreachable!("each relation has its style");
    };
    let mut how = format!("style={}", drawn.style);
    // An edge that leads back is stored with its ends exchanged.
    how += &match (edge.way, edge.order) {
        (Way::Unknown, _) => ", dir=none".into(),
        (Way::Both, _) => format!(", dir=both, arrowhead={0}, arrowtail={0}", drawn.head),
        (Way::Forth, Order::Back) => format!(", dir=back, arrowtail={}", drawn.head),
        (Way::Forth, Order::Forward | Order::Beside) => format!(", arrowhead={}", drawn.head),
    };
    if edge.order != Order::Forward {
        how += ", constraint=false";
    }
    let colour = if edge.is_critical {
        CRITICAL
    } else {
        drawn.colour
    };
    let more = if edge.is_critical { 1.0 } else { 0.0 };
    let pen = width.of(edge) + more;
    let rows: String = edge
        .label
        .iter()
        .map(|line| format!("<tr><td>{}</td></tr>", escaped(line)))
        .collect();
    let label = match rows.as_str() {
        "" => String::new(),
        // With a background, so that lines that cross the label do not strike it out.
        rows => format!(
            ", label=<<table border=\"0\" cellborder=\"0\" cellspacing=\"0\" cellpadding=\"1\" bgcolor=\"white\">{rows}</table>>"
        ),
    };
    writeln!(
        out,
        "  {} -> {} [color=\"{colour}\", {how}, penwidth={pen:.1}{label}{}];",
        drawing.nodes[edge.from].id,
        drawing.nodes[edge.to].id,
        facts(&edge.attributes)
    )
}

/// Attributes for other programs, which graphviz keeps but does not know. They have a prefix, because
/// some of the names (`weight`, `path`) would change the picture.
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
