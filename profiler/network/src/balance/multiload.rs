//! Several loaded processes (4.5.1): balanced one after the other.

use super::{End, Range, argmax, pair_local_parts, reference, significant, sums};
use crate::matrix::Matrix;

/// One process that was balanced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// The process.
    pub process: usize,
    /// Gain of balancing the process, s.
    pub seconds: f64,
    /// True if the round counts. The round that ends the search is listed but does not count.
    pub counts: bool,
}

/// The rounds of both ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// Sums of the rounds that count.
    pub total: Range,
    /// Rounds of the optimistic end.
    pub optimistic: Vec<Round>,
    /// Rounds of the pessimistic end.
    pub pessimistic: Vec<Round>,
}

/// Balances the process with the largest delay, relabels, and repeats this until a round gains less
/// than `stop` of the sum so far (`t_p` of the interface; 0.1). Each end has a copy of its own.
pub fn multiload(table: &Matrix<f64>, stop: f64) -> Rounds {
    let run = |end: End| {
        let mut table = table.clone();
        let mut rounds: Vec<Round> = Vec::new();
        let mut total = 0.0;
        let mut is_balanced = vec![false; table.size()];
        // The last process left has no other to be balanced against.
        for _ in 1..table.size() {
            let global = sums(&table);
            let open: Vec<f64> = global
                .iter()
                .zip(&is_balanced)
                .map(|(delay, done)| if *done { f64::NEG_INFINITY } else { *delay })
                .collect();
            let Some(process) = argmax(&open) else { break };
            let parts = pair_local_parts(&table, process, end);
            let seconds: f64 = parts.iter().map(|part| part.1).sum();
            let counts = !(total > 0.0 && seconds < stop * total);
            rounds.push(Round {
                process,
                seconds,
                counts,
            });
            if !counts {
                break;
            }
            total += seconds;
            is_balanced[process] = true;
            let references: Vec<(usize, f64)> = significant(&table, process)
                .into_iter()
                .map(|i| (i, reference(&table, i, end)))
                .collect();
            for (i, reference) in references {
                for (row, column) in [(process, i), (i, process)] {
                    let cell = table.at_mut(row, column);
                    *cell = cell.min(reference);
                }
            }
        }
        (total, rounds)
    };
    let (low, optimistic) = run(End::Optimistic);
    let (high, pessimistic) = run(End::Pessimistic);
    Rounds {
        total: Range { low, high },
        optimistic,
        pessimistic,
    }
}
