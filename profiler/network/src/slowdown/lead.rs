//! Distinguishes rounds that are longer because of work from rounds that are longer because of waits,
//! which happen to all processes now and then.

use super::rounds::{QUIET, Rounds};
use crate::balance::GATE;
use crate::quantile;
use crate::run::Node;

/// Share of the rounds that counts as nearly all.
const NEARLY_ALL: f64 = 0.95;
/// Least factor of the rounds of a loaded process over those of the others.
const LEAST: f64 = (1.0 + GATE) / 2.0;

/// Lead of the rounds of some processes over those of all others.
pub(crate) struct Lead {
    /// Least factor of their quietest tenth over the middle rounds of the others.
    quiet: f64,
    /// Least factor of their middle rounds over nearly all rounds of the others.
    usual: f64,
}

impl Lead {
    /// The lead of the rounds of `ahead`. Each list must be in the order of size.
    pub(crate) fn of(
        ahead: impl Iterator<Item = Vec<f64>>,
        others: impl Iterator<Item = Vec<f64>>,
    ) -> Lead {
        let at = |rounds: &[f64], q: f64| quantile::quantile(rounds, q).unwrap_or(0.0);
        let others = others.fold((0.0, 0.0), |(usual, most): (f64, f64), rounds| {
            (
                usual.max(at(&rounds, 0.5)),
                most.max(at(&rounds, NEARLY_ALL)),
            )
        });
        ahead.fold(
            Lead {
                quiet: f64::INFINITY,
                usual: f64::INFINITY,
            },
            |lead, rounds| Lead {
                quiet: lead.quiet.min(at(&rounds, QUIET) / others.0),
                usual: lead.usual.min(at(&rounds, 0.5) / others.1),
            },
        )
    }

    /// True if nearly all of their rounds are longer than usual ones of the others. Rounds that are
    /// longer only now and then have waits.
    pub(super) fn is_steady(&self) -> bool {
        self.quiet >= LEAST
    }

    /// True if also their usual rounds are longer than nearly all of the others. If the others' rounds
    /// are as long now and then, as on shared CPUs, the processes may only wait more often.
    pub(crate) fn is_clear(&self) -> bool {
        self.is_steady() && self.usual >= LEAST
    }
}

/// Lead of the rounds of these processes over those of the others with known work.
pub(super) fn lead(rounds: &Rounds, loaded: &[Node], hidden: &[Node]) -> Lead {
    let of = |is_among: bool| {
        let shown = rounds.iter().filter(|(node, _)| !hidden.contains(node));
        let shown = shown.filter(move |(node, _)| loaded.contains(node) == is_among);
        shown.map(|(_, works)| works.clone())
    };
    Lead::of(of(true), of(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_others_reach_now_and_then_are_no_load() {
        let rounds = |long: usize, of: f64| {
            let works = (0..100).map(|i| if i < long { of } else { 1.0 });
            quantile::sorted(works)
        };
        let lead = |ahead, other| Lead::of([ahead].into_iter(), [other].into_iter());
        let loaded = rounds(100, 1.3);
        assert!(lead(loaded.clone(), rounds(0, 1.0)).is_clear());
        assert!(lead(loaded.clone(), rounds(4, 2.0)).is_clear());
        // The other process waits for a CPU as well, but less often.
        let waiting = lead(loaded, rounds(10, 2.0));
        assert!(waiting.is_steady() && !waiting.is_clear());
        assert!(!lead(rounds(80, 2.0), rounds(0, 1.0)).is_steady());
    }
}
