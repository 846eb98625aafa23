//! Lead of processes over the others, and its confidence.

use super::{LEAST_ITERATIONS, bootstrap};
use crate::balance::Range;
use crate::student;

/// Least factor by which a named process leads, in 97.5 % of the resamples.
pub(super) const LEAST_LEAD: f64 = 1.1;
/// Least confidence that a process leads at all, if iterations are too few to resample.
const SURE: f64 = 0.9;
/// Share of the means below the upper end of a 95 % range.
const HIGH: f64 = 0.975;

/// Lead of processes over the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lead {
    /// Factor of the least of the processes to the largest of the others, 95 %.
    pub(super) range: Range,
    /// Confidence that the factor is more than 1.
    pub(super) confidence: f64,
    is_clear: bool,
}

impl Lead {
    /// The lead of the processes `ahead`, from the value of each process in every part.
    pub(super) fn of(parts: &[Vec<f64>], ahead: &[usize]) -> Lead {
        if parts.len() >= LEAST_ITERATIONS {
            let (range, confidence) = bootstrap::ratio(parts, ahead);
            return Lead {
                range,
                confidence,
                is_clear: range.low >= LEAST_LEAD,
            };
        }
        of_few(parts, ahead)
    }

    /// True if the lead is large and certain enough to name a load by it.
    pub(super) fn is_clear(&self) -> bool {
        self.is_clear
    }
}

/// The lead from the mean logarithm of the factors to each of the others, part by part, by Student's
/// distribution, since resamples of a few parts would be too certain. The result holds towards each of
/// the others. With the gate of the balance, less than one in ten balanced processes with such parts
/// (factors of single parts e^0.05 to e^0.5) are named by it.
fn of_few(parts: &[Vec<f64>], ahead: &[usize]) -> Lead {
    let mut lead = Lead {
        range: Range {
            low: f64::INFINITY,
            high: f64::INFINITY,
        },
        confidence: 1.0,
        is_clear: false,
    };
    let nodes = parts.first().map_or(0, Vec::len);
    for &own in ahead {
        for other in (0..nodes).filter(|node| !ahead.contains(node)) {
            let factor = |part: &Vec<f64>| (part[own] / part[other]).ln();
            let logs: Vec<f64> = parts
                .iter()
                .map(factor)
                .filter(|log| log.is_finite())
                .collect();
            let Some((mean, error)) = mean_and_error(&logs) else {
                // A process for which no other waited is ahead of none. A process for which others
                // waited in some parts only is not compared.
                if parts.iter().any(|part| part[other] > 0.0) {
                    (lead.confidence, lead.range.low) = (0.0, 0.0);
                }
                continue;
            };
            let freedom = logs.len() - 1;
            let half = student::quantile(HIGH, freedom) * error;
            lead.range.low = lead.range.low.min((mean - half).exp());
            lead.range.high = lead.range.high.min((mean + half).exp());
            let sure = student::probability(mean / error, freedom);
            lead.confidence = lead.confidence.min(sure);
        }
    }
    if nodes == 2 {
        // Of two processes one is ahead in any case.
        lead.confidence = 1.0 - 2.0 * (1.0 - lead.confidence).min(0.5);
    }
    lead.is_clear = lead.confidence >= SURE && lead.range.high.is_finite();
    lead
}

/// Mean of some values, and its standard error; `None` with fewer than three.
fn mean_and_error(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    if values.len() < 3 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, (squares / (n - 1.0) / n).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Noise;

    #[test]
    fn a_few_iterations_name_whoever_leads_in_nearly_all_of_them() {
        let lead = Lead::of(
            &[
                vec![2.0, 1.0, 1.1],
                vec![2.2, 1.1, 1.0],
                vec![2.1, 1.0, 1.0],
                vec![1.9, 0.9, 1.2],
            ],
            &[0],
        );
        assert!(lead.is_clear() && lead.confidence > 0.99, "{lead:?}");
        assert!(lead.range.low > 1.3 && lead.range.high < 3.0, "{lead:?}");
        // The sums are as large, but by a single part.
        let lead = Lead::of(
            &[
                vec![4.0, 1.0, 1.1],
                vec![1.0, 1.1, 1.0],
                vec![1.1, 1.0, 1.2],
                vec![1.0, 0.9, 1.0],
            ],
            &[0],
        );
        assert!(!lead.is_clear(), "{lead:?}");
        assert!(!Lead::of(&[vec![2.0, 1.0], vec![2.0, 1.0]], &[0]).is_clear());
    }

    /// Balanced processes of any unsteadiness: the largest sum is named in fewer than one in ten runs.
    #[test]
    fn chance_names_nobody_more_often_than_it_says() {
        let mut noise = Noise(77);
        for (nodes, count) in [(2, 4), (3, 4), (4, 3), (4, 7), (8, 5)] {
            for spread in [0.05, 0.2, 0.5] {
                let named = (0..400).filter(|_| {
                    let mut part = || {
                        (0..nodes)
                            .map(|_| (spread * noise.normal()).exp())
                            .collect::<Vec<f64>>()
                    };
                    let parts: Vec<Vec<f64>> = (0..count).map(|_| part()).collect();
                    let sum = |node: usize| parts.iter().map(|part| part[node]).sum::<f64>();
                    let first = (0..nodes)
                        .reduce(|a, b| if sum(b) > sum(a) { b } else { a })
                        .unwrap();
                    let others = (0..nodes).filter(|&node| node != first).map(sum);
                    let ratio = sum(first) / others.fold(0.0, f64::max);
                    ratio >= crate::balance::GATE && Lead::of(&parts, &[first]).is_clear()
                });
                let named = named.count();
                assert!(
                    named <= 48,
                    "{nodes} processes, {count} parts, spread {spread}: {named} of 400"
                );
            }
        }
    }
}
