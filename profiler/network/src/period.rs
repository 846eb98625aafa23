//! Repetition of a program, and its period: the default super-phase.
//!
//! Any red spectrum has a highest peak, so a search for the highest peak finds a period in noise every
//! time. The first test is therefore whether any peak stands out of the background of an aperiodic
//! program with the same burstiness. Only then the period is chosen.
//!
//! This finds the period with the strongest harmonics only. A slower swing of the rate ([`swings`]) is
//! searched in the rate over whole repetitions, where the faster one has vanished.

use super::rir;
use super::spectrum::{self, Spectrum};
use super::{stationary, steps};

mod background;
mod swings;

pub use background::{Background, fit};
pub use swings::{Swing, swings};

/// Widest bin of event counts, ns, unless a long interval has too many.
const WIDEST_BIN_NS: i64 = 2_000_000;
/// Number of bins into which a short interval is cut.
const BINS: i64 = 4096;
/// Narrowest bin, ns. Narrower ones would resolve single packets and show nothing more.
const NARROWEST_BIN_NS: i64 = 1_000;
/// Largest probability of a peak of that height without a period.
pub(super) const SIGNIFICANT: f64 = 0.01;
/// Number of harmonics that are multiplied.
const HARMONICS: usize = 4;

/// Result of the search.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// A period, confirmed by the autocorrelation or not.
    Periodic {
        /// Frequency, Hz.
        hz: f64,
        /// The autocorrelation if it has a maximum at the period; otherwise `None`.
        autocorrelation: Option<f64>,
        /// Other frequencies that explain the spectrum nearly as well, Hz.
        alternatives: Vec<f64>,
        /// Number of repetitions in the interval.
        count: f64,
    },
    /// No peak stands out of the background.
    NoPeriod,
    /// The interval holds fewer than three periods, or too few events.
    Unknown(String),
}

/// A period and its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// The answer.
    pub verdict: Verdict,
    /// Probability of the highest peak if there were no period.
    pub p_value: f64,
    /// Interval after cutting stray ends, ns.
    pub span_ns: (i64, i64),
    /// Width of the bins, ns.
    pub bin_ns: i64,
    /// Least difference between two frequencies that can be distinguished, Hz.
    pub resolution_hz: f64,
    /// Raw periodogram of all events and the fitted background at its bins.
    pub periodogram: Spectrum,
    /// The background.
    pub background: Background,
}

/// Searches the period of event times within `span_ns`, given as one list per pair.
pub fn estimate(pairs: &[Vec<i64>], span_ns: (i64, i64)) -> Estimate {
    let (span_ns, bin_ns) = active(pairs, span_ns);
    let seconds = (span_ns.1 - span_ns.0).max(0) as f64 / 1e9;
    let sample_hz = 1e9 / bin_ns as f64;
    let all = rir::binned(pairs.iter().flatten().copied(), span_ns, bin_ns);
    let events: f64 = all.iter().sum();
    let periodogram = spectrum::raw(&all, sample_hz);
    let (background, p_value) = background::test(&periodogram, all.len());
    let mut estimate = Estimate {
        verdict: Verdict::NoPeriod,
        p_value,
        span_ns,
        bin_ns,
        resolution_hz: if seconds > 0.0 { 1.0 / seconds } else { 0.0 },
        periodogram,
        background,
    };
    if all.len() < 32 || events < 12.0 {
        let reason =
            format!("{events} iterations in {seconds:.3} s are too few to look for a period");
        estimate.verdict = Verdict::Unknown(reason);
        return estimate;
    }
    if p_value >= SIGNIFICANT {
        return estimate;
    }
    let spectrum = summed(pairs, span_ns, bin_ns, all.len());
    let Some((hz, mut alternatives)) = harmonic_product(&spectrum, seconds, sample_hz) else {
        return estimate;
    };
    let count = seconds * hz;
    if count < 3.0 {
        let reason = format!(
            "the interval of {seconds:.3} s holds {count:.1} repetitions of the likeliest period; three are needed"
        );
        estimate.verdict = Verdict::Unknown(reason);
        return estimate;
    }
    let autocorrelation = autocorrelation(&all, bin_ns as f64 / 1e9, hz);
    alternatives.retain(|other| (other - hz).abs() >= estimate.resolution_hz);
    estimate.verdict = Verdict::Periodic {
        hz,
        autocorrelation,
        alternatives,
        count,
    };
    estimate
}

/// The interval without stray ends, and its bin. Cutting and binning alternate, because a short burst
/// in a long silence needs both.
fn active(pairs: &[Vec<i64>], span_ns: (i64, i64)) -> ((i64, i64), i64) {
    let mut span = span_ns;
    let events = pairs.iter().map(Vec::len).sum();
    let mut bin = bin_for(span, events);
    for _ in 0..40 {
        let counts = rir::binned(pairs.iter().flatten().copied(), span, bin);
        let (from, to) = stationary::trimmed(&counts, 1.0);
        let next = (span.0 + from as i64 * bin, span.0 + to as i64 * bin);
        let is_still = next.1 - next.0 > (span.1 - span.0) / 100 * 97;
        if next.1 <= next.0 {
            break;
        }
        span = next;
        bin = bin_for(span, events);
        if is_still {
            break;
        }
    }
    (span, bin)
}

/// The bin for an interval. That of a long interval is wider and depends on the number of events.
fn bin_for((from, to): (i64, i64), events: usize) -> i64 {
    let bin = ((to - from).max(0) / BINS).clamp(NARROWEST_BIN_NS, WIDEST_BIN_NS);
    bin.max(steps::least_ns((from, to), events))
}

/// The sum of the pairs' spectra. Each is normalised, so that no pair decides by its number of events.
fn summed(pairs: &[Vec<i64>], span_ns: (i64, i64), bin_ns: i64, bins: usize) -> Spectrum {
    let length = (16 * bins).next_power_of_two();
    let counts = |times: &Vec<i64>| rir::binned(times.iter().copied(), span_ns, bin_ns);
    let counts = pairs.iter().map(counts);
    let counts = counts.filter(|counts| counts.iter().sum::<f64>() >= 6.0);
    spectrum::summed(counts, bins, 1e9 / bin_ns as f64, length)
}

/// The frequency with the strongest first harmonics together, and the next two frequencies.
fn harmonic_product(spectrum: &Spectrum, seconds: f64, sample_hz: f64) -> Option<(f64, Vec<f64>)> {
    let step = 0.02 / seconds;
    let first = 2.5 / seconds;
    let count = ((sample_hz / 8.0 - first) / step).max(0.0) as usize;
    let score = |k: usize| -> f64 {
        let hz = first + k as f64 * step;
        (1..=HARMONICS)
            .map(|h| (spectrum.at(h as f64 * hz) + 1e-12).ln())
            .sum()
    };
    let scores: Vec<f64> = (0..count).map(score).collect();
    let mut maxima: Vec<usize> = (1..count.saturating_sub(1))
        .filter(|&k| scores[k] > scores[k - 1] && scores[k] >= scores[k + 1])
        .collect();
    maxima.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let mut chosen: Vec<f64> = Vec::new();
    for k in maxima {
        let hz = first + k as f64 * step;
        if chosen
            .iter()
            .all(|other| (other - hz).abs() >= 2.0 / seconds)
        {
            chosen.push(hz);
        }
        if chosen.len() == 3 {
            break;
        }
    }
    let mut chosen = chosen.into_iter();
    let best = chosen.next()?;
    Some((refined(spectrum, best), chosen.collect()))
}

/// The maximum of the parabola through the logarithms of the three bins about a harmonic.
///
/// The highest harmonic that is still near its place is used. The error of the frequency is that of the
/// harmonic's peak divided by its number.
fn refined(spectrum: &Spectrum, hz: f64) -> f64 {
    let reach = 0.5 * spectrum.bin_hz * 16.0;
    let peak_near = |target: f64| -> Option<(f64, f64)> {
        let from = ((target - reach) / spectrum.bin_hz).ceil().max(1.0) as usize;
        let to = ((target + reach) / spectrum.bin_hz).floor() as usize;
        let power = &spectrum.power;
        let top = (from..=to.min(power.len().saturating_sub(2)))
            .max_by(|&a, &b| power[a].total_cmp(&power[b]))?;
        let log = |k: usize| (power[k] + 1e-300).ln();
        let (a, b, c) = (log(top - 1), log(top), log(top + 1));
        if b < a || b < c {
            return None;
        }
        let curve = a - 2.0 * b + c;
        let shift = if curve < 0.0 {
            0.5 * (a - c) / curve
        } else {
            0.0
        };
        Some(((top as f64 + shift) * spectrum.bin_hz, power[top]))
    };
    // Harmonics are weighted by their information: power times the square of the number.
    let mut sum = 0.0;
    let mut weights = 0.0;
    for h in 1..=HARMONICS {
        if let Some((at, power)) = peak_near(h as f64 * hz) {
            let weight = power * (h * h) as f64;
            sum += weight * at / h as f64;
            weights += weight;
        }
    }
    if weights > 0.0 { sum / weights } else { hz }
}

/// The unbiased autocorrelation of a series with bins of `bin_s` seconds, at its local maximum within
/// the resolution of the period; `None` if no maximum is above 0.
pub(super) fn autocorrelation(series: &[f64], bin_s: f64, hz: f64) -> Option<f64> {
    let longest = (series.len() as f64 * 0.67) as usize;
    // Counts vary between neighbouring bins, so they are averaged over an eighth of the period.
    let smooth = ((1.0 / hz / 8.0 / bin_s) as usize).max(1);
    let r = spectrum::autocorrelation(&moving_mean(series, smooth), longest);
    let tolerance = 1.0 / (series.len() as f64 * bin_s);
    let near = |lag: &usize| (1.0 / (*lag as f64 * bin_s) - hz).abs() <= tolerance;
    let is_top = |lag: &usize| r[*lag] > r[lag - 1] && r[*lag] >= r[lag + 1] && r[*lag] > 0.0;
    let tops = (2..r.len().saturating_sub(1)).filter(|lag| near(lag) && is_top(lag));
    tops.map(|lag| r[lag]).reduce(f64::max)
}

fn moving_mean(values: &[f64], width: usize) -> Vec<f64> {
    let mut sums = vec![0.0];
    sums.extend(values.iter().scan(0.0, |sum, value| {
        *sum += value;
        Some(*sum)
    }));
    let half = width / 2;
    (0..values.len())
        .map(|k| {
            let (from, to) = (k.saturating_sub(half), (k + half + 1).min(values.len()));
            (sums[to] - sums[from]) / (to - from) as f64
        })
        .collect()
}

#[cfg(test)]
mod tests;
