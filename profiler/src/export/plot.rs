//! Plots: lines or bars over one axis, drawn once and written as SVG, or for Graphviz, which makes
//! PNG, PDF and PostScript of them.

mod graphviz;
mod scale;
mod svg;

pub use graphviz::write as write_dot;
pub use svg::write as write_svg;

use crate::export::sheet::Unit;
use scale::Scale;

/// A plot.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// What the horizontal axis measures, and its unit.
    pub x: Axis,
    /// The same of the vertical axis.
    pub y: Axis,
    /// What is drawn, in this order.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Its name.
    pub label: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Whether equal factors are equally far apart.
    pub is_log: bool,
}

impl Default for Axis {
    fn default() -> Self {
        Axis {
            label: String::new(),
            unit: Unit::Count,
            is_log: false,
        }
    }
}

/// Values with a name.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Points in the order of x.
    pub points: Vec<(f64, f64)>,
    /// How they are drawn.
    pub style: Style,
}

/// How values are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line that rises at each point, as of a cumulative distribution.
    Steps,
    /// A line from point to point.
    Line,
    /// A bar from each x to the next.
    Bars,
}

/// Size of a plot in points.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
/// Room around the plot: left, right, top, bottom.
const ROOM: (f64, f64, f64, f64) = (76.0, 190.0, 40.0, 56.0);
/// Series drawn; the others are named as left out.
const MOST: usize = 12;
/// Colours told apart by people who see few of them too (Okabe and Ito), then darker ones.
const COLOURS: [&str; MOST] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a6d00",
    "#5b3a8c", "#7f7f7f", "#9c2c2c", "#2f6f4f",
];

/// A shape on the canvas, in points from the upper left corner.
#[derive(Clone, Debug)]
enum Mark {
    Line {
        points: Vec<(f64, f64)>,
        colour: &'static str,
        width: f64,
    },
    Box {
        from: (f64, f64),
        to: (f64, f64),
        colour: &'static str,
    },
    Text {
        at: (f64, f64),
        text: String,
        size: f64,
        anchor: Anchor,
        is_upright: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anchor {
    Start,
    Middle,
    End,
}

impl Chart {
    /// The shapes of the plot.
    fn marks(&self) -> Vec<Mark> {
        let (left, right, top, bottom) = ROOM;
        let xs = self
            .series
            .iter()
            .flat_map(|s| s.points.iter().map(|p| p.0));
        let ys = self
            .series
            .iter()
            .flat_map(|s| s.points.iter().map(|p| p.1));
        let x = Scale::of(xs, &self.x, (left, WIDTH - right));
        let y = Scale::of(ys.chain([0.0]), &self.y, (HEIGHT - bottom, top));
        let mut marks = Vec::new();
        self.axes(&x, &y, &mut marks);
        for (series, colour) in self.series.iter().zip(COLOURS) {
            draw(series, colour, (&x, &y), &mut marks);
        }
        self.legend(&mut marks);
        marks
    }

    fn axes(&self, x: &Scale, y: &Scale, marks: &mut Vec<Mark>) {
        let (left, right, top, bottom) = ROOM;
        let (base, end) = (HEIGHT - bottom, WIDTH - right);
        let mut text = |at, text: &str, size, anchor, is_upright| {
            marks.push(Mark::Text {
                at,
                text: text.into(),
                size,
                anchor,
                is_upright,
            });
        };
        text((left, top - 18.0), &self.title, 14.0, Anchor::Start, false);
        let middle = ((left + end) / 2.0, HEIGHT - 14.0);
        text(middle, &self.x.label, 12.0, Anchor::Middle, false);
        text(
            (16.0, (top + base) / 2.0),
            &self.y.label,
            12.0,
            Anchor::Middle,
            true,
        );
        let x_ticks = x.ticks();
        let y_ticks = y.ticks();
        for (value, name) in &x_ticks {
            text(
                (x.at(*value), base + 18.0),
                name,
                10.0,
                Anchor::Middle,
                false,
            );
        }
        for (value, name) in &y_ticks {
            text(
                (left - 8.0, y.at(*value) + 4.0),
                name,
                10.0,
                Anchor::End,
                false,
            );
        }
        let mut line = |points, colour, width| {
            marks.push(Mark::Line {
                points,
                colour,
                width,
            });
        };
        for (value, _) in &x_ticks {
            line(
                vec![(x.at(*value), base), (x.at(*value), top)],
                "#e4e4e4",
                0.7,
            );
        }
        for (value, _) in &y_ticks {
            line(
                vec![(left, y.at(*value)), (end, y.at(*value))],
                "#e4e4e4",
                0.7,
            );
        }
        line(vec![(left, top), (left, base), (end, base)], "#444444", 1.2);
    }

    fn legend(&self, marks: &mut Vec<Mark>) {
        let at = WIDTH - ROOM.1 + 14.0;
        let mut row = ROOM.2 + 6.0;
        let mut entry = |text: String, colour: Option<&'static str>| {
            if let Some(colour) = colour {
                marks.push(Mark::Line {
                    points: vec![(at, row), (at + 16.0, row)],
                    colour,
                    width: 3.0,
                });
            }
            marks.push(Mark::Text {
                at: (at + 22.0, row + 4.0),
                text,
                size: 11.0,
                anchor: Anchor::Start,
                is_upright: false,
            });
            row += 18.0;
        };
        for (series, colour) in self.series.iter().zip(COLOURS) {
            let name = crate::text::units::plain(&series.name);
            entry(crate::text::units::shorten(&name, 24), Some(colour));
        }
        if self.series.len() > MOST {
            entry(
                format!("+{} more not drawn", self.series.len() - MOST),
                None,
            );
        }
    }
}

fn draw(series: &Series, colour: &'static str, (x, y): (&Scale, &Scale), marks: &mut Vec<Mark>) {
    let mut points: Vec<(f64, f64)> = Vec::new();
    match series.style {
        Style::Line => points.extend(series.points.iter().map(|p| (x.at(p.0), y.at(p.1)))),
        Style::Steps => {
            let mut height = y.at(0.0);
            for point in &series.points {
                points.push((x.at(point.0), height));
                height = y.at(point.1);
                points.push((x.at(point.0), height));
            }
            // A distribution stays where it ended.
            points.push((x.end(), height));
        }
        Style::Bars => {
            for (i, point) in series.points.iter().enumerate() {
                let next = series.points.get(i + 1).map_or(x.end(), |p| x.at(p.0));
                marks.push(Mark::Box {
                    from: (x.at(point.0), y.at(point.1)),
                    to: ((next - 1.0).max(x.at(point.0) + 1.0), y.at(0.0)),
                    colour,
                });
            }
            return;
        }
    }
    marks.push(Mark::Line {
        points,
        colour,
        width: 1.8,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        Chart {
            title: "a <b> & \"c\"".into(),
            x: Axis {
                label: "time".into(),
                unit: Unit::Ns,
                is_log: true,
            },
            y: Axis {
                label: "share".into(),
                unit: Unit::Share,
                is_log: false,
            },
            series: vec![
                Series {
                    name: "rule\u{1b}".into(),
                    points: vec![(0.0, 0.1), (1e3, 0.5), (1e9, 1.0)],
                    style: Style::Steps,
                },
                Series {
                    name: "bars".into(),
                    points: vec![(10.0, 0.2), (100.0, 0.4)],
                    style: Style::Bars,
                },
            ],
        }
    }

    #[test]
    fn svg_is_well_formed_and_holds_every_series() {
        let mut out = Vec::new();
        write_svg(&chart(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"));
        assert!(text.contains("a &lt;b&gt; &amp; &quot;c&quot;") && !text.contains('\u{1b}'));
        assert_eq!(
            text.matches("<polyline").count(),
            text.matches("/>").count() - text.matches("<rect").count()
        );
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn nothing_to_draw_is_an_empty_plot() {
        let mut out = Vec::new();
        write_svg(&Chart::default(), &mut out).unwrap();
        write_dot(&Chart::default(), &mut out).unwrap();
        assert!(!String::from_utf8(out).unwrap().contains("NaN"));
    }
}
