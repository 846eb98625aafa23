//! Parts of an application that behave alike (Algorithm 1 of 3.10.5): pairs whose spectra have the
//! same form.
//!
//! The printed algorithm never ends, since the set from which it takes does not shrink and contains the
//! compared element. Thesis mode is a corrected chain. The default compares with the nearest member of
//! every component, so that the order does not matter.

use super::quantile;
use super::run::{Mode, Node, Run, Unknown};
use super::spectrum::{self, Spectrum};
use super::{calls, rir, steps};

/// Default distance from which components are separate.
pub const THRESHOLD: f64 = 0.3;
/// Points of a fingerprint, evenly spaced in the logarithm of the frequency.
const POINTS: usize = 96;
/// Largest shift of a fingerprint, in points. Shifts are needed because load scales the frequencies.
const SHIFT: isize = 24;
/// Iterations that a spectrum needs.
const LEAST: usize = 24;

/// The form of a spectrum: logarithms of its power, DC left out, on a logarithmic axis.
pub fn fingerprint(spectrum: &Spectrum) -> Vec<f64> {
    let last = spectrum.power.len().saturating_sub(1);
    if last < 8 {
        return Vec::new();
    }
    let total: f64 = spectrum.power[1..].iter().sum();
    let at = |point: usize| {
        let share = point as f64 / (POINTS - 1) as f64;
        let bin = (last as f64).powf(share).max(1.0);
        let power = spectrum.at(bin * spectrum.bin_hz);
        (power / total.max(f64::MIN_POSITIVE) + 1e-12).ln()
    };
    (0..POINTS).map(at).collect()
}

/// 1 less the largest correlation of two fingerprints over all shifts; 0 to 2.
pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len().min(b.len()) as isize;
    let best = (-SHIFT..=SHIFT).filter_map(|shift| {
        let from = shift.max(0);
        let to = (n + shift.min(0)).max(from);
        let x: Vec<f64> = (from..to).map(|k| a[k as usize]).collect();
        let y: Vec<f64> = (from..to).map(|k| b[(k - shift) as usize]).collect();
        correlation(&x, &y)
    });
    1.0 - best.fold(-1.0, f64::max)
}

fn correlation(x: &[f64], y: &[f64]) -> Option<f64> {
    let (mx, my) = (quantile::mean(x)?, quantile::mean(y)?);
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (a, b) in x.iter().zip(y) {
        xy += (a - mx) * (b - my);
        xx += (a - mx).powi(2);
        yy += (b - my).powi(2);
    }
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}

/// The corrected chain: from the first element always to the nearest one left. If that is farther than
/// the threshold, a new component begins.
pub fn chain(n: usize, threshold: f64, distance: impl Fn(usize, usize) -> f64) -> Vec<Vec<usize>> {
    let mut left: Vec<usize> = (0..n).collect();
    let mut components: Vec<Vec<usize>> = Vec::new();
    let mut at: Option<usize> = None;
    while !left.is_empty() {
        let next = match at {
            None => 0,
            // Of equally near elements the one with the lowest number.
            Some(at) => (0..left.len())
                .min_by(|&a, &b| distance(at, left[a]).total_cmp(&distance(at, left[b])))
                .unwrap_or(0),
        };
        let element = left.remove(next);
        let is_far = at.is_some_and(|at| distance(at, element) > threshold);
        match components.last_mut() {
            Some(component) if !is_far => component.push(element),
            _ => components.push(vec![element]),
        }
        at = Some(element);
    }
    components
}

/// Single linkage: two elements are of one component if a path of near elements joins them.
pub fn linked(n: usize, threshold: f64, distance: impl Fn(usize, usize) -> f64) -> Vec<Vec<usize>> {
    let mut component: Vec<usize> = (0..n).collect();
    for a in 0..n {
        for b in a + 1..n {
            if distance(a, b) <= threshold {
                let (from, to) = (component[b], component[a]);
                for c in &mut component {
                    if *c == from {
                        *c = to;
                    }
                }
            }
        }
    }
    let mut found: Vec<Vec<usize>> = Vec::new();
    let mut names: Vec<usize> = Vec::new();
    for (element, name) in component.into_iter().enumerate() {
        match names.iter().position(|known| *known == name) {
            Some(at) => found[at].push(element),
            None => {
                names.push(name);
                found.push(vec![element]);
            }
        }
    }
    found
}

/// The ordered pairs of a run by the form of their spectra.
///
/// # Errors
/// When fewer than two pairs iterate often enough for a spectrum.
pub fn components(run: &Run, threshold: f64) -> Result<Vec<Vec<(Node, Node)>>, Unknown> {
    let span = run.span_ns();
    let all = rir::events(run)?;
    // Each pair has a spectrum, all of the same bins.
    let most = all.iter().map(|events| events.times_ns.len()).max();
    let bin_ns = ((span.1 - span.0) / 2048).clamp(1_000, 20_000_000);
    let bin_ns = bin_ns.max(steps::least_ns(span, most.unwrap_or(0)));
    let mut pairs = Vec::new();
    let mut prints = Vec::new();
    for events in all {
        if events.times_ns.len() >= LEAST {
            let counts = rir::binned(events.times_ns.iter().copied(), span, bin_ns);
            let print = fingerprint(&spectrum::windowed(&counts, 1e9 / bin_ns as f64));
            if !print.is_empty() {
                pairs.push((events.me, events.peer));
                prints.push(print);
            }
        }
    }
    if pairs.len() < 2 {
        return Err(Unknown::new(format!(
            "fewer than two pairs iterate {LEAST} times in this interval"
        )));
    }
    let between = |a: usize, b: usize| distance(&prints[a], &prints[b]);
    let found = match run.settings.mode {
        Mode::Thesis => chain(pairs.len(), threshold, between),
        Mode::Default => linked(pairs.len(), threshold, between),
    };
    let named = |component: Vec<usize>| component.into_iter().map(|at| pairs[at]).collect();
    Ok(found.into_iter().map(named).collect())
}

/// The files of the thesis's script (3.10.5) for one pair: series, distribution, spectrum, peaks. Names
/// and lines are as in the thesis: one value or pair of values per line.
///
/// # Errors
/// As [`calls::rir_series`].
pub fn script_files(run: &Run, name: &str) -> Result<Vec<(String, String)>, Unknown> {
    use std::fmt::Write;
    let (series, step) = calls::rir_series(run, None)?.value;
    let cdf = calls::rir_cdf(run)?.value;
    let spectrum = spectrum::windowed(&series, 1.0 / step);
    let mut texts = vec![String::new(); 4];
    // Writing to a String cannot fail.
    for (k, value) in series.iter().enumerate() {
        let _ = writeln!(texts[0], "{} {value}", k as f64 * step);
    }
    for (k, value) in cdf.percentiles.iter().enumerate() {
        let _ = writeln!(texts[1], "{value} {}", k + 1);
    }
    for (k, power) in spectrum.power.iter().enumerate() {
        let _ = writeln!(texts[2], "{} {power}", spectrum.hz(k));
    }
    for peak in spectrum.peaks() {
        let _ = writeln!(texts[3], "{} {}", peak.hz, peak.power);
    }
    let names = ["ts", "cdf", "ps", "pse"].map(|kind| format!("{name}.{kind}"));
    Ok(names.into_iter().zip(texts).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spectra_of_one_form_are_near_also_when_slowed() {
        let comb = |hz: f64| {
            let wave = |k: i32| {
                let t = f64::from(k) / 200.0;
                let phase = std::f64::consts::TAU * hz * t;
                phase.sin() + 0.5 * (2.0 * phase).sin() + 0.3 * (5.0 * phase).cos()
            };
            let series: Vec<f64> = (0..2048).map(wave).collect();
            fingerprint(&spectrum::windowed(&series, 200.0))
        };
        let mut state = 9u64;
        let noise: Vec<f64> = (0..2048)
            .map(|_| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                (state >> 40) as f64
            })
            .collect();
        let noise = fingerprint(&spectrum::windowed(&noise, 200.0));
        assert!(distance(&comb(4.0), &comb(4.0)) < 1e-9);
        assert!(
            distance(&comb(4.0), &comb(2.8)) < THRESHOLD,
            "{}",
            distance(&comb(4.0), &comb(2.8))
        );
        assert!(
            distance(&comb(4.0), &noise) > THRESHOLD,
            "{}",
            distance(&comb(4.0), &noise)
        );
        assert_eq!(fingerprint(&Spectrum::default()), Vec::<f64>::new());
    }

    #[test]
    fn the_order_matters_only_to_the_chain() {
        // Points on a line: from 0 the chain goes to 1, 1.5, then 10 and 11.
        let at: [f64; 5] = [0.0, 1.0, 10.0, 11.0, 1.5];
        let distance = |a: usize, b: usize| (at[a] - at[b]).abs();
        assert_eq!(chain(5, 2.0, distance), [vec![0, 1, 4], vec![2, 3]]);
        assert_eq!(linked(5, 2.0, distance), [vec![0, 1, 4], vec![2, 3]]);
        // The chain begins in the middle and reaches 0 last, for which it opens a third component.
        let at: [f64; 4] = [5.0, 6.0, 10.0, 3.4];
        let distance = |a: usize, b: usize| (at[a] - at[b]).abs();
        assert_eq!(chain(4, 2.0, distance).len(), 3);
        assert_eq!(linked(4, 2.0, distance), [vec![0, 1, 3], vec![2]]);
        assert!(chain(0, 1.0, |_, _| 0.0).is_empty());
    }
}
