//! Topology over time: smoothing, damping, and detection of changes (2.5, A.2.2).

use std::collections::{BTreeSet, VecDeque};

use super::matrix::Matrix;
use super::topology;

/// Parameters of the smoother.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Smoothing {
    /// Smoothing interval, ns: updates are summed over it.
    pub window_ns: i64,
    /// Relative change that makes a new topology.
    pub detection: f64,
    /// Pruning threshold of the edges.
    pub b_min: f64,
    /// Time after a change in which no other one is declared, ns (the best measured value was about 1
    /// s).
    pub settle_ns: i64,
}

impl Default for Smoothing {
    fn default() -> Self {
        Smoothing {
            window_ns: 60_000_000_000,
            detection: 0.2,
            b_min: 0.1,
            settle_ns: 1_000_000_000,
        }
    }
}

/// Number of matrices that are remembered per window.
const HISTORY: i64 = 64;

/// The smoothed matrix at an instant, rows normalised, and its edges.
#[derive(Debug)]
struct Smoothed {
    t_ns: i64,
    matrix: Matrix<f64>,
    edges: BTreeSet<(usize, usize)>,
}

/// A topology declared at an instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Time of the declaration, ns.
    pub t_ns: i64,
    /// Directed edges.
    pub edges: BTreeSet<(usize, usize)>,
    /// Pattern of the edges.
    pub form: String,
    /// Change of the smoothed matrix: L1 of the difference over L1, rows normalised.
    pub distance: f64,
}

/// Sums local updates over a sliding window and declares changes.
#[derive(Debug)]
pub struct Smoother {
    settings: Smoothing,
    updates: VecDeque<(i64, Matrix<f64>)>,
    sum: Matrix<f64>,
    /// The matrices of the last half window.
    history: VecDeque<Smoothed>,
    reference: Option<Matrix<f64>>,
    edges: BTreeSet<(usize, usize)>,
    began_ns: Option<i64>,
    changed_ns: i64,
}

impl Smoother {
    /// A smoother for `nodes` processes.
    pub fn new(nodes: usize, settings: Smoothing) -> Self {
        Smoother {
            settings,
            updates: VecDeque::new(),
            sum: Matrix::new(nodes),
            history: VecDeque::new(),
            reference: None,
            edges: BTreeSet::new(),
            began_ns: None,
            changed_ns: i64::MIN / 2,
        }
    }

    /// Adds the bytes since the last update. A topology is declared if the smoothed matrix is at rest
    /// (moved by less than the threshold in half a window) and differs from the one before by more than
    /// the threshold, or in its edges. While one topology leaves the window and another enters it,
    /// nothing is at rest. Topologies that alternate faster than the window can follow rest as their
    /// union.
    pub fn update(&mut self, t_ns: i64, bytes: Matrix<f64>) -> Option<Change> {
        let began = *self.began_ns.get_or_insert(t_ns);
        let window = self.settings.window_ns;
        for (row, column, value) in bytes.off_diagonal() {
            *self.sum.at_mut(row, column) += value;
        }
        self.updates.push_back((t_ns, bytes));
        while self
            .updates
            .front()
            .is_some_and(|(old, _)| *old <= t_ns - window)
        {
            let Some((_, bytes)) = self.updates.pop_front() else {
                break;
            };
            for (row, column, value) in bytes.off_diagonal() {
                let cell = self.sum.at_mut(row, column);
                *cell = (*cell - value).max(0.0);
            }
        }
        let now = normalised(&self.sum);
        let edges = self.current();
        let is_due = |last: &Smoothed| t_ns - last.t_ns >= window / HISTORY;
        if self.history.back().is_none_or(is_due) {
            self.history.push_back(Smoothed {
                t_ns,
                matrix: now.clone(),
                edges: edges.clone(),
            });
        }
        while self
            .history
            .get(1)
            .is_some_and(|old| old.t_ns <= t_ns - window / 2)
        {
            self.history.pop_front();
        }
        let before = self.history.front()?;
        let is_full = t_ns - began >= window && before.t_ns <= t_ns - window / 2;
        let rests = is_full
            && before.edges == edges
            && distance(&now, &before.matrix) <= self.settings.detection;
        if !rests || t_ns - self.changed_ns < self.settings.settle_ns {
            return None;
        }
        let moved = self
            .reference
            .as_ref()
            .map_or(f64::INFINITY, |old| distance(&now, old));
        if edges.is_empty() || (moved <= self.settings.detection && edges == self.edges) {
            return None;
        }
        self.reference = Some(now);
        self.edges.clone_from(&edges);
        self.changed_ns = t_ns;
        Some(Change {
            t_ns,
            edges,
            form: topology::infer(&self.sum, self.settings.b_min).form(),
            distance: moved,
        })
    }

    /// The present edges of the smoothed matrix.
    pub fn current(&self) -> BTreeSet<(usize, usize)> {
        let edges = topology::edges(&self.sum, self.settings.b_min);
        edges.iter().map(|edge| (edge.src, edge.dst)).collect()
    }
}

fn normalised(matrix: &Matrix<f64>) -> Matrix<f64> {
    let mut result = matrix.clone();
    for row in 0..matrix.size() {
        let sum: f64 = (0..matrix.size())
            .map(|column| *matrix.at(row, column))
            .sum();
        for column in 0..matrix.size() {
            let cell = result.at_mut(row, column);
            *cell = if sum > 0.0 { *cell / sum } else { 0.0 };
        }
    }
    result
}

fn distance(a: &Matrix<f64>, b: &Matrix<f64>) -> f64 {
    let mut difference = 0.0;
    let mut whole = 0.0;
    for (row, column, value) in a.off_diagonal() {
        difference += (value - b.at(row, column)).abs();
        whole += b.at(row, column);
    }
    if whole > 0.0 {
        difference / whole
    } else {
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    /// Two topologies of four processes, a ring and a star, that alternate every `period`.
    fn changes(period_ns: i64, window_ns: i64, detection: f64) -> (usize, Smoother) {
        let settings = Smoothing {
            window_ns,
            detection,
            ..Smoothing::default()
        };
        let mut smoother = Smoother::new(4, settings);
        let mut changes = 0;
        for step in 0..20 * 400 {
            let t_ns = step * S / 20;
            let mut bytes = Matrix::new(4);
            let pairs: &[(usize, usize)] = if (t_ns / period_ns) % 2 == 0 {
                &[(0, 1), (1, 2), (2, 3), (3, 0)]
            } else {
                &[(0, 2), (2, 0), (1, 3), (3, 1)]
            };
            for &(a, b) in pairs {
                *bytes.at_mut(a, b) = 1000.0;
            }
            changes += usize::from(smoother.update(t_ns, bytes).is_some());
        }
        (changes, smoother)
    }

    #[test]
    fn slow_swaps_are_each_reported_once_and_fast_ones_are_one_union() {
        for detection in [0.05, 0.1, 0.2, 0.4] {
            // 400 s with a change every 40 s, smoothed over 4 s: the first topology and 9 changes.
            let (slow, _) = changes(40 * S, 4 * S, detection);
            assert_eq!(slow, 10, "detection {detection}");
            let (fast, smoother) = changes(S / 2, 60 * S, detection);
            assert_eq!(fast, 1, "detection {detection}");
            assert_eq!(smoother.current().len(), 8);
        }
    }
}
