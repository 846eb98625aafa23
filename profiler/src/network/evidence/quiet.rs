//! Work in the quietest iterations.
//!
//! A processor that is taken away makes single steps long, of one process now and of another then;
//! what a process has more to do it has in every iteration. So the quietest tenth of each kind of step
//! (those with one receiver) tells processes apart where the mean is drowned by scheduling.

use super::super::balance::{GATE, Range};
use super::super::run::Node;
use super::bootstrap;

/// Quantile of the work of an iteration.
const QUIET: f64 = 0.1;
/// More columns are not compared: each is drawn again hundreds of times.
const MOST_COLUMNS: usize = 300;
/// Several processes lead by more than one does before they are called loaded.
const GATE_SEVERAL: f64 = 1.3;

/// Who works more than the others in quiet iterations.
pub(super) struct Quiet {
    /// Those ahead, the most loaded first; the first one where none is.
    pub(super) ahead: Vec<Node>,
    /// The least of them over the next.
    pub(super) ratio: f64,
    /// 95 % of that.
    pub(super) range: Range,
    /// Whether that is enough to call them loaded.
    pub(super) is_open: bool,
    /// Mean work over quiet work, all processes together.
    pub(super) noise: f64,
}

/// Work by iteration and kind of step, s.
pub(super) struct Steps {
    /// The process of each column.
    pub(super) owner: Vec<usize>,
    /// A row per iteration.
    pub(super) parts: Vec<Vec<f64>>,
}

/// Compares the quiet work of processes; `None` with fewer than two, or too many.
pub(super) fn compare(steps: &Steps, nodes: usize) -> Option<Quiet> {
    if steps.owner.len() > MOST_COLUMNS || steps.parts.is_empty() {
        return None;
    }
    let drawn: Vec<&Vec<f64>> = steps.parts.iter().collect();
    let work = quiet(&drawn, &steps.owner, nodes);
    let mut order: Vec<usize> = (0..nodes).filter(|&p| work[p] > 0.0).collect();
    order.sort_by(|&a, &b| work[b].total_cmp(&work[a]));
    if order.len() < 2 {
        return None;
    }
    let ratio = |k: usize| work[order[k - 1]] / work[order[k]];
    let several = (2..=order.len() / 2).filter(|&k| ratio(k) >= GATE_SEVERAL);
    let best = several.max_by(|&a, &b| ratio(a).total_cmp(&ratio(b)));
    let k = best.filter(|&k| ratio(k) > ratio(1)).unwrap_or(1);
    let range = bootstrap::range(&steps.parts, |drawn| {
        let work = quiet(drawn, &steps.owner, nodes);
        let least = order[..k].iter().map(|&p| work[p]).reduce(f64::min);
        let next = order[k..].iter().map(|&p| work[p]).reduce(f64::max);
        let ratio = least.unwrap_or(0.0) / next.unwrap_or(0.0);
        (ratio, ratio)
    });
    let whole: f64 = steps.parts.iter().flatten().sum();
    Some(Quiet {
        ahead: order[..k].iter().map(|&p| p as Node).collect(),
        ratio: ratio(k),
        // All of the range, for the quietest are few.
        is_open: range.low >= GATE,
        range,
        noise: whole / steps.parts.len() as f64 / work.iter().sum::<f64>(),
    })
}

/// The quiet work of each process in one iteration, s: the sum over its kinds of steps.
fn quiet(parts: &[&Vec<f64>], owner: &[usize], nodes: usize) -> Vec<f64> {
    let mut work = vec![0.0; nodes];
    let at = (parts.len().saturating_sub(1) as f64 * QUIET) as usize;
    for (column, &process) in owner.iter().enumerate() {
        let mut values: Vec<f64> = parts.iter().map(|part| part[column]).collect();
        work[process] += *values.select_nth_unstable_by(at, f64::total_cmp).1;
    }
    work
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::testing::Noise;

    /// Work of 1, more at process 2, and now and then a processor that is taken away for long.
    fn steps(seed: u64, loaded: f64) -> Steps {
        let mut noise = Noise(seed);
        let mut work = |column: usize| {
            let own = match column {
                4 => loaded,
                even if even % 2 == 0 => 1.0,
                // A second send soon after the first.
                _ => 0.01,
            };
            let away = if noise.uniform() < 0.6 {
                4.0 * noise.uniform()
            } else {
                0.0
            };
            own * (1.0 + 0.02 * noise.uniform()) + away
        };
        let parts = (0..150).map(|_| (0..8).map(&mut work).collect()).collect();
        let owner = (0..8).map(|column| column / 2).collect();
        Steps { owner, parts }
    }

    #[test]
    fn what_scheduling_drowns_shows_in_quiet_iterations() {
        for seed in 1..20 {
            let found = compare(&steps(seed * 77, 1.6), 4).unwrap();
            assert!(found.is_open && found.ahead == [2], "{}", found.ratio);
            assert!(found.noise > 2.0, "{}", found.noise);
            let none = compare(&steps(seed * 77, 1.0), 4).unwrap();
            assert!(!none.is_open, "{}", none.ratio);
        }
    }

    #[test]
    fn one_process_alone_is_not_compared() {
        let steps = Steps {
            owner: vec![0, 1],
            parts: vec![vec![1.0, 0.0]; 20],
        };
        assert!(compare(&steps, 2).is_none());
    }
}
