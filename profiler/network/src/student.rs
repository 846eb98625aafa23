//! Student's distribution, for the mean of a few values.

/// Probability that a value of Student's distribution is no more than `t` (Abramowitz and Stegun, 26.7.3 and 26.7.4).
pub(super) fn probability(t: f64, freedom: usize) -> f64 {
    if t.is_nan() {
        return 0.5;
    }
    let angle = (t.abs() / (freedom as f64).sqrt()).atan();
    let (sin, cos) = angle.sin_cos();
    let is_odd = freedom % 2 == 1;
    let mut term = if is_odd { cos } else { 1.0 };
    let mut sum = if freedom == 1 { 0.0 } else { term };
    let mut k = if is_odd { 3 } else { 2 };
    while k < freedom {
        term *= cos * cos * (k - 1) as f64 / k as f64;
        sum += term;
        k += 2;
    }
    let within = match is_odd {
        true => (angle + sin * sum) * std::f64::consts::FRAC_2_PI,
        false => sin * sum,
    };
    0.5 + (within / 2.0).copysign(t)
}

/// The value with this share below it, for shares of 0.5 and more.
pub(super) fn quantile(share: f64, freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        match probability(middle, freedom) < share {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, expected) in [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (10, 2.228),
        ] {
            assert!(
                (quantile(0.975, freedom) - expected).abs() < 5e-4,
                "{freedom}"
            );
            assert!((probability(-expected, freedom) - 0.025).abs() < 1e-4);
        }
        assert_eq!(probability(0.0, 4), 0.5);
        assert_eq!(probability(f64::INFINITY, 2), 1.0);
    }
}
