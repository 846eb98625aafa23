//! Plots as a Graphviz graph in which everything has its place already (`neato -n2`): the way to PNG,
//! PDF and PostScript without another renderer.

use std::io::{self, Write};

use super::{Anchor, Chart, HEIGHT, Mark, ROOM, WIDTH};
use crate::export::dot::shown;

/// Writes the plot for `neato -n2`.
///
/// # Errors
/// When `out` fails.
pub fn write(chart: &Chart, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "graph plot {{")?;
    writeln!(
        out,
        "  graph [bb=\"0,0,{WIDTH},{HEIGHT}\", splines=line, outputorder=edgesfirst, pad=0.1, dpi=144, fontname=\"Helvetica\"];"
    )?;
    writeln!(
        out,
        "  node [shape=point, width=0.01, height=0.01, label=\"\", style=invis, fontname=\"Helvetica\"];"
    )?;
    // Two corners keep the room around the plot.
    writeln!(out, "  c0 [pos=\"0,0\"]; c1 [pos=\"{WIDTH},{HEIGHT}\"];")?;
    for (i, mark) in chart.marks().into_iter().enumerate() {
        match mark {
            Mark::Line {
                points,
                colour,
                width,
            } => {
                for (k, (x, y)) in points.iter().enumerate() {
                    writeln!(out, "  m{i}_{k} [pos=\"{x:.1},{:.1}\"];", HEIGHT - y)?;
                }
                let names: Vec<String> = (0..points.len()).map(|k| format!("m{i}_{k}")).collect();
                if names.len() > 1 {
                    writeln!(
                        out,
                        "  {} [color=\"{colour}\", penwidth={width}];",
                        names.join(" -- ")
                    )?;
                }
            }
            Mark::Box { from, to, colour } => {
                let middle = ((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0);
                writeln!(
                    out,
                    "  m{i} [pos=\"{:.1},{:.1}\", shape=box, style=filled, color=\"{colour}bf\", fixedsize=true, width={:.4}, height={:.4}];",
                    middle.0,
                    HEIGHT - middle.1,
                    (to.0 - from.0).max(0.5) / 72.0,
                    (to.1 - from.1).max(0.1) / 72.0
                )?;
            }
            Mark::Text {
                at: (x, y),
                text,
                size,
                anchor,
                is_upright,
            } => {
                // It cannot turn text: the name of the axis stands above its numbers.
                let (at, anchor) = match is_upright {
                    true => ((ROOM.0 - 8.0, ROOM.2 - 9.0), Anchor::End),
                    false => ((x, y), anchor),
                };
                let (x, y) = centre(at, &text, size, anchor);
                writeln!(
                    out,
                    "  m{i} [pos=\"{x:.1},{y:.1}\", shape=plaintext, style=\"\", fontsize={size}, label={}];",
                    shown(&text)
                )?;
            }
        }
    }
    writeln!(out, "}}")
}

/// Half the width of a text: a character is about 0.54 of its size wide.
fn half_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.27
}

/// Where Graphviz has the middle of a text, from the lower edge.
fn centre((x, y): (f64, f64), text: &str, size: f64, anchor: Anchor) -> (f64, f64) {
    let half = half_width(text, size);
    let x = match anchor {
        Anchor::Start => x + half,
        Anchor::Middle => x,
        Anchor::End => x - half,
    };
    (x, HEIGHT - y + size * 0.35)
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Series, Style};
    use super::*;
    use crate::export::sheet::Unit;

    /// Middle, text and size of every label.
    fn labels(dot: &str) -> Vec<(f64, f64, String, f64)> {
        let part = |line: &str, begin: &str, end: &str| -> Option<String> {
            let rest = line.split_once(begin)?.1;
            Some(rest.split_once(end)?.0.to_owned())
        };
        let label = |line: &str| {
            let pos = part(line, "pos=\"", "\"")?;
            let (x, y) = pos.split_once(',')?;
            let size = part(line, "fontsize=", ",")?.parse().ok()?;
            let text = part(line, "label=\"", "\"")?;
            Some((x.parse().ok()?, y.parse().ok()?, text, size))
        };
        dot.lines().filter_map(label).collect()
    }

    #[test]
    fn no_text_lies_over_another() {
        let axis = |label: &str, unit| Axis {
            label: label.into(),
            unit,
            is_log: false,
        };
        let chart = Chart {
            title: "Throughput of files".into(),
            x: axis("time since the start", Unit::Ns),
            y: axis("rate", Unit::Rate),
            series: vec![Series {
                name: "read".into(),
                points: vec![(0.0, 0.0), (4e9, 600e6)],
                style: Style::Line,
            }],
        };
        let mut dot = Vec::new();
        write(&chart, &mut dot).unwrap();
        let labels = labels(&String::from_utf8(dot).unwrap());
        assert!(labels.iter().any(|label| label.2 == "rate"), "{labels:?}");
        for (i, a) in labels.iter().enumerate() {
            for b in &labels[i + 1..] {
                let beside = half_width(&a.2, a.3) + half_width(&b.2, b.3);
                let above = (a.3 + b.3) / 2.0;
                let is_apart = (a.0 - b.0).abs() >= beside || (a.1 - b.1).abs() >= above;
                assert!(is_apart, "{a:?} lies over {b:?}");
            }
        }
    }
}
