//! Plots of statistics.

use flowtrace_render::plot::{Axis, Chart, Rect, Series, Shape};
use flowtrace_render::units;
use flowtrace_render::units::Unit;

use super::Of;
use crate::analysis::statistics::calls::{Bin, CallStatistics};
use crate::distribution::Distribution;

/// Cumulative distributions (ParaTrac, figures 6 to 10 and 12).
pub fn cdf_chart(found: &[(String, Distribution)], of: Of) -> Chart {
    let (unit, label) = of.axis();
    let steps = |values: &Distribution| {
        let steps = values.steps().into_iter();
        steps.map(|(value, share)| (value as f64, share)).collect()
    };
    Chart {
        title: format!("Cumulative distribution: {label}"),
        x: axis(label, unit, true),
        y: axis("share that is no larger", Unit::Share, false),
        series: found
            .iter()
            .map(|(name, values)| Series {
                name: name.clone(),
                shape: Shape::Steps(steps(values)),
            })
            .collect(),
        ..Chart::default()
    }
}

/// Counts by doubling as bars: a plot for each distribution, below each other over the same axis.
pub fn histogram_charts(found: &[(String, Distribution)], of: Of) -> Vec<Chart> {
    let (unit, label) = of.axis();
    let bars = |values: &Distribution| -> Vec<Rect> {
        let bars = values.by_doubling().into_iter();
        // The value 0 has no place on the axis; it is drawn below 1, at half.
        bars.map(|(from, to, n)| (((from as f64).max(0.5), to as f64), (0.0, n as f64)))
            .collect()
    };
    let all = found.iter().flat_map(|(_, values)| bars(values));
    let range = all.fold((f64::INFINITY, 0.0_f64), |(from, to), (x, _)| {
        (from.min(x.0), to.max(x.1))
    });
    let chart = |(name, values): &(String, Distribution)| Chart {
        title: format!("Histogram of {label}"),
        x: Axis {
            range: Some(range),
            ..axis(label, unit, true)
        },
        y: axis("count", Unit::Count, false),
        series: vec![Series {
            name: format!(
                "{name}, {}",
                units::counted(values.count, "value", "values")
            ),
            shape: Shape::Boxes(bars(values)),
        }],
        ..Chart::default()
    };
    found.iter().map(chart).collect()
}

/// Mean and deviation of the time of calls by operation (ParaTrac, figure 5).
pub fn latency_chart(found: &[(String, Distribution)]) -> Chart {
    let mut ops: Vec<&(String, Distribution)> = found.iter().collect();
    ops.sort_by(|a, b| b.1.mean().total_cmp(&a.1.mean()));
    // A call takes no less than the least: the deviation of a skewed distribution may reach below it.
    let range = |values: &Distribution| {
        let (mean, deviation) = (values.mean(), values.deviation());
        [
            (mean - deviation).max(values.min as f64).max(1.0),
            mean.max(1.0),
            mean + deviation,
        ]
    };
    Chart {
        title: "Time of file calls by operation".into(),
        x: axis("mean ± standard deviation", Unit::Ns, true),
        y: Axis {
            names: ops.iter().map(|(op, _)| op.clone()).collect(),
            ..axis("operation", Unit::Text, false)
        },
        series: vec![Series {
            name: String::new(),
            shape: Shape::Ranges(
                (0..)
                    .zip(&ops)
                    .map(|(at, (_, values))| (f64::from(at), range(values)))
                    .collect(),
            ),
        }],
        ..Chart::default()
    }
}

/// Rates over time.
pub fn throughput_chart(calls: &CallStatistics) -> Chart {
    let series = |name: &str, of: fn(&Bin) -> i64| Series {
        name: name.into(),
        shape: Shape::Line(
            (0..)
                .zip(&calls.bins)
                .map(|(i, bin)| {
                    let middle = (f64::from(i) + 0.5) * calls.bin_ns as f64;
                    (middle, of(bin) as f64 * 1e9 / calls.bin_ns as f64)
                })
                .collect(),
        ),
    };
    Chart {
        title: "Throughput of files".into(),
        x: axis("time since the start of the command", Unit::Ns, false),
        y: axis("rate", Unit::Rate, false),
        series: vec![
            series("read", |bin| bin.read_bytes),
            series("written", |bin| bin.write_bytes),
        ],
        ..Chart::default()
    }
}

fn axis(label: &str, unit: Unit, is_log: bool) -> Axis {
    Axis {
        label: label.into(),
        unit,
        is_log,
        ..Axis::default()
    }
}
