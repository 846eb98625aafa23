//! Rounds of processes that take turns.

use crate::quantile;

/// Least share of shown rounds for a process that is compared.
pub(super) const SOME: f64 = 0.1;

/// Least number of shown rounds.
const LEAST_ROUNDS: usize = 8;

/// The rounds of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// Work of each round that shows it, s.
    pub shown_s: Vec<f64>,
    /// Number of all rounds.
    pub count: usize,
}

impl Rounds {
    pub(super) fn is_shown(&self, share: f64) -> bool {
        self.shown_s.len() >= LEAST_ROUNDS && self.shown_s.len() as f64 >= share * self.count as f64
    }

    /// Mean work of a round that shows it, s; 0 if too few do.
    pub(super) fn mean_s(&self) -> f64 {
        match self.is_shown(SOME) {
            true => quantile::mean(&self.shown_s).unwrap_or(0.0),
            false => 0.0,
        }
    }
}
