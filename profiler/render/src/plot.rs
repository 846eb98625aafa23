//! Plots: lines, bars or spans over two axes, drawn by the library `plotters` as SVG, or for Graphviz,
//! which makes PNG, PDF and PostScript of them. Several plots of one picture stand below each other.

mod chart;
mod graphviz;
mod scale;

use std::io::{self, Write};

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::markup::escaped;
use crate::units;
pub use chart::{Axis, Chart, Picture, Rect, Series, Shape};
use scale::Scale;

/// Width of a single plot in points, and of one of several beside each other.
const WIDTH: u32 = 760;
const CELL: u32 = 330;
/// Width of the names of the series, in a plot that has a row of its own.
const LEGEND: u32 = 180;
/// Height of a single plot, and of one of several.
const ALONE: u32 = 440;
const PANEL: u32 = 190;
/// Height of the text above a plot, and of a line of text.
const HEAD: u32 = 46;
const LINE: u32 = 17;
/// Greatest number of series in a plot, and of rows in a picture; the others are counted.
const MOST: usize = 12;
const MOST_ROWS: usize = 24;
/// Colours that colour-blind people can distinguish (Okabe and Ito), then darker ones.
const COLOURS: [RGBColor; MOST] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x33, 0x33, 0x33),
    RGBColor(0x8a, 0x6d, 0x00),
    RGBColor(0x5b, 0x3a, 0x8c),
    RGBColor(0x7f, 0x7f, 0x7f),
    RGBColor(0x9c, 0x2c, 0x2c),
    RGBColor(0x2f, 0x6f, 0x4f),
];
const TEXT: RGBColor = RGBColor(0x22, 0x22, 0x22);
const FRAME: RGBColor = RGBColor(0x77, 0x77, 0x77);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
/// The picture on a dark page: it is drawn light, and only the ground, the text and colours too dark for that
/// ground change.
pub const DARK: &str = "@media (prefers-color-scheme: dark) {\
    [fill=\"#FFFFFF\"] { fill: #1c1f23 } text { fill: #d8dbdf } [stroke=\"#E4E4E4\"] { stroke: #32363c }\
    [stroke=\"#0072B2\"] { stroke: #4aa3df } [fill=\"#0072B2\"] { fill: #4aa3df }\
    [stroke=\"#333333\"] { stroke: #e4e6e9 } [fill=\"#333333\"] { fill: #e4e6e9 }\
    [stroke=\"#5B3A8C\"] { stroke: #a689d6 } [fill=\"#5B3A8C\"] { fill: #a689d6 }\
    [stroke=\"#9C2C2C\"] { stroke: #e07a7a } [fill=\"#9C2C2C\"] { fill: #e07a7a }\
    [stroke=\"#2F6F4F\"] { stroke: #6fbf97 } [fill=\"#2F6F4F\"] { fill: #6fbf97 }\
    }";

/// Writes the picture as SVG; on a dark page it is dark.
///
/// # Errors
/// When `out` fails.
pub fn write_svg(picture: &Picture, out: &mut impl Write) -> io::Result<()> {
    let mut text = String::new();
    let backend = SVGBackend::with_string(&mut text, picture.size());
    picture.draw(&backend.into_drawing_area()).map_err(failed)?;
    let (head, rest) = text.split_once('\n').unwrap_or(("", &text));
    let title = picture.charts.first().map_or("", |chart| &chart.title);
    let title = escaped(&units::plain(title));
    write!(
        out,
        "{head}\n<title>{title}</title>\n<style>{DARK}</style>\n{rest}"
    )
}

/// Writes the picture for `neato -n2`.
///
/// # Errors
/// When `out` fails.
pub fn write_dot(picture: &Picture, out: &mut impl Write) -> io::Result<()> {
    let mut text = String::new();
    let backend = graphviz::Backend::new(&mut text, picture.size());
    picture.draw(&backend.into_drawing_area()).map_err(failed)?;
    out.write_all(text.as_bytes())
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;
type Area<DB> = DrawingArea<DB, Shift>;

impl Picture {
    /// The drawn rows, each with its height.
    fn rows(&self) -> impl Iterator<Item = (&[Chart], u32)> {
        let least = if self.charts.len() == 1 { ALONE } else { PANEL };
        let rows = self.charts.chunks(self.columns.max(1)).take(MOST_ROWS);
        let names = |chart: &Chart| 2 * HEAD + chart.y.names.len() as u32 * (LINE + 3);
        rows.map(move |row| {
            let notes = row.iter().map(|chart| chart.notes.len()).max();
            let plot = row.iter().map(names).fold(least, u32::max);
            (row, plot + notes.unwrap_or(0) as u32 * LINE)
        })
    }

    /// Number of rows that are not drawn.
    fn left_out(&self) -> usize {
        let rows = self.charts.len().div_ceil(self.columns.max(1));
        rows.saturating_sub(MOST_ROWS)
    }

    fn size(&self) -> (u32, u32) {
        let more = if self.left_out() > 0 { LINE * 2 } else { 0 };
        let height = self.rows().map(|(_, height)| height).sum::<u32>();
        let width = if self.columns > 1 {
            CELL * self.columns as u32
        } else {
            WIDTH
        };
        (width, height.max(LINE) + more)
    }

    fn draw<DB: DrawingBackend>(&self, root: &Area<DB>) -> Drawn<DB> {
        root.fill(&WHITE)?;
        let mut rest = root.clone();
        // Axes below each other begin at one place, to the right of the longest name.
        let names = self.charts.iter().flat_map(|chart| &chart.y.names);
        let longest = names.map(|name| units::columns(name)).max().unwrap_or(0);
        let left = (longest as u32 * 6 + 18).clamp(72, 230);
        for (row, height) in self.rows() {
            let (area, below) = rest.split_vertically(height);
            rest = below;
            for (chart, area) in row.iter().zip(area.split_evenly((1, self.columns.max(1)))) {
                panel(&area, chart, left)?;
            }
        }
        if self.left_out() > 0 {
            let more = format!("+{} more not drawn", self.left_out());
            write_text(&rest, &more, (10, 8), 12.0)?;
        }
        root.present()
    }
}

fn panel<DB: DrawingBackend>(area: &Area<DB>, chart: &Chart, left: u32) -> Drawn<DB> {
    let (width, height) = area.dim_in_pixel();
    let (area, notes) = area.split_vertically(height - chart.notes.len() as u32 * LINE);
    for (at, note) in chart.notes.iter().enumerate() {
        write_text(&notes, note, (10, at as i32 * LINE as i32), 11.0)?;
    }
    let title = match chart.series.as_slice() {
        [only] if !only.name.is_empty() => format!("{}: {}", chart.title, only.name),
        _ => chart.title.clone(),
    };
    let title = units::shorten(&title, (width / 8) as usize);
    write_text(&area, &title, (10, 8), 14.0)?;
    write_text(&area, &chart.y.label, (10, 27), 11.0)?;
    let points: Vec<(f64, f64)> = chart.series.iter().flat_map(|s| s.shape.points()).collect();
    let x = Scale::of(points.iter().map(|p| p.0), &chart.x);
    let mut y = Scale::of(points.iter().map(|p| p.1).chain([0.0]), &chart.y);
    if !chart.y.names.is_empty() {
        // Names are read from top to bottom.
        y.turn();
    }
    let has_names = chart.series.len() > 1;
    let beside = has_names && width >= WIDTH;
    let (plot, names) = area.split_horizontally(width - if beside { LEGEND } else { 24 });
    let mut drawn = ChartBuilder::on(&plot)
        .margin_top(HEAD)
        .set_label_area_size(LabelAreaPosition::Left, left)
        .set_label_area_size(LabelAreaPosition::Bottom, HEAD)
        .build_cartesian_2d(x, y)?;
    let text = |size: f64| ("sans-serif", size * 1.24).into_font().color(&TEXT);
    drawn
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(FRAME)
        .x_labels(99)
        .y_labels(if chart.series.is_empty() { 0 } else { 99 })
        .x_label_style(text(10.0))
        .y_label_style(text(10.0))
        .axis_desc_style(text(11.0))
        .x_desc(units::plain(&chart.x.label))
        .draw()?;
    for (series, colour) in chart.series.iter().zip(COLOURS) {
        shape(&mut drawn, &series.shape, colour)?;
    }
    if beside {
        legend(&names, chart, |_, at| {
            (12, (HEAD + at as u32 * LINE) as i32)
        })
    } else if has_names {
        // The label is to the right of the axis's numbers.
        let begin = units::columns(&chart.y.label) as i32 * 6 + 26;
        legend(&area, chart, |before, _| (begin + before as i32 * 6, 33))
    } else {
        Ok(())
    }
}

/// Names of the series with their colours; `place` returns the place of a name by the columns of text before
/// it, and its number.
fn legend<DB: DrawingBackend>(
    area: &Area<DB>,
    chart: &Chart,
    place: impl Fn(usize, usize) -> (i32, i32),
) -> Drawn<DB> {
    let mut before = 0;
    for (at, (series, colour)) in chart.series.iter().zip(COLOURS).enumerate() {
        let (x, y) = place(before, at);
        area.draw(&Rectangle::new(
            [(x, y - 3), (x + 14, y + 3)],
            colour.filled(),
        ))?;
        let name = units::shorten(&units::plain(&series.name), 24);
        write_text(area, &name, (x + 20, y - 6), 11.0)?;
        before += units::columns(&name) + 6;
    }
    if chart.series.len() > MOST {
        let (x, y) = place(before, MOST);
        let more = format!("+{} more not drawn", chart.series.len() - MOST);
        write_text(area, &more, (x + 20, y - 6), 11.0)?;
    }
    Ok(())
}

fn write_text<DB: DrawingBackend>(
    area: &Area<DB>,
    text: &str,
    at: (i32, i32),
    size: f64,
) -> Drawn<DB> {
    let style = ("sans-serif", size * 1.24).into_font().color(&TEXT);
    let style = style.pos(Pos::new(HPos::Left, VPos::Top));
    area.draw(&Text::new(units::plain(text), at, style))
}

/// The points, without those at the same place as the one before them, whatever the number of values.
fn visible<DB: DrawingBackend>(
    chart: &ChartContext<'_, DB, Cartesian2d<Scale, Scale>>,
    points: &[(f64, f64)],
) -> Vec<(f64, f64)> {
    let mut points = points.to_vec();
    points.dedup_by_key(|point| chart.backend_coord(point));
    points
}

fn shape<DB: DrawingBackend>(
    chart: &mut ChartContext<'_, DB, Cartesian2d<Scale, Scale>>,
    shape: &Shape,
    colour: RGBColor,
) -> Drawn<DB> {
    let line = colour.stroke_width(2);
    match shape {
        Shape::Line(points) => {
            for piece in points.split(|point| !point.1.is_finite()) {
                let piece = visible(chart, piece);
                chart.draw_series(LineSeries::new(piece, line))?;
            }
        }
        Shape::Steps(points) => {
            // A distribution begins at 0, and stays at its last value.
            let (mut all, mut height) = (Vec::new(), 0.0);
            for &(x, y) in points {
                all.extend([(x, height), (x, y)]);
                height = y;
            }
            all.push((chart.x_range().end, height));
            let all = visible(chart, &all);
            chart.draw_series(LineSeries::new(all, line))?;
        }
        Shape::Boxes(boxes) | Shape::Outlines(boxes) => {
            let is_filled = matches!(shape, Shape::Boxes(_));
            let inside = colour.mix(if is_filled { 0.8 } else { 0.3 }).filled();
            for &((x0, x1), (y0, y1)) in boxes {
                let corners = [(x0, y1), (x1, y0)];
                chart.draw_series([Rectangle::new(corners, inside)])?;
                if !is_filled {
                    chart.draw_series([Rectangle::new(corners, colour.stroke_width(1))])?;
                }
            }
        }
        Shape::Ranges(ranges) => {
            let bar = |&(y, [low, middle, high]): &(f64, [f64; 3])| {
                ErrorBar::new_horizontal(y, low, middle, high, line.filled(), 10)
            };
            chart.draw_series(ranges.iter().map(bar))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Unit;

    fn chart() -> Chart {
        Chart {
            title: "a <b> & \"c\"".into(),
            x: Axis {
                label: "time".into(),
                unit: Unit::Ns,
                is_log: true,
                ..Axis::default()
            },
            y: Axis {
                label: "share".into(),
                unit: Unit::Share,
                ..Axis::default()
            },
            series: vec![
                Series {
                    name: "rule\u{1b}".into(),
                    shape: Shape::Steps(vec![(0.0, 0.1), (1e3, 0.5), (1e9, 1.0)]),
                },
                Series {
                    name: "boxes".into(),
                    shape: Shape::Boxes(vec![((10.0, 100.0), (0.0, 0.2))]),
                },
                Series {
                    name: "ranges".into(),
                    shape: Shape::Ranges(vec![(0.5, [1e3, 1e4, 1e6])]),
                },
            ],
            notes: vec!["a note <".into()],
        }
    }

    fn svg(charts: &[Chart]) -> String {
        let mut out = Vec::new();
        write_svg(&charts.to_vec().into(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn svg_holds_every_series_with_names_as_text() {
        let text = svg(&[chart()]);
        assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"));
        assert!(text.contains("a &lt;b&gt; &amp; &quot;c&quot;") && !text.contains('\u{1b}'));
        assert!(
            text.contains("<polyline") && text.contains("boxes") && text.contains("a note &lt;")
        );
        for RGBColor(r, g, b) in &COLOURS[..3] {
            let colour = format!("#{r:02X}{g:02X}{b:02X}");
            // The colour is used by the sign in the legend and by the values.
            assert!(text.matches(&colour).count() > 1, "{colour}: {text}");
        }
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn nothing_to_draw_is_an_empty_plot() {
        for charts in [&[][..], &[Chart::default()]] {
            let mut out = Vec::new();
            write_dot(&charts.to_vec().into(), &mut out).unwrap();
            let text = svg(charts) + &String::from_utf8(out).unwrap();
            assert!(!text.contains("NaN"), "{text}");
        }
    }

    #[test]
    fn plots_that_are_too_many_are_counted() {
        let mut many = vec![chart(); 27];
        many[0].series = vec![chart().series[0].clone(); 20];
        let text = svg(&many);
        assert!(text.contains("+3 more not drawn") && text.contains("+8 more not drawn"));
    }
}
