//! The spectrum that an aperiodic program would have: first-order red noise on white, fitted by
//! Whittle's likelihood.

use crate::spectrum::Spectrum;

/// Tried correlations between neighbouring bins.
const CORRELATIONS: [f64; 13] = [
    0.0, 0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995,
];
/// Number of reweighted least-squares steps per candidate.
const STEPS: usize = 30;

/// `S(f) = red (1 - a²) / (1 - 2 a cos(2π f / fs) + a²) + white`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Background {
    /// Power of the red part.
    pub red: f64,
    /// Correlation of neighbouring bins.
    pub correlation: f64,
    /// Power of the white part.
    pub white: f64,
}

impl Background {
    /// Density at a frequency given as a share of the sampling rate.
    pub fn at(&self, share: f64) -> f64 {
        self.red * shape(self.correlation, share) + self.white
    }
}

fn shape(a: f64, share: f64) -> f64 {
    (1.0 - a * a) / (1.0 - 2.0 * a * (std::f64::consts::TAU * share).cos() + a * a)
}

/// Fits the background to a periodogram of `samples` bins without its DC and Nyquist.
pub fn fit(power: &[f64], samples: usize) -> Background {
    let mut best = (f64::INFINITY, Background::default());
    let shares: Vec<f64> = (1..=power.len())
        .map(|k| k as f64 / samples as f64)
        .collect();
    for a in CORRELATIONS {
        let h: Vec<f64> = shares.iter().map(|&share| shape(a, share)).collect();
        let candidate = least_squares(power, &h, a);
        let likelihood: f64 = power
            .iter()
            .zip(&h)
            .map(|(i, h)| {
                let s = (candidate.red * h + candidate.white).max(f64::MIN_POSITIVE);
                s.ln() + i / s
            })
            .sum();
        if likelihood < best.0 {
            best = (likelihood, candidate);
        }
    }
    best.1
}

/// Non-negative weighted least squares of `power` on `[h, 1]`, with weights `1 / S²` of the step
/// before.
fn least_squares(power: &[f64], h: &[f64], a: f64) -> Background {
    let mean = power.iter().sum::<f64>() / power.len().max(1) as f64;
    let floor = (mean * 1e-9).max(f64::MIN_POSITIVE);
    let mut s = Background {
        red: if a > 0.0 { mean / 2.0 } else { 0.0 },
        correlation: a,
        white: if a > 0.0 { mean / 2.0 } else { mean },
    };
    for _ in 0..STEPS {
        let (mut hh, mut h1, mut n, mut hy, mut y1) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (&y, &h) in power.iter().zip(h) {
            let w = 1.0 / (s.red * h + s.white).max(floor).powi(2);
            hh += w * h * h;
            h1 += w * h;
            n += w;
            hy += w * h * y;
            y1 += w * y;
        }
        let determinant = hh * n - h1 * h1;
        let (mut red, mut white) = if determinant > 1e-12 * hh * n {
            (
                (hy * n - h1 * y1) / determinant,
                (hh * y1 - h1 * hy) / determinant,
            )
        } else {
            (0.0, y1 / n)
        };
        if red < 0.0 {
            (red, white) = (0.0, y1 / n);
        } else if white < 0.0 {
            (red, white) = (hy / hh, 0.0);
        }
        let is_still = (red - s.red).abs() + (white - s.white).abs() < 1e-9 * (s.red + s.white);
        s.red = red.max(0.0);
        s.white = white.max(0.0);
        if is_still {
            break;
        }
    }
    s
}

/// The background of a periodogram and the probability of its highest peak without a period.
pub(super) fn test(periodogram: &Spectrum, samples: usize) -> (Background, f64) {
    let p = &periodogram.power;
    let last = if samples.is_multiple_of(2) {
        p.len().saturating_sub(1)
    } else {
        p.len()
    };
    if last < 4 {
        return (Background::default(), 1.0);
    }
    let inner = &p[1..last];
    let background = fit(inner, samples);
    let ratio = |(k, i): (usize, &f64)| {
        let s = background.at((k + 1) as f64 / samples as f64);
        if s > 0.0 { i / s } else { 0.0 }
    };
    let highest = inner.iter().enumerate().map(ratio).fold(0.0, f64::max);
    // M independent exponential ordinates: one of them this high by chance.
    let single = (-highest).exp();
    let p_value = -((inner.len() as f64) * (-single).ln_1p()).exp_m1();
    (background, p_value.clamp(0.0, 1.0))
}
