//! Series of the iteration rate, and conclusions from one run to another.

use super::{name, page};
use crate::calls::{self, Prediction};
use crate::page::{Cell, Page};
use crate::rir::SlowdownTable;
use crate::run::{Mode, Run};
use crate::wording;
use crate::{Answer, Known};
use flowtrace_render::units;

/// `network series`: the rate over time, of the whole program or of each pair.
pub fn series(run: &Run, by_pair: bool) -> Page {
    page(run, calls::rir_series_by_pair(run, None), |known| {
        let mut page = Page::new(run, &["t_ns", "src", "dst", "rate_per_s"]);
        let found = &known.value;
        let least = found.all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = found.all.iter().copied().fold(0.0, f64::max);
        page.lines.push(format!(
            "{} to {} iterations per second, all pairs together, in {} of {}, one every {}",
            wording::number(least),
            wording::number(most),
            units::counted(found.all.len() as i64, "window", "windows"),
            wording::seconds(found.window_s),
            wording::seconds(found.step_s)
        ));
        let t_ns = |k: usize| found.t0_ns + (k as f64 * found.step_s * 1e9) as i64;
        let mut push = |src: Cell, dst: Cell, rates: &[f64]| {
            for (k, rate) in rates.iter().enumerate() {
                page.rows.push(vec![
                    Cell::Instant(t_ns(k)),
                    src.clone(),
                    dst.clone(),
                    Cell::PerSecond(*rate),
                ]);
            }
        };
        if by_pair {
            for pair in &found.pairs {
                push(name(run, pair.src), name(run, pair.dst), &pair.rates);
            }
        } else {
            push(
                Cell::Text("all".into()),
                Cell::Text("all".into()),
                &found.all,
            );
        }
        page
    })
}

/// `network predict`: the predicted length of this run, from a base run of the same program.
pub fn predict(run: &Run, base: &Run) -> Page {
    let methods: [(&str, Answer<Prediction>); 2] = [
        ("iterations", calls::predicted_time(run, base)),
        ("super-phases", calls::predicted_by_period(run, base)),
    ];
    let columns = [
        "method",
        "base_rate_per_s",
        "rate_per_s",
        "base_run_s",
        "predicted_s",
        "actual_s",
        "error",
        "slowdown",
    ];
    let mut page = Page::new(run, &columns);
    let mut reasons = Vec::new();
    for (method, answer) in &methods {
        match answer {
            Ok(Known { value, .. }) => {
                page.lines.push(format!(
                    "by its {method} this run takes {}: {} of them per second, {} in the base run of {}",
                    wording::seconds(value.predicted_s),
                    wording::number(value.rate),
                    wording::number(value.base_rate),
                    wording::seconds(value.base_s)
                ));
                page.rows.push(vec![
                    Cell::Text((*method).into()),
                    Cell::PerSecond(value.base_rate),
                    Cell::PerSecond(value.rate),
                    Cell::Seconds(value.base_s),
                    Cell::Seconds(value.predicted_s),
                    Cell::Seconds(value.actual_s),
                    Cell::Share(value.error()),
                    Cell::Number(value.predicted_s / value.base_s.max(f64::MIN_POSITIVE)),
                ]);
            }
            Err(unknown) => reasons.push(format!("by its {method}: {unknown}")),
        }
    }
    let Some((_, Ok(Known { value, .. }))) = methods.iter().find(|method| method.1.is_ok()) else {
        return Page::unknown(run, &crate::Unknown::new(reasons.join("; ")));
    };
    page.notes.extend(reasons);
    let (before, now) = value.counts();
    page.lines.push(format!(
        "it took {}: the prediction is off by {}",
        wording::seconds(value.actual_s),
        Cell::Share(value.error()).shown()
    ));
    if (now / before - 1.0).abs() > 0.1 {
        page.notes.push(format!(
            "the base run has {} of them and this one {}: the prediction is for as much work as in the base run",
            wording::number(before),
            wording::number(now)
        ));
    }
    page.notes.push(
        "the same program with the same input is assumed; error is of the actual time".into(),
    );
    page
}

/// `network slowdown-cdf`: the fraction of its speed that this run would keep under a load, by a table
/// of rates and fractions.
pub fn slowdown_cdf(run: &Run, table: &SlowdownTable) -> Page {
    page(run, calls::slowdown_cdf(run, table), |known| {
        let mut page = Page::new(run, &["percent", "fraction_of_speed"]);
        let (found, mean) = &known.value;
        page.lines.push(format!(
            "the load of the table would leave this run {} of its speed on average, {} in the median",
            Cell::Share(*mean).shown(),
            Cell::Share(found.median).shown()
        ));
        for (i, value) in found.percentiles.iter().enumerate() {
            page.rows
                .push(vec![Cell::Count(i as u64 + 1), Cell::Share(*value)]);
        }
        page.notes.push("fractions are those of the table at the rates of this run, linear between its rows and constant outside; rates are those of a pair".into());
        if run.settings.mode == Mode::Thesis {
            page.notes
                .push("the distribution of the fractions, as the thesis' figures show it".into());
        }
        page
    })
}
