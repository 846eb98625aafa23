//! Verdicts with other iterations: the iterations are resampled with replacement.

use crate::balance::{self, Range};
use crate::chance::Chance;
use crate::quantile;

/// Resamples.
const RESAMPLES: usize = 500;
/// Share of the resamples outside of the range, at each end.
const TAIL: f64 = 0.025;

/// The 95 % range of the ratio of the least of the processes `ahead` to the largest of the others, from
/// sums over resampled parts (values by part and process), and the share of the resamples in which it
/// is above 1.
pub(super) fn ratio(parts: &[Vec<f64>], ahead: &[usize]) -> (Range, f64) {
    let ratio = |drawn: &[&Vec<f64>]| {
        let sums = &summed(drawn);
        let others = (0..sums.len()).filter(|node| !ahead.contains(node));
        let next = others.map(|node| sums[node]).fold(0.0, f64::max);
        let least = ahead.iter().filter_map(|&node| sums.get(node)).copied();
        let least = least.fold(f64::INFINITY, f64::min);
        if next > 0.0 {
            least / next
        } else {
            f64::INFINITY
        }
    };
    let ahead = std::cell::Cell::new(0);
    let found = range(parts, |drawn| {
        let ratio = ratio(drawn);
        ahead.set(ahead.get() + usize::from(ratio > 1.0));
        (ratio, ratio)
    });
    (found, ahead.get() as f64 / RESAMPLES as f64)
}

/// The 95 % range of the slowdown by the global balance: low ends from the least, high ends from the
/// most.
pub(super) fn slowdown(parts: &[Vec<f64>], loaded: usize) -> Range {
    range(parts, |drawn| {
        let sums = &summed(drawn);
        let found = balance::global(sums, loaded).unwrap_or_default();
        (found.low, found.high)
    })
}

fn summed(drawn: &[&Vec<f64>]) -> Vec<f64> {
    let mut sums = vec![0.0; drawn.first().map_or(0, |part| part.len())];
    for part in drawn {
        for (sum, value) in sums.iter_mut().zip(part.iter()) {
            *sum += value;
        }
    }
    sums
}

/// The 95 % range of `of` on resampled parts: low ends from its least values, high ends from its most.
pub(crate) fn range(parts: &[Vec<f64>], of: impl Fn(&[&Vec<f64>]) -> (f64, f64)) -> Range {
    let mut chance = Chance(0x2545_f491_4f6c_dd1d);
    let (mut lows, mut highs) = (Vec::new(), Vec::new());
    for _ in 0..RESAMPLES {
        let drawn: Vec<&Vec<f64>> = (0..parts.len())
            .map(|_| &parts[chance.below(parts.len())])
            .collect();
        let (low, high) = of(&drawn);
        lows.push(low);
        highs.push(high);
    }
    let at = |values: Vec<f64>, q: f64| quantile::quantile(&quantile::sorted(values), q);
    Range {
        low: at(lows, TAIL).unwrap_or(0.0),
        high: at(highs, 1.0 - TAIL).unwrap_or(f64::INFINITY),
    }
}
