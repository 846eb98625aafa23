//! Plots as SVG.

use std::io::{self, Write};

use crate::export::markup::Markup;

use super::{Anchor, Chart, HEIGHT, Mark, WIDTH};

/// Writes the plot as SVG.
///
/// # Errors
/// When `out` fails.
pub fn write(chart: &Chart, out: &mut impl Write) -> io::Result<()> {
    let mut svg = Markup::new(out);
    svg.open(
        "svg",
        &[
            ("xmlns", &"http://www.w3.org/2000/svg"),
            ("width", &WIDTH),
            ("height", &HEIGHT),
            ("viewBox", &format_args!("0 0 {WIDTH} {HEIGHT}")),
            ("font-family", &"Helvetica, Arial, sans-serif"),
        ],
    )?;
    svg.empty(
        "rect",
        &[
            ("width", &"100%"),
            ("height", &"100%"),
            ("fill", &"#ffffff"),
        ],
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
                svg.empty(
                    "polyline",
                    &[
                        ("points", &points.join(" ")),
                        ("fill", &"none"),
                        ("stroke", &colour),
                        ("stroke-width", &width),
                    ],
                )?;
            }
            Mark::Box { from, to, colour } => svg.empty(
                "rect",
                &[
                    ("x", &tenths(from.0)),
                    ("y", &tenths(from.1)),
                    ("width", &tenths(to.0 - from.0)),
                    ("height", &tenths((to.1 - from.1).max(0.0))),
                    ("fill", &colour),
                    ("fill-opacity", &0.75),
                ],
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
                    true => format!("rotate(-90 {x:.1} {y:.1})"),
                    false => "rotate(0)".into(),
                };
                svg.leaf(
                    "text",
                    &[
                        ("x", &tenths(x)),
                        ("y", &tenths(y)),
                        ("font-size", &size),
                        ("text-anchor", &anchor),
                        ("transform", &turn),
                    ],
                    crate::text::units::plain(&text),
                )?;
            }
        }
    }
    svg.close()
}

/// A coordinate; a tenth of a point is finer than any screen.
fn tenths(value: f64) -> String {
    format!("{value:.1}")
}
