//! The chart of bottlenecks as SVG, after Figure 5 of Battré et al.: utilisation above, bars below;
//! shaded bars are steps, solid ones channels.

use std::fmt::Write;

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

/// The chart as one SVG document.
pub fn svg(chart: &Chart, title: &str) -> String {
    let bars = &chart.bars[..chart.bars.len().min(SHOWN)];
    let height = TOP + PLOT + 30.0 + ROW * bars.len() as f64 + 50.0;
    let plot = WIDTH - LEFT - RIGHT;
    let (from, to) = chart.span;
    let length = (to - from).max(1) as f64;
    let x = |at: i64| LEFT + plot * (at - from) as f64 / length;
    let y = |share: f64| TOP + PLOT * (1.0 - share.clamp(0.0, 1.0));
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n\
         <title>{}</title>\n\
         <defs><pattern id=\"step\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f2c3a0\"/>\
         <line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" stroke=\"#c8590f\" stroke-width=\"3\"/></pattern></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"14\">{}</text>",
        escaped(title),
        escaped(&units::shorten(title, 130))
    );
    for tenth in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{2:.1}\" y=\"{3:.1}\" text-anchor=\"end\" fill=\"#555\">{4} %</text>",
            LEFT + plot,
            y(tenth),
            LEFT - 6.0,
            y(tenth) + 4.0,
            tenth * 100.0
        );
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
    let _ = writeln!(
        out,
        "<text x=\"10\" y=\"{:.1}\">{of}{cpus}</text><text x=\"10\" y=\"{:.1}\" fill=\"#555\">{mean}</text>",
        TOP + PLOT / 2.0,
        TOP + PLOT / 2.0 + 16.0
    );
    if !chart.utilisation.is_empty() {
        let mut points = String::new();
        for level in &chart.utilisation {
            let _ = write!(
                points,
                "{:.1},{2:.1} {:.1},{2:.1} ",
                x(level.from),
                x(level.to),
                y(level.share)
            );
        }
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"#2a6fb0\" stroke-width=\"1.5\" points=\"{}\"/>",
            points.trim_end()
        );
    }
    let first = TOP + PLOT + 16.0;
    for (i, bar) in bars.iter().enumerate() {
        let top = first + ROW * i as f64;
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <text x=\"{:.1}\" y=\"{1:.1}\">{}</text>",
            LEFT - 6.0,
            top + 14.0,
            escaped(&units::shorten(&units::plain(&bar.name), 32)),
            LEFT + plot + 6.0,
            percent(bar.share)
        );
        let fill = if bar.is_channel {
            "#7a1f3d"
        } else {
            "url(#step)"
        };
        for &(begin, end) in &bar.intervals {
            let _ = writeln!(
                out,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"16\" fill=\"{fill}\">\
                 <title>{}: {} – {}, {}</title></rect>",
                x(begin),
                top + 2.0,
                (x(end) - x(begin)).max(0.5),
                escaped(&units::plain(&bar.name)),
                units::moment(begin, chart.begins_ns),
                units::moment(end, chart.begins_ns),
                bar.resource.name()
            );
        }
    }
    let axis = first + ROW * bars.len() as f64 + 8.0;
    let _ = writeln!(
        out,
        "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{axis:.1}\" y2=\"{axis:.1}\" stroke=\"#555\"/>",
        LEFT + plot
    );
    for quarter in 0..=4 {
        let at = from + (length * f64::from(quarter) / 4.0) as i64;
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{}</text>",
            x(at),
            axis + 16.0,
            units::moment(at, chart.begins_ns)
        );
    }
    let more = chart.bars.len() - bars.len();
    let more = if more > 0 {
        format!(" · +{more} more")
    } else {
        String::new()
    };
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#555\">shaded: a step is the bottleneck · solid: a \
         channel is{more}</text>\n</svg>",
        axis + 34.0
    );
    out
}

fn escaped(text: &str) -> String {
    units::plain(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
