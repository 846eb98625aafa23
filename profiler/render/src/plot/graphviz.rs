//! Plots as a Graphviz graph in which all nodes have their place already (`neato -n2`): the way to PNG, PDF
//! and PostScript without another renderer.

use std::convert::Infallible;
use std::fmt::Write;

use plotters::style::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
};

use crate::dot::shown;

/// Draws into a graph: a line is an edge between invisible nodes, a text or box is a node.
pub(super) struct Backend<'a> {
    out: &'a mut String,
    size: (u32, u32),
    marks: usize,
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl Backend<'_> {
    pub(super) fn new(out: &mut String, size: (u32, u32)) -> Backend<'_> {
        let (width, height) = size;
        // Writing to a String cannot fail. Two corners keep the margin around the plot.
        let _ = writeln!(
            out,
            "graph plot {{\n  graph [bb=\"0,0,{width},{height}\", splines=line, outputorder=edgesfirst, pad=0.1, dpi=144, fontname=\"Helvetica\"];\n  \
             node [shape=point, width=0.01, height=0.01, label=\"\", style=invis, fontname=\"Helvetica\"];\n  \
             c0 [pos=\"0,0\"]; c1 [pos=\"{width},{height}\"];"
        );
        let marks = 0;
        Backend { out, size, marks }
    }

    /// The place, counted from the lower edge.
    fn place(&self, (x, y): (f64, f64)) -> String {
        format!("{x:.1},{:.1}", f64::from(self.size.1) - y)
    }

    fn mark(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.out, "  m{} {text}", self.marks);
        self.marks += 1;
    }

    fn filled(&mut self, (a, b): (BackendCoord, BackendCoord), colour: BackendColor) {
        let at = |a: i32, b: i32| f64::from(a + b) / 2.0;
        let size = |a: i32, b: i32| f64::from((b - a).abs().max(1)) / 72.0;
        let place = self.place((at(a.0, b.0), at(a.1, b.1)));
        self.mark(format_args!(
            "[pos=\"{place}\", shape=box, style=filled, penwidth=0, fillcolor=\"{}\", fixedsize=true, width={:.4}, height={:.4}];",
            name(colour), size(a.0, b.0), size(a.1, b.1)
        ));
    }
}

fn name(colour: BackendColor) -> String {
    let (r, g, b) = colour.rgb;
    format!(
        "#{r:02x}{g:02x}{b:02x}{:02x}",
        (colour.alpha * 255.0).round() as u8
    )
}

/// Half the width of a text: a character is about 0.54 of its size wide.
fn half_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.27
}

impl DrawingBackend for Backend<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        self.out.push_str("}\n");
        Ok(())
    }

    fn draw_pixel(&mut self, at: BackendCoord, colour: BackendColor) -> Drawn {
        self.filled((at, (at.0 + 1, at.1 + 1)), colour);
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, a: BackendCoord, b: BackendCoord, style: &S) -> Drawn {
        self.draw_path([a, b], style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        a: BackendCoord,
        b: BackendCoord,
        style: &S,
        is_filled: bool,
    ) -> Drawn {
        // The paper is white already.
        if is_filled && style.color().rgb != (255, 255, 255) {
            self.filled((a, b), style.color());
        } else if !is_filled {
            self.draw_path([a, (b.0, a.1), b, (a.0, b.1), a], style)?;
        }
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        let first = self.marks;
        for (x, y) in path {
            let place = self.place((f64::from(x), f64::from(y)));
            self.mark(format_args!("[pos=\"{place}\"];"));
        }
        if self.marks - first > 1 {
            let names: Vec<String> = (first..self.marks).map(|n| format!("m{n}")).collect();
            let _ = writeln!(
                self.out,
                "  {} [color=\"{}\", penwidth={}];",
                names.join(" -- "),
                name(style.color()),
                f64::from(style.stroke_width()) * 0.9
            );
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Drawn {
        let size = style.size() / 1.24;
        let half = half_width(text, size);
        let x = match style.anchor().h_pos {
            HPos::Left => half,
            HPos::Center => 0.0,
            HPos::Right => -half,
        };
        let y = match style.anchor().v_pos {
            VPos::Top => size * 0.5,
            VPos::Center => 0.0,
            VPos::Bottom => -size * 0.5,
        };
        // Graphviz places a text by its middle.
        let place = self.place((f64::from(at.0) + x, f64::from(at.1) + y));
        self.mark(format_args!(
            "[pos=\"{place}\", shape=plaintext, style=\"\", fontsize={size:.1}, fontcolor=\"{}\", label={}];",
            name(style.color()),
            shown(text)
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Chart, Series, Shape, write_dot};
    use super::*;
    use crate::units::Unit;

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
            ..Axis::default()
        };
        let chart = Chart {
            title: "Throughput of files".into(),
            x: axis("time since the start", Unit::Ns),
            y: axis("rate", Unit::Rate),
            series: vec![Series {
                name: "read".into(),
                shape: Shape::Line(vec![(0.0, 0.0), (4e9, 600e6)]),
            }],
            ..Chart::default()
        };
        let mut dot = Vec::new();
        write_dot(&chart.into(), &mut dot).unwrap();
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
