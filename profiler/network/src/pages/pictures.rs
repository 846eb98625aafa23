//! Rates of iterations as pictures.

use super::called;
use crate::calls::{self, PairSeries, RateSeries};
use crate::run::{Run, Unknown};
use flowtrace_render::plot::{Axis, Chart, Picture, Series, Shape};
use flowtrace_render::units::Unit;

/// The rate over time: of all pairs together, or a plot for each pair over the same axes, the busiest
/// first (thesis, figures 3.8 and 3.9).
///
/// # Errors
/// As [`calls::rir_series_by_pair`].
pub fn series_picture(run: &Run, by_pair: bool) -> Result<Picture, Unknown> {
    let found = calls::rir_series_by_pair(run, None)?.value;
    Ok(series(run, &found, by_pair))
}

/// The distribution of the rate of every pair over its windows (thesis, figure 3.11).
///
/// # Errors
/// As [`calls::rir_series_by_pair`].
pub fn cdf_picture(run: &Run) -> Result<Picture, Unknown> {
    let found = calls::rir_series_by_pair(run, None)?.value;
    Ok(cdf(run, &found))
}

fn series(run: &Run, found: &RateSeries, by_pair: bool) -> Picture {
    let mut drawn: Vec<(String, &[f64])> = match by_pair {
        true => busiest_first(found)
            .into_iter()
            .map(|pair| (title(run, pair), pair.rates.as_slice()))
            .collect(),
        false => vec![("all pairs together".into(), &found.all)],
    };
    if drawn.is_empty() {
        drawn.push(("no pair iterates".into(), &[]));
    }
    let rates = drawn.iter().flat_map(|(_, rates)| rates.iter().copied());
    let most = rates.fold(0.0, f64::max);
    let (t0, t1) = run.span_ns();
    let charts: Vec<Chart> = drawn
        .into_iter()
        .map(|(title, rates)| Chart {
            title,
            x: Axis {
                label: "time since the begin of the interval".into(),
                unit: Unit::Ns,
                range: Some((0.0, (t1 - t0) as f64)),
                ..Axis::default()
            },
            y: Axis {
                label: "iterations per second".into(),
                range: Some((0.0, most)),
                ..Axis::default()
            },
            series: vec![Series {
                name: String::new(),
                shape: Shape::Line(points(found, rates)),
            }],
            ..Chart::default()
        })
        .collect();
    charts.into()
}

fn cdf(run: &Run, found: &RateSeries) -> Picture {
    let steps = |pair: &PairSeries| {
        let mut rates = pair.rates.clone();
        rates.sort_by(f64::total_cmp);
        let all = rates.len() as f64;
        let shares = (1..).map(|n: u32| f64::from(n) / all);
        rates.into_iter().zip(shares).collect()
    };
    let series = busiest_first(found).into_iter().map(|pair| Series {
        name: title(run, pair),
        shape: Shape::Steps(steps(pair)),
    });
    let chart = Chart {
        title: "Iteration rate of every pair".into(),
        x: Axis {
            label: format!(
                "iterations per second, in windows of {}",
                crate::wording::seconds(found.window_s)
            ),
            ..Axis::default()
        },
        y: Axis {
            label: "share of the windows with no higher rate".into(),
            unit: Unit::Share,
            ..Axis::default()
        },
        series: series.collect(),
        ..Chart::default()
    };
    chart.into()
}

/// Points of the rates, each in the middle of its window.
fn points(found: &RateSeries, rates: &[f64]) -> Vec<(f64, f64)> {
    let middle = |k: u32| (f64::from(k) * found.step_s + found.window_s / 2.0) * 1e9;
    (0..).map(middle).zip(rates.iter().copied()).collect()
}

fn busiest_first(found: &RateSeries) -> Vec<&PairSeries> {
    let mut pairs: Vec<&PairSeries> = found.pairs.iter().collect();
    let sum = |pair: &PairSeries| pair.rates.iter().sum::<f64>();
    pairs.sort_by(|a, b| sum(b).total_cmp(&sum(a)));
    pairs
}

fn title(run: &Run, pair: &PairSeries) -> String {
    format!("{} → {}", called(run, pair.src), called(run, pair.dst))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Mode;
    use crate::testing::{data, run_of};

    #[test]
    fn the_area_below_a_pairs_curve_is_its_iterations() {
        const MS: i64 = 1_000_000;
        // A question and its answer every 10 ms between 0 and 1, every 20 ms between 0 and 2.
        let mut packets = Vec::new();
        for i in 0..1000 {
            packets.extend([
                data(i * 10 * MS, 0, 1, 100),
                data(i * 10 * MS + 2 * MS, 1, 0, 100),
            ]);
            if i % 2 == 0 {
                let at = i * 10 * MS + 4 * MS;
                packets.extend([data(at, 0, 2, 100), data(at + 2 * MS, 2, 0, 100)]);
            }
        }
        let mut run = run_of(3, &packets);
        run.settings.mode = Mode::Default;
        run.settings.rtt_threshold_ns = Some(MS);
        let found = calls::rir_series_by_pair(&run, None).unwrap().value;
        let picture = series(&run, &found, true);
        assert_eq!(picture.charts.len(), 4);
        for (chart, expected) in picture.charts.iter().zip([999.0, 999.0, 499.0, 499.0]) {
            let Shape::Line(points) = &chart.series[0].shape else {
                panic!("{chart:?}")
            };
            let sum = points.iter().map(|point| point.1).sum::<f64>() * found.step_s;
            // Events after the last whole window are left out.
            assert!(sum <= expected && sum > expected * 0.95, "{sum} {expected}");
        }
        assert_eq!(series(&run, &found, false).charts.len(), 1);
        let cdf = cdf(&run, &found);
        let Shape::Steps(points) = &cdf.charts[0].series[2].shape else {
            panic!("{cdf:?}")
        };
        assert_eq!(points.last().unwrap().1, 1.0);
        let median = points[points.len() / 2].0;
        assert!((median - 50.0).abs() < 5.0, "{median}");
    }
}
