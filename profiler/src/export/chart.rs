//! The chart of bottlenecks as SVG, after Figure 5 of Battré et al.: utilisation above, bars below;
//! shaded bars are steps, solid ones channels.

use std::io::{self, Write};

use super::markup::Markup;
use crate::analysis::bottlenecks::chart::Chart;
use crate::text::bottlenecks::percent;
use crate::text::units;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 230.0;
const RIGHT: f64 = 60.0;
const TOP: f64 = 40.0;
const PLOT: f64 = 160.0;
const ROW: f64 = 24.0;
/// Bars drawn; more are counted.
const SHOWN: usize = 20;

/// Writes the chart as one SVG document.
///
/// # Errors
/// When `out` fails.
pub fn write(chart: &Chart, title: &str, out: impl Write) -> io::Result<()> {
    let bars = &chart.bars[..chart.bars.len().min(SHOWN)];
    let height = TOP + PLOT + 30.0 + ROW * bars.len() as f64 + 50.0;
    let plot = WIDTH - LEFT - RIGHT;
    let (from, to) = chart.span;
    let length = (to - from).max(1) as f64;
    let x = |at: i64| LEFT + plot * (at - from) as f64 / length;
    let y = |share: f64| TOP + PLOT * (1.0 - share.clamp(0.0, 1.0));
    let title = units::plain(title);
    let mut svg = Markup::new(out);
    svg.open(
        "svg",
        &[
            ("xmlns", &"http://www.w3.org/2000/svg"),
            ("viewBox", &format_args!("0 0 {WIDTH} {height}")),
            ("font-family", &"sans-serif"),
            ("font-size", &12),
            ("role", &"img"),
        ],
    )?;
    svg.leaf("title", &[], &title)?;
    svg.raw(PATTERN)?;
    svg.empty(
        "rect",
        &[("width", &"100%"), ("height", &"100%"), ("fill", &"#fff")],
    )?;
    svg.leaf(
        "text",
        &[("x", &10), ("y", &20), ("font-size", &14)],
        units::shorten(&title, 130),
    )?;
    for tenth in [0.0, 0.25, 0.5, 0.75, 1.0] {
        line(&mut svg, y(tenth), "#ddd")?;
        let at = (LEFT - 6.0, y(tenth) + 4.0);
        label(&mut svg, at, ("end", GREY), format!("{} %", tenth * 100.0))?;
    }
    let of = if chart.is_of_machine {
        "CPU of the machine"
    } else {
        "CPU of the run"
    };
    let cpus = chart.cpus.map_or(String::new(), |n| format!(", {n} cores"));
    let mean = chart
        .mean()
        .map_or("not recorded".into(), |m| format!("mean {}", percent(m)));
    let middle = TOP + PLOT / 2.0;
    label(
        &mut svg,
        (10.0, middle),
        ("start", BLACK),
        format!("{of}{cpus}"),
    )?;
    label(&mut svg, (10.0, middle + 16.0), ("start", GREY), mean)?;
    let levels = chart.utilisation.iter().map(|level| {
        let height = y(level.share);
        format!(
            "{:.1},{height:.1} {:.1},{height:.1}",
            x(level.from),
            x(level.to)
        )
    });
    let points: Vec<String> = levels.collect();
    if !points.is_empty() {
        svg.empty(
            "polyline",
            &[
                ("fill", &"none"),
                ("stroke", &"#2a6fb0"),
                ("stroke-width", &1.5),
                ("points", &points.join(" ")),
            ],
        )?;
    }
    let first = TOP + PLOT + 16.0;
    for (i, bar) in bars.iter().enumerate() {
        let top = first + ROW * i as f64;
        let name = units::plain(&bar.name);
        let at = (LEFT - 6.0, top + 14.0);
        label(&mut svg, at, ("end", BLACK), units::shorten(&name, 32))?;
        let at = (LEFT + plot + 6.0, top + 14.0);
        label(&mut svg, at, ("start", BLACK), percent(bar.share))?;
        let fill = if bar.is_channel {
            "#7a1f3d"
        } else {
            "url(#step)"
        };
        for &(begin, end) in &bar.intervals {
            svg.open(
                "rect",
                &[
                    ("x", &tenths(x(begin))),
                    ("y", &tenths(top + 2.0)),
                    ("width", &tenths((x(end) - x(begin)).max(0.5))),
                    ("height", &16),
                    ("fill", &fill),
                ],
            )?;
            let moment = |at| units::moment(at, chart.begins_ns);
            svg.leaf(
                "title",
                &[],
                format_args!(
                    "{name}: {} – {}, {}",
                    moment(begin),
                    moment(end),
                    bar.resource.name()
                ),
            )?;
            svg.close()?;
        }
    }
    let axis = first + ROW * bars.len() as f64 + 8.0;
    line(&mut svg, axis, GREY)?;
    for quarter in 0..=4 {
        let at = from + (length * f64::from(quarter) / 4.0) as i64;
        let moment = units::moment(at, chart.begins_ns);
        label(&mut svg, (x(at), axis + 16.0), ("middle", GREY), moment)?;
    }
    let more = chart.bars.len() - bars.len();
    let more = if more > 0 {
        format!(" · +{more} more")
    } else {
        String::new()
    };
    let legend = format!("shaded: a step is the bottleneck · solid: a channel is{more}");
    label(&mut svg, (LEFT, axis + 34.0), ("start", GREY), legend)?;
    svg.close()
}

const BLACK: &str = "#000";
const GREY: &str = "#555";
/// The shade of steps.
const PATTERN: &str = "<defs><pattern id=\"step\" width=\"6\" height=\"6\" \
     patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
     <rect width=\"6\" height=\"6\" fill=\"#f2c3a0\"/>\
     <line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" stroke=\"#c8590f\" stroke-width=\"3\"/></pattern></defs>\n";

/// A text at its base line; how it is anchored, and its colour.
fn label(
    svg: &mut Markup<impl Write>,
    (x, y): (f64, f64),
    (anchor, fill): (&str, &str),
    text: impl std::fmt::Display,
) -> io::Result<()> {
    let attributes: &[(&'static str, &dyn std::fmt::Display)] = &[
        ("x", &tenths(x)),
        ("y", &tenths(y)),
        ("text-anchor", &anchor),
        ("fill", &fill),
    ];
    svg.leaf("text", attributes, text)
}

/// A line over the width of the plot.
fn line(svg: &mut Markup<impl Write>, y: f64, stroke: &str) -> io::Result<()> {
    svg.empty(
        "line",
        &[
            ("x1", &LEFT),
            ("x2", &(WIDTH - RIGHT)),
            ("y1", &tenths(y)),
            ("y2", &tenths(y)),
            ("stroke", &stroke),
        ],
    )
}

/// A coordinate; a tenth is finer than any screen.
fn tenths(value: f64) -> String {
    format!("{value:.1}")
}
