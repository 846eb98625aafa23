//! Slow swings of a rate: super-phases that differ in nothing but the rate of the iterations.

use super::{background, harmonic_product, spectrum};

/// Most bins of an interval.
const BINS: f64 = 1024.0;
/// Least bins for a test.
const LEAST_BINS: usize = 24;
/// Largest probability of such a swing without a period, for both widths of bins.
const SIGNIFICANT: f64 = 0.005;
/// Least autocorrelation at the period.
const LEAST_CORRELATION: f64 = 0.2;
/// Factor of a second width of bins. A period that moves with the width was made by the bins.
const WIDER: f64 = 1.37;
/// Number of harmonics in which a period may show.
const HARMONICS: usize = 4;
/// Least number of repetitions.
const LEAST_COUNT: f64 = 3.0;

/// A period of the rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Swing {
    /// Frequency, Hz.
    pub hz: f64,
    /// Probability that harmonics are this high without a period.
    pub p_value: f64,
    /// Least difference between two frequencies that can be distinguished, Hz.
    pub resolution_hz: f64,
    /// Number of repetitions in the interval.
    pub count: f64,
    /// Autocorrelation of the rate at a lag of one period, 0 to 1.
    pub autocorrelation: f64,
}

/// The periods of the rate of these events (sorted, ns) that are several times `base_s`, the longest
/// known period, s. They are sorted from the shortest to the longest. Each is found in the rate over
/// whole repetitions of the one before.
pub fn swings(times_ns: &[i64], base_s: f64) -> Vec<Swing> {
    let mut found: Vec<Swing> = Vec::new();
    let mut base_s = base_s;
    while let Some(swing) = swing(times_ns, base_s) {
        base_s = 1.0 / swing.hz;
        found.push(swing);
    }
    found
}

fn swing(times_ns: &[i64], base_s: f64) -> Option<Swing> {
    let (&first, &last) = (times_ns.first()?, times_ns.last()?);
    let seconds = (last - first) as f64 / 1e9;
    let bin_s = f64::max(base_s, seconds / BINS);
    let rate = Rate::new(times_ns, seconds, bin_s)?;
    let padded = spectrum::padded(
        &rate.series,
        1.0 / bin_s,
        (16 * rate.series.len()).next_power_of_two(),
    );
    let (hz, _) = harmonic_product(&padded, seconds, 1.0 / bin_s)?;
    let count = seconds * hz;
    let p_value = rate.p_value(hz, seconds);
    if count < LEAST_COUNT || p_value >= SIGNIFICANT {
        return None;
    }
    let wider = Rate::new(times_ns, seconds, WIDER * bin_s)?;
    if wider.p_value(hz, seconds) >= SIGNIFICANT || !rate.is_lowest(hz, seconds) {
        return None;
    }
    let autocorrelation = super::autocorrelation(&rate.series, bin_s, hz)?;
    (autocorrelation >= LEAST_CORRELATION).then_some(Swing {
        hz,
        p_value,
        resolution_hz: 1.0 / seconds,
        count,
        autocorrelation,
    })
}

/// A rate over bins without its trend, and its periodogram divided by the background of an aperiodic
/// rate.
struct Rate {
    series: Vec<f64>,
    ratios: Vec<f64>,
}

impl Rate {
    fn new(times_ns: &[i64], seconds: f64, bin_s: f64) -> Option<Rate> {
        let bins = (seconds / bin_s) as usize;
        if bins < LEAST_BINS {
            return None;
        }
        let series = without_trend(&passed(times_ns, bin_s, bins));
        let power = spectrum::raw(&series, 1.0 / bin_s).power;
        let last = if bins.is_multiple_of(2) {
            power.len() - 1
        } else {
            power.len()
        };
        let inner = &power[1..last];
        let fitted = background::fit(inner, bins);
        let ratio = |(k, i): (usize, &f64)| {
            let s = fitted.at((k + 1) as f64 / bins as f64);
            if s > 0.0 { i / s } else { 0.0 }
        };
        let ratios = inner.iter().enumerate().map(ratio).collect();
        Some(Rate { series, ratios })
    }

    /// Probability that the highest harmonic of this frequency is this high without a period, among all
    /// ordinates.
    fn p_value(&self, hz: f64, seconds: f64) -> f64 {
        let of = (1..=HARMONICS).map(|h| self.p_value_at(h as f64 * hz, seconds));
        of.fold(1.0, f64::min)
    }

    fn p_value_at(&self, hz: f64, seconds: f64) -> f64 {
        let k = (hz * seconds).round() as usize;
        let at = k.saturating_sub(1).max(2)..=k + 1;
        let highest = at
            .filter_map(|k| self.ratios.get(k - 1))
            .copied()
            .fold(0.0, f64::max);
        let single = (-highest).exp();
        -((self.ratios.len() as f64) * (-single).ln_1p()).exp_m1()
    }

    /// True if the harmonics that stand out have no divisor in common. Else they are those of a higher frequency,
    /// of which this one is only a part.
    fn is_lowest(&self, hz: f64, seconds: f64) -> bool {
        let stands_out = |h: &usize| self.p_value_at(*h as f64 * hz, seconds) < SIGNIFICANT;
        let harmonics: Vec<usize> = (1..=HARMONICS).filter(stands_out).collect();
        (2..=HARMONICS).all(|d| harmonics.iter().any(|h| h % d != 0))
    }
}

/// Number of events in each bin with fractions, as if each event approached evenly from the one before.
/// A steady rate is then the same in every bin, while whole counts would beat with the bins.
fn passed(times_ns: &[i64], bin_s: f64, bins: usize) -> Vec<f64> {
    let first = times_ns[0];
    let mut at = 0;
    let mut before = |edge: i64| {
        while at + 1 < times_ns.len() && times_ns[at + 1] <= edge {
            at += 1;
        }
        let Some(next) = times_ns.get(at + 1) else {
            return at as f64;
        };
        let gap = (next - times_ns[at]).max(1) as f64;
        at as f64 + ((edge - times_ns[at]) as f64 / gap).clamp(0.0, 1.0)
    };
    let edges = (0..=bins).map(|k| before(first + (k as f64 * bin_s * 1e9) as i64));
    let edges: Vec<f64> = edges.collect();
    edges.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// The series without the straight line that fits best, since a drift is no period.
fn without_trend(series: &[f64]) -> Vec<f64> {
    let n = series.len() as f64;
    let mean = series.iter().sum::<f64>() / n;
    let middle = (n - 1.0) / 2.0;
    let (mut xy, mut xx) = (0.0, 0.0);
    for (k, value) in series.iter().enumerate() {
        let x = k as f64 - middle;
        xy += x * (value - mean);
        xx += x * x;
    }
    let slope = xy / xx.max(f64::MIN_POSITIVE);
    let line = |(k, value): (usize, &f64)| value - mean - slope * (k as f64 - middle);
    series.iter().enumerate().map(line).collect()
}
