//! Plots as SVG.

use std::io::{self, Write};

use super::{Anchor, Chart, HEIGHT, Mark, WIDTH};

/// Writes the plot as SVG.
///
/// # Errors
/// When `out` fails.
pub fn write(chart: &Chart, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"Helvetica, Arial, sans-serif\">"
    )?;
    writeln!(
        out,
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
    )?;
    for mark in chart.marks() {
        match mark {
            Mark::Line {
                points,
                colour,
                width,
            } => {
                let points: Vec<String> = points
                    .iter()
                    .map(|(x, y)| format!("{x:.1},{y:.1}"))
                    .collect();
                writeln!(
                    out,
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>",
                    points.join(" ")
                )?;
            }
            Mark::Box { from, to, colour } => writeln!(
                out,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\" fill-opacity=\"0.75\"/>",
                from.0,
                from.1,
                to.0 - from.0,
                (to.1 - from.1).max(0.0)
            )?,
            Mark::Text {
                at: (x, y),
                text,
                size,
                anchor,
                is_upright,
            } => {
                let anchor = match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                };
                let turn = match is_upright {
                    true => format!(" transform=\"rotate(-90 {x:.1} {y:.1})\""),
                    false => String::new(),
                };
                writeln!(
                    out,
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\"{turn}>{}</text>",
                    crate::export::graphml::escaped(&crate::text::units::plain(&text))
                )?;
            }
        }
    }
    writeln!(out, "</svg>")
}
