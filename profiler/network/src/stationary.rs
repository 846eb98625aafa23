//! The necessary length of a series, and its stray ends (3.7.2).

/// Energy of each beginning of a series about the mean of the whole series. With this mean the energy
/// grows with the length; it equals the summed spectrum (Parseval).
fn energies(series: &[f64]) -> Vec<f64> {
    let mean = series.iter().sum::<f64>() / series.len().max(1) as f64;
    let mut sums = Vec::with_capacity(series.len() + 1);
    sums.push(0.0);
    let mut sum = 0.0;
    for value in series {
        sum += (value - mean).powi(2);
        sums.push(sum);
    }
    sums
}

/// The shortest beginning of the series, in samples, that keeps more than `100 - cutoff` percent
/// of the energy; cut in steps of 1 %.
pub fn representative(series: &[f64], cutoff_percent: f64) -> usize {
    let sums = energies(series);
    let total = sums[series.len()];
    let mut kept = series.len();
    for percent in (1..100).rev() {
        let length = series.len() * percent / 100;
        let lost = total - sums[length];
        if total <= 0.0 || lost >= total * cutoff_percent / 100.0 {
            break;
        }
        kept = length;
    }
    kept
}

/// The part of the series without stray ends. Both ends are cut while the loss of energy is at most
/// `percent`. Returns the first sample kept and the one after the last.
pub fn trimmed(series: &[f64], percent: f64) -> (usize, usize) {
    let sums = energies(series);
    let n = series.len();
    let mut budget = sums[n] * percent / 100.0;
    if sums[n] <= 0.0 {
        return (0, n);
    }
    let (mut from, mut to) = (0, n);
    // The end with less energy first, sample by sample.
    while from < to {
        let first = sums[from + 1] - sums[from];
        let last = sums[to] - sums[to - 1];
        let least = first.min(last);
        if least > budget {
            break;
        }
        budget -= least;
        if first <= last {
            from += 1;
        } else {
            to -= 1;
        }
    }
    (from, to)
}

/// The part without idle ends: from the first to the last sample of at least a quarter of the median of
/// the samples that are not 0.
pub fn busy(series: &[f64]) -> (usize, usize) {
    let level = super::quantile::median(series.iter().copied().filter(|value| *value > 0.0));
    let is_busy = |value: &f64| level.is_some_and(|level| *value >= 0.25 * level);
    match (
        series.iter().position(is_busy),
        series.iter().rposition(is_busy),
    ) {
        (Some(from), Some(to)) => (from, to + 1),
        _ => (0, series.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_at_the_ends_is_cut() {
        let mut series = vec![0.0; 1000];
        for (k, value) in series.iter_mut().enumerate().take(500).skip(300) {
            *value = if k % 2 == 0 { 8.0 } else { 0.0 };
        }
        // Cut again until little more goes, since the mean rises with each cut.
        let (mut from, mut to) = (0, series.len());
        for _ in 0..40 {
            let (a, b) = trimmed(&series[from..to], 1.0);
            let is_done = b - a > (to - from) * 97 / 100;
            (from, to) = (from + a, from + b);
            if is_done {
                break;
            }
        }
        assert!(
            (250..=310).contains(&from) && (490..=750).contains(&to),
            "{from} {to}"
        );
        assert_eq!(trimmed(&[5.0; 10], 1.0), (0, 10));
        assert_eq!(trimmed(&[], 1.0), (0, 0));
    }

    #[test]
    fn the_interval_is_shortened_by_what_holds_little() {
        let wave = |k: usize| if k < 600 { (k % 7) as f64 } else { 3.0 };
        let series: Vec<f64> = (0..1000).map(wave).collect();
        let kept = representative(&series, 5.0);
        assert!((560..=600).contains(&kept), "{kept}");
        assert_eq!(representative(&series, 0.0), 1000);
        assert_eq!(representative(&[1.0; 50], 5.0), 50);
    }
}
