//! Selection of the moves that are worth their cost.

use super::{Placement, Problem, best, greedy, is_better};

/// A placement is advised if it leaves more than the present one at the narrowest links of all paths,
/// by this share. Measured demands and capacities are no more exact than that.
pub const MARGIN: f64 = 0.05;

impl Placement {
    /// True if a move from `now` to this placement is worthwhile: it has a path for more of the
    /// demands, or for as many and leaves [`MARGIN`] more.
    pub fn gains_over(&self, now: &Placement) -> bool {
        match self.unmapped.len().cmp(&now.unmapped.len()) {
            std::cmp::Ordering::Equal => self.objective > now.objective * (1.0 + MARGIN),
            order => order.is_lt(),
        }
    }
}

/// The best placement without the moves that gain nothing, or the present one if none gains over it.
/// The advised placement is within [`MARGIN`] of the best. `None` if there are more processes than
/// hosts.
pub fn advise(problem: &Problem, now: &Placement) -> Option<Placement> {
    let best = best(problem)?;
    if !best.gains_over(now) {
        return Some(now.clone());
    }
    let is_as_good = |tried: &Placement| {
        tried.unmapped.len() == best.unmapped.len()
            && tried.objective >= best.objective * (1.0 - MARGIN)
            && tried.gains_over(now)
    };
    let mut advised = best.clone();
    // Each step leaves one more process where it is, so that the loop ends.
    loop {
        let moved = (0..advised.hosts.len()).filter(|&at| advised.hosts[at] != now.hosts[at]);
        let tried = moved.map(|process| problem.place(returned(&advised.hosts, now, process)));
        let fewer = tried
            .filter(is_as_good)
            .reduce(|a, b| if is_preferred(&b, &a, now) { b } else { a });
        match fewer {
            Some(fewer) => advised = fewer,
            None => return Some(advised),
        }
    }
}

/// Compares placements: fewer moves first, then the objective.
fn is_preferred(a: &Placement, b: &Placement, now: &Placement) -> bool {
    let moves = |placement: &Placement| greedy::migrations(&now.hosts, &placement.hosts);
    let order = moves(a).cmp(&moves(b));
    order
        .then_with(|| is_better(b, a).cmp(&is_better(a, b)))
        .is_lt()
}

/// A mapping with one process back on its present host. A process on that host takes the other's place.
fn returned(hosts: &[usize], now: &Placement, process: usize) -> Vec<usize> {
    let mut hosts = hosts.to_vec();
    let home = now.hosts[process];
    match hosts.iter().position(|&host| host == home) {
        Some(other) => hosts.swap(process, other),
        None => hosts[process] = home,
    }
    hosts
}
