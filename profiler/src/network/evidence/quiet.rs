//! Work in the quietest iterations.
//!
//! A processor that is taken away makes single iterations long, of one process now and of another
//! then; what a process has more to do it has in every iteration. So the tenth of the iterations with
//! the least work tells processes apart where the mean is drowned by scheduling. Where processes take
//! turns, the work of one that waits shows in no iteration: its quiet work is nothing, and it is not
//! compared.

use super::super::balance::{GATE, Range};
use super::super::run::Node;
use super::bootstrap;

/// Quantile of the work of an iteration.
const QUIET: f64 = 0.1;
/// A process whose quiet work is less than this share of the largest hides (nearly) all of it.
const VISIBLE: f64 = 0.4;
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
    /// Whether the work of all processes shows.
    pub(super) are_all_visible: bool,
}

/// Compares the work of iterations (by iteration and process, s); `None` when fewer than two
/// processes show theirs.
pub(super) fn compare(parts: &[Vec<f64>]) -> Option<Quiet> {
    let nodes = parts.first()?.len();
    let work = quiet(&parts.iter().collect::<Vec<_>>(), nodes);
    let most = work.iter().copied().fold(0.0, f64::max);
    let mut order: Vec<usize> = (0..nodes).filter(|&p| work[p] > VISIBLE * most).collect();
    order.sort_by(|&a, &b| work[b].total_cmp(&work[a]));
    if order.len() < 2 {
        return None;
    }
    let ratio = |k: usize| work[order[k - 1]] / work[order[k]];
    let several = (2..=order.len() / 2).filter(|&k| ratio(k) >= GATE_SEVERAL);
    let best = several.max_by(|&a, &b| ratio(a).total_cmp(&ratio(b)));
    let k = best.filter(|&k| ratio(k) > ratio(1)).unwrap_or(1);
    let visible = order.clone();
    let range = bootstrap::range(parts, |drawn| {
        let work = quiet(drawn, nodes);
        let least = visible[..k].iter().map(|&p| work[p]).reduce(f64::min);
        let next = visible[k..].iter().map(|&p| work[p]).reduce(f64::max);
        let ratio = least.unwrap_or(0.0) / next.unwrap_or(0.0);
        (ratio, ratio)
    });
    Some(Quiet {
        ahead: order[..k].iter().map(|&p| p as Node).collect(),
        ratio: ratio(k),
        is_open: ratio(k) >= GATE && range.low >= super::LEAST_LEAD,
        range,
        are_all_visible: order.len() == nodes,
    })
}

/// The quiet work of each process, s.
fn quiet(parts: &[&Vec<f64>], nodes: usize) -> Vec<f64> {
    let of = |node: usize| {
        let mut values: Vec<f64> = parts.iter().map(|part| part[node]).collect();
        let at = ((values.len().saturating_sub(1)) as f64 * QUIET) as usize;
        *values.select_nth_unstable_by(at, f64::total_cmp).1
    };
    if parts.is_empty() {
        return vec![0.0; nodes];
    }
    (0..nodes).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::testing::Noise;

    /// Work of 1, 1.5 at process 2, and now and then a processor that is taken away for long.
    fn parts(seed: u64, loaded: f64, hidden: Option<usize>) -> Vec<Vec<f64>> {
        let mut noise = Noise(seed);
        let mut work = |node: usize| {
            let own = if node == 2 { loaded } else { 1.0 };
            let away = if noise.uniform() < 0.6 {
                4.0 * noise.uniform()
            } else {
                0.0
            };
            match hidden {
                Some(node_hidden) if node == node_hidden => 0.02,
                _ => own * (1.0 + 0.02 * noise.uniform()) + away,
            }
        };
        (0..150).map(|_| (0..4).map(&mut work).collect()).collect()
    }

    #[test]
    fn what_scheduling_drowns_shows_in_quiet_iterations() {
        for seed in 1..20 {
            let found = compare(&parts(seed * 77, 1.5, None)).unwrap();
            assert!(found.is_open && found.ahead == [2], "{}", found.ratio);
            assert!(found.range.low <= 1.5 && 1.5 <= found.range.high * 1.05);
            let none = compare(&parts(seed * 77, 1.0, None)).unwrap();
            assert!(!none.is_open && none.are_all_visible, "{}", none.ratio);
        }
    }

    #[test]
    fn a_process_that_hides_its_work_is_not_compared() {
        let found = compare(&parts(5, 1.5, Some(1))).unwrap();
        assert!(found.is_open && !found.are_all_visible && found.ahead == [2]);
        let only: Vec<Vec<f64>> = vec![vec![1.0, 0.0, 0.01]; 20];
        assert!(compare(&only).is_none());
    }
}
