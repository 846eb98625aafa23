//! Plots as a Graphviz graph in which everything has its place already (`neato -n2`): the way to PNG,
//! PDF and PostScript without another renderer.

use std::io::{self, Write};

use super::{Anchor, Chart, HEIGHT, Mark, WIDTH};
use crate::export::dot::quoted;

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
                // Graphviz centres a label on its node; half a character's width is 0.27 of its size.
                let half = text.chars().count() as f64 * size * 0.27;
                let x = match anchor {
                    Anchor::Start => x + half,
                    Anchor::Middle => x,
                    Anchor::End => x - half,
                };
                // It cannot turn text: a word on a line of its own stays beside the axis.
                let (x, text) = match is_upright {
                    true => (x + 14.0, text.replace(' ', "\n")),
                    false => (x, text),
                };
                writeln!(
                    out,
                    "  m{i} [pos=\"{x:.1},{:.1}\", shape=plaintext, style=\"\", fontsize={size}, label={}];",
                    HEIGHT - y + size * 0.35,
                    quoted(&text)
                )?;
            }
        }
    }
    writeln!(out, "}}")
}
