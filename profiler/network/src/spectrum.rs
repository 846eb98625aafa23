//! Power spectra of iteration-rate series (3.10.1), and the advice that follows from them (3.7.1).

use std::cell::RefCell;

use realfft::RealFftPlanner;

thread_local! {
    /// Hundreds of spectra have one length, so its twiddle factors are computed once.
    static PLANNER: RefCell<RealFftPlanner<f64>> = RefCell::new(RealFftPlanner::new());
}

/// A one-sided power spectrum.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spectrum {
    /// Width of a bin, Hz.
    pub bin_hz: f64,
    /// Density at `k * bin_hz`, units²/Hz.
    pub power: Vec<f64>,
}

/// A local maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// Frequency, Hz.
    pub hz: f64,
    /// Density, units²/Hz.
    pub power: f64,
}

impl Spectrum {
    /// Frequency of a bin, Hz.
    pub fn hz(&self, bin: usize) -> f64 {
        bin as f64 * self.bin_hz
    }

    /// Power at any frequency, linear between bins; 0 outside.
    pub fn at(&self, hz: f64) -> f64 {
        let at = hz / self.bin_hz;
        if !(at >= 0.0 && self.bin_hz > 0.0) {
            return 0.0;
        }
        let below = at.floor() as usize;
        match (self.power.get(below), self.power.get(below + 1)) {
            (Some(a), Some(b)) => a + (b - a) * (at - below as f64),
            (Some(a), None) => *a,
            _ => 0.0,
        }
    }

    /// Whole power, DC included.
    pub fn total(&self) -> f64 {
        self.power.iter().sum()
    }

    /// The least frequency with 95 % of the power below it (eq. 3.2); `None` without any power.
    pub fn edge_hz(&self) -> Option<f64> {
        let total = self.total();
        let mut sum = 0.0;
        for (bin, power) in self.power.iter().enumerate() {
            sum += power;
            if total > 0.0 && sum >= 0.95 * total {
                return Some(self.hz(bin));
            }
        }
        None
    }

    /// All local maxima, the strongest first (3.10.2).
    pub fn peaks(&self) -> Vec<Peak> {
        let p = &self.power;
        let is_peak = |&k: &usize| {
            let right = p.get(k + 1).copied().unwrap_or(0.0);
            p[k] > p[k - 1] && p[k] >= right
        };
        let mut peaks: Vec<Peak> = (1..p.len())
            .filter(is_peak)
            .map(|k| Peak {
                hz: self.hz(k),
                power: p[k],
            })
            .collect();
        peaks.sort_by(|a, b| b.power.total_cmp(&a.power).then(a.hz.total_cmp(&b.hz)));
        peaks
    }
}

/// Mean removed, periodic Hann window (eq. 3.3), zeros to the next power of two, FFT; one-sided
/// density `|X|² / (fs Σ w²)`.
pub fn windowed(series: &[f64], sample_hz: f64) -> Spectrum {
    padded(series, sample_hz, series.len().next_power_of_two())
}

/// As [`windowed`], with zeros up to `length` samples.
pub fn padded(series: &[f64], sample_hz: f64, length: usize) -> Spectrum {
    let n = series.len();
    if n < 2 || length < n {
        return Spectrum::default();
    }
    let hann = hann(n);
    let mut x = weighted(series, &hann);
    x.resize(length, 0.0);
    density(
        &mut x,
        sample_hz,
        hann.iter().map(|weight| weight.powi(2)).sum(),
    )
}

/// The periodic Hann window of `n` samples.
fn hann(n: usize) -> Vec<f64> {
    let at = |k: usize| 0.5 - 0.5 * (std::f64::consts::TAU * k as f64 / n as f64).cos();
    (0..n).map(at).collect()
}

/// The series without its mean, weighted by a window.
fn weighted(series: &[f64], window: &[f64]) -> Vec<f64> {
    let mean = series.iter().sum::<f64>() / series.len() as f64;
    let all = series.iter().zip(window);
    all.map(|(value, weight)| (value - mean) * weight).collect()
}

/// The sum of the spectra that [`padded`] computes of many series of `n` samples, each divided by its
/// whole power.
///
/// Each series is transformed at twice its length only. The sum of these transforms is the spectrum of
/// the sum of the autocorrelations, which are no longer than that, and it is padded once.
pub fn summed(
    all: impl IntoIterator<Item = Vec<f64>>,
    n: usize,
    sample_hz: f64,
    length: usize,
) -> Spectrum {
    let least = (2 * n).next_power_of_two();
    if n < 2 || length < least {
        return Spectrum::default();
    }
    let hann = hann(n);
    let (forward, back, wide) = PLANNER.with_borrow_mut(|planner| {
        (
            planner.plan_fft_forward(least),
            planner.plan_fft_inverse(least),
            planner.plan_fft_forward(length),
        )
    });
    let mut sum = back.make_input_vec();
    let mut out = forward.make_output_vec();
    let mut scratch = forward.make_scratch_vec();
    let mut is_empty = true;
    for series in all {
        let mut x = weighted(&series, &hann);
        let power: f64 = x.iter().map(|value| value.powi(2)).sum();
        x.resize(least, 0.0);
        if power <= 0.0
            || forward
                .process_with_scratch(&mut x, &mut out, &mut scratch)
                .is_err()
        {
            continue;
        }
        is_empty = false;
        for (into, z) in sum.iter_mut().zip(&out) {
            into.re += z.norm_sqr() / power;
        }
    }
    let mut correlation = back.make_output_vec();
    if is_empty || back.process(&mut sum, &mut correlation).is_err() {
        return Spectrum::default();
    }
    // Negative lags are at the end.
    let mut x = vec![0.0; length];
    x[..n].copy_from_slice(&correlation[..n]);
    x[length - n + 1..].copy_from_slice(&correlation[least - n + 1..]);
    let mut out = wide.make_output_vec();
    if wide.process(&mut x, &mut out).is_err() {
        return Spectrum::default();
    }
    let scale = 1.0 / (least as f64 * length as f64);
    let power = out.iter().enumerate();
    let power = power.map(|(k, z)| (z.re * scale * sides(k, length)).max(0.0));
    Spectrum {
        bin_hz: sample_hz / length as f64,
        power: power.collect(),
    }
}

/// Weight of a bin of a transform of `length` samples, if one side represents both.
fn sides(bin: usize, length: usize) -> f64 {
    let is_single = bin == 0 || (length.is_multiple_of(2) && bin == length / 2);
    if is_single { 1.0 } else { 2.0 }
}

/// Periodogram without window and padding.
pub fn raw(series: &[f64], sample_hz: f64) -> Spectrum {
    let n = series.len();
    if n < 2 {
        return Spectrum::default();
    }
    let mean = series.iter().sum::<f64>() / n as f64;
    let mut x: Vec<f64> = series.iter().map(|value| value - mean).collect();
    density(&mut x, sample_hz, n as f64)
}

fn density(x: &mut [f64], sample_hz: f64, weight: f64) -> Spectrum {
    let n = x.len();
    let fft = PLANNER.with_borrow_mut(|planner| planner.plan_fft_forward(n));
    let mut out = fft.make_output_vec();
    if fft.process(x, &mut out).is_err() {
        return Spectrum::default();
    }
    let scale = 1.0 / (sample_hz * weight);
    let power =
        |(k, z): (usize, &realfft::num_complex::Complex<f64>)| z.norm_sqr() * scale * sides(k, n);
    Spectrum {
        bin_hz: sample_hz / n as f64,
        power: out.iter().enumerate().map(power).collect(),
    }
}

/// Unbiased autocorrelation of a series about its mean, lags `0 ..= longest`, 1 at lag 0.
pub fn autocorrelation(series: &[f64], longest: usize) -> Vec<f64> {
    let n = series.len();
    if n < 2 {
        return Vec::new();
    }
    let mean = series.iter().sum::<f64>() / n as f64;
    let length = (2 * n).next_power_of_two();
    let mut x: Vec<f64> = series.iter().map(|value| value - mean).collect();
    x.resize(length, 0.0);
    let mut planner = RealFftPlanner::<f64>::new();
    let forward = planner.plan_fft_forward(length);
    let mut z = forward.make_output_vec();
    let inverse = planner.plan_fft_inverse(length);
    let mut r = inverse.make_output_vec();
    if forward.process(&mut x, &mut z).is_err() {
        return Vec::new();
    }
    for value in &mut z {
        *value = realfft::num_complex::Complex::new(value.norm_sqr(), 0.0);
    }
    if inverse.process(&mut z, &mut r).is_err() || r[0] <= 0.0 {
        return Vec::new();
    }
    let zero = r[0] / n as f64;
    (0..=longest.min(n - 1))
        .map(|lag| r[lag] / (n - lag) as f64 / zero)
        .collect()
}

/// The lowest peak with at least a tenth of the strongest one's power, which is the thesis's
/// super-phase (3.10.2). `None` without a peak.
pub fn lowest_dominant(spectrum: &Spectrum) -> Option<Peak> {
    let peaks = spectrum.peaks();
    let strongest = peaks.first()?.power;
    let dominant = peaks
        .into_iter()
        .filter(|peak| peak.power >= 0.1 * strongest);
    dominant.min_by(|a, b| a.hz.total_cmp(&b.hz))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(samples: usize) -> (usize, f64) {
        let spectrum = windowed(&vec![1.0; samples], 50.0);
        ((spectrum.power.len() - 1) * 2, spectrum.bin_hz)
    }

    /// The frequencies printed in tables 3.2, 3.4, 3.7 and 3.8 are bins of these spectra.
    #[test]
    fn printed_frequencies_are_bins() {
        let near = |value: f64, printed: f64, half: f64| {
            assert!((value - printed).abs() <= half, "{value} is not {printed}");
        };
        for (samples, length, width, lines) in [
            (
                972,
                1024,
                0.048828,
                vec![(5, 0.244), (10, 0.488), (15, 0.732), (30, 1.465), (35, 1.7)],
            ),
            (
                1439,
                2048,
                0.024414,
                vec![
                    (7, 0.1709),
                    (13, 0.3174),
                    (19, 0.4639),
                    (32, 0.781),
                    (58, 1.416),
                ],
            ),
            (2334, 4096, 0.012207, vec![(8, 0.0977), (49, 0.598)]),
        ] {
            let (n, bin) = bins(samples);
            assert_eq!(n, length);
            near(bin, width, 5e-7);
            for (k, hz) in lines {
                near(k as f64 * bin, hz, 0.01);
            }
        }
        for (length, bin, hz) in [
            (256, 8, 1.5625),
            (512, 6, 0.5859),
            (4096, 8, 0.0976),
            (1024, 70, 3.42),
            (2048, 68, 1.66),
            (4096, 200, 2.44),
            (2048, 196, 4.785),
            (4096, 104, 1.2695),
            (8192, 185, 1.13),
        ] {
            near(f64::from(bin) * 50.0 / f64::from(length), hz, 0.005);
        }
    }

    #[test]
    fn a_sine_stands_at_its_frequency_and_keeps_its_power() {
        let x: Vec<f64> = (0..1024)
            .map(|k| 3.0 + (std::f64::consts::TAU * 5.0 * f64::from(k) / 50.0).sin())
            .collect();
        let spectrum = windowed(&x, 50.0);
        assert!((spectrum.peaks()[0].hz - 5.0).abs() < spectrum.bin_hz);
        // Parseval: the density over all frequencies is the variance.
        let power = raw(&x, 50.0);
        let variance = x.iter().map(|v| (v - 3.0f64).powi(2)).sum::<f64>() / 1024.0;
        assert!((power.total() * power.bin_hz - variance).abs() < 1e-3);
        assert!((spectrum.edge_hz().unwrap() - 5.0).abs() < 3.0 * spectrum.bin_hz);
        let r = autocorrelation(&x, 20);
        assert!(r[10] > 0.95 && r[5] < -0.9);
    }

    #[test]
    fn a_sum_of_spectra_is_that_of_each() {
        let series = |of: u32| -> Vec<f64> {
            let at = |k: u32| f64::from((k * (of + 7) + k * k / 3).is_multiple_of(of + 2));
            (0..100).map(at).collect()
        };
        let all: Vec<Vec<f64>> = (1..9).map(series).collect();
        let found = summed(all.iter().cloned(), 100, 50.0, 2048);
        let mut expected = vec![0.0; 1025];
        for series in &all {
            let spectrum = padded(series, 50.0, 2048);
            let total = spectrum.total();
            for (sum, power) in expected.iter_mut().zip(&spectrum.power) {
                *sum += power / total;
            }
        }
        assert_eq!(found.bin_hz, 50.0 / 2048.0);
        let most = expected.iter().copied().fold(0.0, f64::max);
        for (found, expected) in found.power.iter().zip(&expected) {
            assert!(
                (found - expected).abs() < 1e-12 * most,
                "{found} {expected}"
            );
        }
        assert_eq!(
            summed([vec![3.0; 100]], 100, 50.0, 2048),
            Spectrum::default()
        );
    }

    #[test]
    fn nothing_has_no_spectrum() {
        assert!(windowed(&[], 50.0).power.is_empty());
        assert_eq!(windowed(&[1.0; 64], 50.0).edge_hz(), None);
        assert!(lowest_dominant(&windowed(&[1.0; 64], 50.0)).is_none());
        assert!(autocorrelation(&[2.0; 8], 4).is_empty());
    }

    /// Predicted times from super-phases, and the number of super-phases, in tables 3.6 (MG) and 3.9
    /// (IS).
    #[test]
    fn super_phases_predict_the_tables_times() {
        let near = |value: f64, printed: f64, half: f64| {
            assert!((value - printed).abs() <= half, "{value} is not {printed}");
        };
        near(1.0 / 0.244, 4.098, 5e-4);
        near(1.0 / 0.1709, 5.851, 5e-4);
        near(1.0 / 0.0977, 10.235, 5e-4);
        near(19.44 * 5.882 / 4.09, 27.957, 5e-4);
        near(19.44 * 11.11 / 4.09, 52.806, 5e-4);
        near((27.957 - 28.78) / 28.78 * 100.0, -2.86, 5e-3);
        near((52.806 - 46.68) / 46.68 * 100.0, 13.1, 5e-2);
        near(19.44 * 10.235 / 4.098, 48.55, 5e-3);
        for (s, period, count) in [
            (19.44, 4.09, 4.753),
            (28.78, 5.882, 4.893),
            (46.68, 11.11, 4.202),
        ] {
            near(s / period, count, 5e-4);
        }
        near(23.342 * 5.1411 / 2.2758, 52.730, 5e-4);
        near(23.342 * 32.7761 / 2.2758, 336.172, 5e-4);
        near(1.0 / (18.0 * 50.0 / 2048.0), 2.2758, 5e-4);
        near(1.0 / (5.0 * 50.0 / 8192.0), 32.7761, 1e-2);
    }
}
