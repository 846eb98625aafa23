//! What rounds of an exchange hold.

use std::collections::BTreeMap;

use super::super::quantile;
use super::super::run::Node;
use super::super::schedule::{Round, Schedule};

/// Share of the rounds that are quiet.
pub(super) const QUIET: f64 = 0.1;

/// Work of the rounds of each process, s, in the order of size.
pub(super) type Rounds = BTreeMap<Node, Vec<f64>>;

/// What the rounds of a schedule hold. A round is once to each partner (processes are not in the same at the same time).
pub(super) fn rounds(schedule: &Schedule) -> Rounds {
    let mut rounds: BTreeMap<Node, (Round, Vec<f64>)> = BTreeMap::new();
    for step in &schedule.steps {
        let to = schedule.messages[step.message].dst;
        let (round, works) = rounds.entry(step.process).or_default();
        let (_, most) = schedule.work_ns(step);
        let begins = round.begins_with(to);
        match works.last_mut() {
            Some(work) if !begins => *work += most as f64 / 1e9,
            _ => works.push(most as f64 / 1e9),
        }
    }
    let works = rounds.into_iter();
    works
        .map(|(node, (_, works))| (node, quantile::sorted(works)))
        .collect()
}

/// Mean work of a round over that of one at a quantile, all processes together.
fn mean_above(rounds: &Rounds, q: f64) -> f64 {
    let (mut mean, mut at) = (0.0, 0.0);
    for works in rounds.values() {
        mean += quantile::mean(works).unwrap_or(0.0);
        at += quantile::quantile(works, q).unwrap_or(0.0);
    }
    if at > 0.0 { mean / at } else { 1.0 }
}

/// How many times as much as in the quietest tenth of its rounds a process works on average, all processes
/// together: where processors are shared, a round waits for one now and then.
pub(super) fn noise(rounds: &Rounds) -> f64 {
    mean_above(rounds, QUIET)
}

/// How many times as long as the middle ones rounds take on average: those that were held up now and then are longer.
pub(super) fn held_up(rounds: &Rounds) -> f64 {
    mean_above(rounds, 0.5).max(1.0)
}
