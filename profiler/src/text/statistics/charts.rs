//! Plots of statistics.

use super::Of;
use crate::analysis::statistics::calls::CallStatistics;
use crate::analysis::statistics::distribution::Distribution;
use crate::export::plot::{Axis, Chart, Series, Style};
use crate::export::sheet::Unit;

/// Cumulative distributions (ParaTrac, figures 6 to 10 and 12).
pub fn cdf_chart(found: &[(String, Distribution)], of: Of) -> Chart {
    let (unit, label) = of.axis();
    Chart {
        title: format!("Cumulative distribution: {label}"),
        x: axis(label, unit, true),
        y: axis("share", Unit::Share, false),
        series: found
            .iter()
            .map(|(name, values)| Series {
                name: name.clone(),
                points: values
                    .steps()
                    .into_iter()
                    .map(|(v, s)| (v as f64, s))
                    .collect(),
                style: Style::Steps,
            })
            .collect(),
    }
}

/// Counts by doubling.
pub fn histogram_chart(found: &[(String, Distribution)], of: Of) -> Chart {
    let (unit, label) = of.axis();
    Chart {
        title: format!("Histogram: {label}"),
        x: axis(label, unit, true),
        y: axis("count", Unit::Count, false),
        series: found
            .iter()
            .map(|(name, values)| {
                let mut points: Vec<(f64, f64)> = values
                    .by_doubling()
                    .into_iter()
                    .flat_map(|(from, to, n)| [(from as f64, n as f64), (to as f64, 0.0)])
                    .collect();
                // The end of a bar is the begin of the next where that follows at once.
                points.dedup_by(|next, kept| {
                    let is_same = next.0 == kept.0;
                    kept.1 = if is_same { kept.1.max(next.1) } else { kept.1 };
                    is_same
                });
                Series {
                    name: name.clone(),
                    points,
                    style: if found.len() == 1 {
                        Style::Bars
                    } else {
                        Style::Line
                    },
                }
            })
            .collect(),
    }
}

/// Spread of latency by operation (figure 5): quartiles and extremes from left to right.
pub fn latency_chart(calls: &CallStatistics) -> Chart {
    let found: Vec<(String, Distribution)> = calls
        .ops
        .iter()
        .map(|op| (op.op.name().to_owned(), op.latency.clone()))
        .collect();
    let mut chart = cdf_chart(&found, Of::Latency);
    chart
        .series
        .sort_by_key(|s| std::cmp::Reverse(s.points.len()));
    chart
}

/// Rates over time.
pub fn throughput_chart(calls: &CallStatistics) -> Chart {
    let series = |name: &str, of: fn(&crate::analysis::statistics::calls::Bin) -> i64| Series {
        name: name.into(),
        points: (0..)
            .zip(&calls.bins)
            .map(|(i, bin)| {
                let middle = (f64::from(i) + 0.5) * calls.bin_ns as f64;
                (middle, of(bin) as f64 * 1e9 / calls.bin_ns as f64)
            })
            .collect(),
        style: Style::Line,
    };
    Chart {
        title: "Throughput of files".into(),
        x: axis("time since the start of the command", Unit::Ns, false),
        y: axis("rate", Unit::Rate, false),
        series: vec![
            series("read", |bin| bin.read_bytes),
            series("written", |bin| bin.write_bytes),
        ],
    }
}

fn axis(label: &str, unit: Unit, is_log: bool) -> Axis {
    Axis {
        label: label.into(),
        unit,
        is_log,
    }
}
