//! Work of the rounds of an exchange.

use std::collections::BTreeMap;

use crate::quantile;
use crate::replay::Reading;
use crate::run::Node;
use crate::schedule::{Round, Schedule, Step};

/// Share of the rounds that are quiet.
pub(super) const QUIET: f64 = 0.1;

/// Work of the rounds of each process, s, sorted by size.
pub(super) type Rounds = BTreeMap<Node, Vec<f64>>;

/// The rounds of a schedule by its steps. A round has one send to each partner. Processes need not be
/// in the same round at the same time.
pub(super) struct ByStep {
    /// Number of the round of each step, at its process.
    pub(super) number: Vec<usize>,
    /// Work of the rounds of each process, s.
    pub(super) work_s: BTreeMap<Node, Vec<f64>>,
}

impl ByStep {
    pub(super) fn of(schedule: &Schedule, reading: Reading) -> ByStep {
        let mut rounds: BTreeMap<Node, (Round, Vec<f64>)> = BTreeMap::new();
        let number = |step: &Step| {
            let to = schedule.messages[step.message].dst;
            let (round, works) = rounds.entry(step.process).or_default();
            let (least, most) = schedule.work_ns(step);
            let work = match reading {
                Reading::Waiting => least,
                Reading::Working => most,
            };
            let begins = round.begins_with(to);
            match works.last_mut() {
                Some(sum) if !begins => *sum += work as f64 / 1e9,
                _ => works.push(work as f64 / 1e9),
            }
            works.len() - 1
        };
        let number = schedule.steps.iter().map(number).collect();
        let works = rounds.into_iter();
        ByStep {
            number,
            work_s: works.map(|(node, (_, works))| (node, works)).collect(),
        }
    }

    /// The rounds of each process, sorted by size.
    pub(super) fn sorted(&self) -> Rounds {
        let works = self.work_s.iter();
        works
            .map(|(node, works)| (*node, quantile::sorted(works.iter().copied())))
            .collect()
    }
}

/// Work of the rounds of a schedule, in the reading with the most work.
pub(super) fn rounds(schedule: &Schedule) -> Rounds {
    ByStep::of(schedule, Reading::Working).sorted()
}

/// Mean work of a round over that of the round at a quantile, for all processes together.
fn mean_above(rounds: &Rounds, q: f64) -> f64 {
    let (mut mean, mut at) = (0.0, 0.0);
    for works in rounds.values() {
        mean += quantile::mean(works).unwrap_or(0.0);
        at += quantile::quantile(works, q).unwrap_or(0.0);
    }
    if at > 0.0 { mean / at } else { 1.0 }
}

/// Factor of the mean work of a round over that of the quietest tenth, for all processes together. On
/// shared CPUs a round waits for one now and then.
pub(super) fn noise(rounds: &Rounds) -> f64 {
    mean_above(rounds, QUIET)
}

/// Factor of the mean round over the middle one. Rounds that are delayed now and then make it larger.
pub(super) fn delay_factor(rounds: &Rounds) -> f64 {
    mean_above(rounds, 0.5).max(1.0)
}
