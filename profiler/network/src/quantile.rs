//! Order statistics.

use ahash::AHashMap;

/// Quantile by linear interpolation between order statistics (type 7 of Hyndman and Fan).
/// `None` for an empty slice.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (at - below as f64))
}

/// A sorted copy without NaN.
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|v| !v.is_nan()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Median of any values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    quantile(&sorted(values), 0.5)
}

/// Median absolute deviation from the median.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let middle = median(values.iter().copied())?;
    median(values.iter().map(|v| (v - middle).abs()))
}

/// Arithmetic mean.
pub fn mean(values: &[f64]) -> Option<f64> {
    match values.len() {
        0 => None,
        n => Some(values.iter().sum::<f64>() / n as f64),
    }
}

/// The size of most messages, and the number of messages with it.
pub(crate) fn usual(sizes: impl IntoIterator<Item = u64>) -> Option<(u64, usize)> {
    let mut counts: AHashMap<u64, usize> = AHashMap::new();
    for size in sizes {
        *counts.entry(size).or_default() += 1;
    }
    // Of two equally frequent sizes the larger one, so that the answer is always the same.
    counts.into_iter().max_by_key(|&(size, n)| (n, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_type_7() {
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(quantile(&values, 0.5), Some(2.5));
        assert_eq!(quantile(&values, 0.05), Some(1.15));
        assert_eq!(quantile(&values, 1.0), Some(4.0));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(deviation(&[1.0, 2.0, 9.0]), Some(1.0));
    }
}
