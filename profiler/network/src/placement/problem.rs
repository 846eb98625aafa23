//! Demands, capacities, and a mapping with its paths.

use crate::matrix::Matrix;

/// Demands and capacities, bytes/s or any one unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Rate from each process to each other one.
    pub demands: Matrix<f64>,
    /// Rate that each host can send to each other one; 0 if there is no link.
    pub capacities: Matrix<f64>,
    /// Latency between hosts, s. Used only with a weight.
    pub latencies: Option<Matrix<f64>>,
    /// Weight `c` of the term `c / latency(path)` (B.3). 0 for equation B.1.
    pub latency_weight: f64,
    /// True if a path may go through other hosts.
    pub may_relay: bool,
}

/// A mapping with the paths of its demands.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Host of each process.
    pub hosts: Vec<usize>,
    /// Hosts along the path of each demand, as (sender, receiver, path).
    pub paths: Vec<(usize, usize, Vec<usize>)>,
    /// Sum over the paths of the capacity left at their narrowest link (equation B.1).
    pub objective: f64,
    /// Demands without a path.
    pub unmapped: Vec<(usize, usize)>,
}

impl Problem {
    /// Demands by size, the largest first; ties by process.
    pub(crate) fn sorted_demands(&self) -> Vec<(usize, usize, f64)> {
        let mut demands: Vec<_> = self
            .demands
            .off_diagonal()
            .filter(|(.., demand)| **demand > 0.0)
            .map(|(i, j, demand)| (i, j, *demand))
            .collect();
        demands.sort_by(|a, b| b.2.total_cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
        demands
    }

    /// The objective of equation B.1 (B.3 with a weight); `None` if a link has more traffic than
    /// capacity.
    pub fn objective(&self, _hosts: &[usize], paths: &[(usize, usize, Vec<usize>)]) -> Option<f64> {
        let mut left = self.capacities.clone();
        for (i, j, path) in paths {
            for step in path.windows(2) {
                *left.at_mut(step[0], step[1]) -= self.demands.at(*i, *j);
            }
        }
        if left.off_diagonal().any(|(.., left)| *left < 0.0) {
            return None;
        }
        let value = |path: &[usize]| -> f64 {
            let narrowest = path.windows(2).map(|step| *left.at(step[0], step[1]));
            let bottleneck = narrowest.reduce(f64::min).unwrap_or(0.0);
            let latency = self.latencies.as_ref().map(|latencies| {
                path.windows(2)
                    .map(|step| *latencies.at(step[0], step[1]))
                    .sum::<f64>()
            });
            match latency {
                Some(latency) if self.latency_weight != 0.0 && latency > 0.0 => {
                    bottleneck + self.latency_weight / latency
                }
                _ => bottleneck,
            }
        };
        Some(paths.iter().map(|(.., path)| value(path)).sum())
    }
}

/// True if `a` is the better placement: more demands mapped, then the larger objective.
pub(crate) fn is_better(a: &Placement, b: &Placement) -> bool {
    match a.unmapped.len().cmp(&b.unmapped.len()) {
        std::cmp::Ordering::Equal => a.objective > b.objective,
        order => order.is_lt(),
    }
}
