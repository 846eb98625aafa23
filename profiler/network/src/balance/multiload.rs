//! Several loaded processes (4.5.1): balanced one after the other.

use super::{End, Range, Roles, argmax, parts, sums};
use crate::matrix::Matrix;

/// One process that was balanced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// The process.
    pub process: usize,
    /// Gain of balancing the process after those of the rounds before, s.
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

/// Balances the process with the largest delay, relabels, and repeats this until a process has less
/// than `stop` of the load so far (`t_p` of the interface; 0.1). Each end has a copy of its own. A
/// process whose delays compare with no other's is left out. All rounds together gain at most `most_s`,
/// the length of the run.
pub fn multiload(table: &Matrix<f64>, roles: &Roles, stop: f64, most_s: f64) -> Rounds {
    let run = |end: End| {
        let mut table = table.clone();
        let mut rounds: Vec<Round> = Vec::new();
        // Of processes that work at the same time all but the last gain nothing, so that the load
        // decides on the end.
        let (mut total, mut load) = (0.0, 0.0);
        let mut is_done = vec![false; table.size()];
        // The last process left has no other to be balanced against.
        while rounds.len() + 1 < table.size() {
            let global = sums(&table);
            let open: Vec<f64> = global
                .iter()
                .zip(&is_done)
                .map(|(delay, done)| if *done { f64::NEG_INFINITY } else { *delay })
                .collect();
            let Some(process) = argmax(&open).filter(|&at| !is_done[at]) else {
                break;
            };
            is_done[process] = true;
            let parts = parts(&table, roles, process, end);
            if parts.is_empty() {
                continue;
            }
            let excess: f64 = parts.iter().map(|part| part.excess_s).sum();
            let gain: f64 = parts.iter().map(|part| part.gain_s).sum();
            let seconds = gain.min(most_s - total);
            let counts = !(load > 0.0 && excess < stop * load);
            rounds.push(Round {
                process,
                seconds,
                counts,
            });
            if !counts {
                break;
            }
            total += seconds;
            load += excess;
            for part in parts {
                let own = (process, part.partner);
                let back = (part.partner, process);
                let is_both = roles.are_alike(process, part.partner);
                for (row, column) in [Some(own), is_both.then_some(back)].into_iter().flatten() {
                    let cell = table.at_mut(row, column);
                    *cell = cell.min(part.reference_s);
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
