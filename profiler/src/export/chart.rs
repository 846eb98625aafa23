//! The chart of bottlenecks, after Figure 5 of Battré et al.: utilisation above, bars below. Shaded
//! bars are steps, solid ones channels.

use flowtrace_render::plot::{Axis, Chart as Plot, Picture, Series, Shape};
use flowtrace_render::units;
use flowtrace_render::units::Unit;

use crate::analysis::bottlenecks::chart::Chart;
use crate::analysis::phrases::percent;

/// Number of bars that are drawn; others are counted.
const SHOWN: usize = 20;

/// The chart as a picture with the heading `title`.
pub fn picture(chart: &Chart, title: &str) -> Picture {
    let bars = &chart.bars[..chart.bars.len().min(SHOWN)];
    let time = |at: i64| (at - chart.begins_ns) as f64;
    let (from, to) = (time(chart.span.0), time(chart.span.1));
    let x = |label: &str| Axis {
        label: label.into(),
        unit: Unit::Ns,
        range: Some((from.min(to - 1.0), to)),
        ..Axis::default()
    };
    let of = match chart.is_of_machine {
        true => "CPU of the machine",
        false => "CPU of the run",
    };
    let cpus = chart.cpus.map_or(String::new(), |n| format!(", {n} CPUs"));
    let mean = chart
        .mean()
        .map_or("not recorded".into(), |m| format!("mean {}", percent(m)));
    let levels = chart.utilisation.iter().flat_map(|level| {
        let share = level.share.clamp(0.0, 1.0);
        [(time(level.from), share), (time(level.to), share)]
    });
    let above = Plot {
        title: title.into(),
        x: x(""),
        y: Axis {
            label: format!("{of}{cpus}, {mean}"),
            unit: Unit::Share,
            range: Some((0.0, 1.0)),
            ..Axis::default()
        },
        series: vec![Series {
            name: String::new(),
            shape: Shape::Line(levels.collect()),
        }],
        ..Plot::default()
    };
    let drawn = |is_channel: bool| {
        let rows = (0..)
            .zip(bars)
            .filter(|(_, bar)| bar.is_channel == is_channel);
        rows.flat_map(|(row, bar)| {
            let middle = f64::from(row);
            let height = (middle - 0.35, middle + 0.35);
            let intervals = bar.intervals.iter();
            intervals.map(move |&(begin, end)| ((time(begin), time(end)), height))
        })
        .collect()
    };
    let more = chart.bars.len() - bars.len();
    let below = Plot {
        title: "what limited the run, and when".into(),
        x: x("time since the start of the command"),
        y: Axis {
            names: bars
                .iter()
                .map(|bar| {
                    let name = units::shorten(&units::plain(&bar.name), 32);
                    format!("{name} {}", percent(bar.share))
                })
                .collect(),
            ..Axis::default()
        },
        series: vec![
            Series {
                name: "a step (shaded)".into(),
                shape: Shape::Outlines(drawn(false)),
            },
            Series {
                name: "a channel (solid)".into(),
                shape: Shape::Boxes(drawn(true)),
            },
        ],
        notes: (more > 0)
            .then(|| format!("+{more} more"))
            .into_iter()
            .collect(),
    };
    match bars.is_empty() {
        true => above.into(),
        false => vec![above, below].into(),
    }
}
