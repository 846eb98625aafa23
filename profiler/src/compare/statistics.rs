//! Means, and a test for a difference beyond chance.

/// The mean; 0 if there are no values.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The probability that two samples from distributions with one mean differ at least as much (Welch's
/// t-test, two-sided). Both need two values or more.
pub(super) fn welch(a: &[f64], b: &[f64]) -> f64 {
    let variance_of_mean = |values: &[f64]| {
        let mean = mean(values);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        squares / (values.len() as f64 - 1.0) / values.len() as f64
    };
    let (va, vb) = (variance_of_mean(a), variance_of_mean(b));
    let difference = (mean(a) - mean(b)).abs();
    if va + vb == 0.0 {
        return if difference == 0.0 { 1.0 } else { 0.0 };
    }
    let t = difference / (va + vb).sqrt();
    let share = |v: f64, n: usize| v * v / (n as f64 - 1.0);
    let freedom = (va + vb).powi(2) / (share(va, a.len()) + share(vb, b.len()));
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The regularised incomplete beta function, by its continued fraction (Lentz).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front =
        (a * x.ln() + b * (1.0 - x).ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b)).exp() / a;
    const TINY: f64 = 1e-300;
    let (mut c, mut d) = (1.0, 1.0 - (a + b) * x / (a + 1.0));
    d = 1.0 / if d.abs() < TINY { TINY } else { d };
    let mut fraction = d;
    for m in 1..300 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut factor = 1.0;
        for step in [even, odd] {
            d = 1.0 + step * d;
            d = 1.0 / if d.abs() < TINY { TINY } else { d };
            c = 1.0 + step / c;
            c = if c.abs() < TINY { TINY } else { c };
            factor = c * d;
            fraction *= factor;
        }
        if (factor - 1.0).abs() < 1e-12 {
            break;
        }
    }
    (front * fraction).clamp(0.0, 1.0)
}

/// Logarithm of the gamma function (Lanczos, g = 7).
fn ln_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        let sine = (std::f64::consts::PI * x).sin();
        return (std::f64::consts::PI / sine).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let t = x + 7.5;
    let series = COEFFICIENTS[1..]
        .iter()
        .enumerate()
        .fold(COEFFICIENTS[0], |sum, (i, c)| {
            sum + c / (x + i as f64 + 1.0)
        });
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + series.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_in_the_tables() {
        // Student's t with 4 degrees of freedom: 2.776 is the two-sided 5 % point, 4.604 the 1 %.
        let p =
            |t: f64, freedom: f64| incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5);
        for (t, freedom, expected) in [
            (2.776, 4.0, 0.05),
            (4.604, 4.0, 0.01),
            (12.706, 1.0, 0.05),
            (1.96, 1e6, 0.05),
        ] {
            assert!(
                (p(t, freedom) - expected).abs() < 2e-4,
                "{t} {freedom}: {}",
                p(t, freedom)
            );
        }
        assert!((ln_gamma(5.0) - 24f64.ln()).abs() < 1e-10);
    }

    #[test]
    fn equal_samples_do_not_differ_and_apart_ones_do() {
        assert_eq!(welch(&[3.0, 3.0], &[3.0, 3.0]), 1.0);
        assert_eq!(welch(&[3.0, 3.0], &[4.0, 4.0]), 0.0);
        assert!(welch(&[1.0, 1.1, 0.9], &[1.05, 0.95, 1.0]) > 0.5);
        assert!(welch(&[1.0, 1.01, 0.99], &[2.0, 2.01, 1.99]) < 1e-5);
    }
}
