//! Conclusions from one run to another: predicted time, and the effect of a load.

use super::rates::{rir_rate, stationary_part};
use super::spectra::super_phase;
use crate::rir::{self, Distribution, SlowdownTable};
use crate::run::{Answer, Run, Unknown};

/// A run predicted from a base run, by one measure of its speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Iterations (or super-phases) per second of the base run. `rate`: of this run.
    pub base_rate: f64,
    /// See `base_rate`.
    pub rate: f64,
    /// Length of the base run, s.
    pub base_s: f64,
    /// Predicted length of this run, s.
    pub predicted_s: f64,
    /// Actual length of this run, s, if it has ended.
    pub actual_s: f64,
}

impl Prediction {
    fn new(run: &Run, base: &Run, rate: f64, base_rate: f64) -> Result<Prediction, Unknown> {
        let predicted = rir::predicted_s(base.seconds(), base_rate, rate);
        Ok(Prediction {
            base_rate,
            rate,
            base_s: base.seconds(),
            predicted_s: predicted
                .ok_or_else(|| Unknown::new("one of the runs has a rate of zero"))?,
            actual_s: run.seconds(),
        })
    }

    /// Error as a share of the actual length, as in tables 3.1, 3.4 and 3.6.
    pub fn error(&self) -> f64 {
        self.predicted_s / self.actual_s.max(f64::MIN_POSITIVE) - 1.0
    }

    /// Number of repetitions in each of the two runs. It is the same for the same work under any load.
    pub fn counts(&self) -> (f64, f64) {
        (self.base_rate * self.base_s, self.rate * self.actual_s)
    }
}

/// Predicted length of this run from a base run of the same program and input (3.8, table 3.4), by the
/// rate of iterations.
///
/// # Errors
/// When one of the runs has no rate.
pub fn predicted_time(run: &Run, base: &Run) -> Answer<Prediction> {
    let (now, before) = (rir_rate(run, None)?, rir_rate(base, None)?);
    let found = Prediction::new(run, base, now.value.rate, before.value.rate)?;
    Ok(run.known(found))
}

/// Predicted length by the length of the super-phase (3.10.2, table 3.6).
///
/// # Errors
/// When one of the runs has no period.
pub fn predicted_by_period(run: &Run, base: &Run) -> Answer<Prediction> {
    let hz = |run: &Run, which: &str| {
        let found = super_phase(run)?.value.seconds;
        let found = found.filter(|seconds| *seconds > 0.0);
        found
            .map(|seconds| 1.0 / seconds)
            .ok_or_else(|| Unknown::new(format!("{which} has no period")))
    };
    let found = Prediction::new(run, base, hz(run, "this run")?, hz(base, "the base run")?)?;
    Ok(run.known(found))
}

/// A row of a [`SlowdownTable`] from a program that ran without a load and with it (3.9.3): its rate
/// without load, per second and pair, and the fraction of it that was left with load.
///
/// # Errors
/// When one of the runs has no rate.
pub fn calibrated(unloaded: &Run, loaded: &Run) -> Result<(f64, f64), Unknown> {
    let rate = rir_rate(unloaded, None)?.value.rate;
    let left = rir_rate(loaded, None)?.value.rate / rate;
    Ok((rate, left.clamp(0.0, 1.0)))
}

/// Distribution of the fraction of its speed that a run would keep under the load of a table, and the
/// mean fraction (3.9.3, figure 3.14). Rates are the mean rates of a pair, so that one table serves
/// programs of different size.
///
/// # Errors
/// As [`rir_series`](super::rir_series).
pub fn slowdown_cdf(run: &Run, table: &SlowdownTable) -> Answer<(Distribution, f64)> {
    let (mut series, ..) = stationary_part(run)?;
    let counts: Vec<usize> = rir::events(run)?
        .iter()
        .map(|pair| pair.times_ns.len())
        .collect();
    // A pair that exchanges only a few messages at start-up does not represent the program.
    let most = counts.iter().copied().max().unwrap_or(0);
    let pairs = counts.iter().filter(|count| **count * 10 >= most).count();
    for rate in &mut series {
        *rate /= pairs.max(1) as f64;
    }
    let found = table.distribution(&series);
    Ok(run.known(found.ok_or_else(|| Unknown::new("the series is empty"))?))
}
