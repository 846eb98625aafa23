//! Distinction of rounds that are longer because of work from rounds that are longer because of waits that come to all now and then.

use super::rounds::{QUIET, Rounds};
use crate::balance::GATE;
use crate::quantile;
use crate::run::Node;

/// Share of the rounds that are nearly all.
const NEARLY_ALL: f64 = 0.95;
/// Least factor of rounds of a loaded process over those of the others.
const LEAST: f64 = (1.0 + GATE) / 2.0;

/// Lead of rounds of processes over those of all others.
pub(crate) struct Lead {
    /// Their quietest tenth over the others' middle ones, the least of them.
    quiet: f64,
    /// Their middle ones over nearly all of the others.
    usual: f64,
}

impl Lead {
    /// Of these rounds, each in the order of size.
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

    /// True if nearly all of their rounds are longer than usual ones of the others: what is longer now and then waits.
    pub(super) fn is_steady(&self) -> bool {
        self.quiet >= LEAST
    }

    /// True if their usual rounds are longer than nearly all of the others as well. Where these take as long now and then,
    /// as where CPUs are shared, some may only wait more often than others.
    pub(crate) fn is_clear(&self) -> bool {
        self.is_steady() && self.usual >= LEAST
    }
}

/// Lead of the rounds of these processes over those of the others that show their work.
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
        // The other one waits for a CPU as well, if more seldom.
        let waiting = lead(loaded, rounds(10, 2.0));
        assert!(waiting.is_steady() && !waiting.is_clear());
        assert!(!lead(rounds(80, 2.0), rounds(0, 1.0)).is_steady());
    }
}
