//! Paths through the hosts.

use super::problem::{Placement, Problem};
use crate::matrix::Matrix;

/// The path with the widest narrowest link (Dijkstra on max-min), and that width. Of equal paths the
/// first one with the fewest links. `None` if there is no path.
pub fn widest_path(
    capacities: &Matrix<f64>,
    from: usize,
    to: usize,
    may_relay: bool,
) -> Option<(Vec<usize>, f64)> {
    if from == to {
        return Some((vec![from], f64::INFINITY));
    }
    if !may_relay {
        let width = *capacities.at(from, to);
        return (width > 0.0).then(|| (vec![from, to], width));
    }
    let n = capacities.size();
    let mut width = vec![0.0; n];
    let mut hops = vec![usize::MAX; n];
    let mut before = vec![usize::MAX; n];
    let mut is_done = vec![false; n];
    width[from] = f64::INFINITY;
    hops[from] = 0;
    loop {
        let open = (0..n).filter(|&at| !is_done[at] && width[at] > 0.0);
        let at = open.reduce(|a, b| {
            let is_wider = width[b] > width[a] || (width[b] == width[a] && hops[b] < hops[a]);
            if is_wider { b } else { a }
        })?;
        if at == to {
            break;
        }
        is_done[at] = true;
        for next in (0..n).filter(|&next| next != at && !is_done[next]) {
            let through = f64::min(width[at], *capacities.at(at, next));
            let is_shorter = through == width[next] && hops[at] + 1 < hops[next];
            if through > width[next] || (is_shorter && through > 0.0) {
                width[next] = through;
                hops[next] = hops[at] + 1;
                before[next] = at;
            }
        }
    }
    let path = back(&before, from, to);
    Some((path, width[to]))
}

/// The path to a node, given the node before each.
fn back(before: &[usize], from: usize, to: usize) -> Vec<usize> {
    let mut path = vec![to];
    let mut at = to;
    while at != from {
        at = before[at];
        path.push(at);
    }
    path.reverse();
    path
}

/// A demand with its path.
type Routed = Vec<(usize, usize, Vec<usize>)>;

/// Routes demands by size, each along the widest path in the capacity left by those before, without
/// backtracking (B.4.2). The second list has the demands for which no path is wide enough.
pub fn route(problem: &Problem, hosts: &[usize]) -> (Routed, Vec<(usize, usize)>) {
    let mut left = problem.capacities.clone();
    let mut paths = Vec::new();
    let mut unmapped = Vec::new();
    for (i, j, demand) in problem.sorted_demands() {
        match widest_path(&left, hosts[i], hosts[j], problem.may_relay) {
            Some((path, width)) if width >= demand => {
                for step in path.windows(2) {
                    *left.at_mut(step[0], step[1]) -= demand;
                }
                paths.push((i, j, path));
            }
            _ => unmapped.push((i, j)),
        }
    }
    (paths, unmapped)
}

/// Shortest paths of all pairs, where the cost of a link is the traffic sent over it before (A.3.3).
/// Demands come in the given order.
pub fn least_loaded_route(
    links: &Matrix<bool>,
    demands: &[(usize, usize, f64)],
) -> Vec<Option<Vec<usize>>> {
    let n = links.size();
    let mut load: Matrix<f64> = Matrix::new(n);
    demands
        .iter()
        .map(|&(from, to, demand)| {
            let mut cost = vec![(f64::INFINITY, usize::MAX); n];
            let mut before = vec![usize::MAX; n];
            let mut is_done = vec![false; n];
            cost[from] = (0.0, 0);
            loop {
                let open = (0..n).filter(|&at| !is_done[at] && cost[at].0.is_finite());
                let at = open.min_by(|&a, &b| {
                    cost[a]
                        .0
                        .total_cmp(&cost[b].0)
                        .then(cost[a].1.cmp(&cost[b].1))
                })?;
                if at == to {
                    break;
                }
                is_done[at] = true;
                for next in (0..n).filter(|&next| !is_done[next] && *links.at(at, next)) {
                    let through = (cost[at].0 + load.at(at, next), cost[at].1 + 1);
                    if through < cost[next] {
                        cost[next] = through;
                        before[next] = at;
                    }
                }
            }
            let path = back(&before, from, to);
            for step in path.windows(2) {
                *load.at_mut(step[0], step[1]) += demand;
            }
            Some(path)
        })
        .collect()
}

/// Limit on the links of an overlay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A number of links.
    Count(usize),
    /// Enough links for this share of all traffic, 0 to 1.
    Share(f64),
    /// Links with at least this traffic.
    Intensity(f64),
}

/// The links to add to the star (A.3.1): the demands between hosts under a mapping, the largest first.
pub fn links(demands: &Matrix<f64>, hosts: &[usize], limit: Limit) -> Vec<(usize, usize, f64)> {
    let size = hosts.iter().map(|host| host + 1).max().unwrap_or(0);
    let mut between: Matrix<f64> = Matrix::new(size);
    for (i, j, demand) in demands.off_diagonal() {
        if hosts[i] != hosts[j] {
            *between.at_mut(hosts[i], hosts[j]) += demand;
        }
    }
    let mut links: Vec<_> = between
        .off_diagonal()
        .filter(|(.., demand)| **demand > 0.0)
        .map(|(i, j, demand)| (i, j, *demand))
        .collect();
    links.sort_by(|a, b| b.2.total_cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
    let total: f64 = links.iter().map(|link| link.2).sum();
    let kept = match limit {
        Limit::Count(count) => count,
        Limit::Intensity(least) => links.iter().take_while(|link| link.2 >= least).count(),
        Limit::Share(share) => {
            let mut sum = 0.0;
            let is_needed = |link: &&(usize, usize, f64)| {
                let is_needed = sum < share * total;
                sum += link.2;
                is_needed
            };
            links.iter().take_while(is_needed).count()
        }
    };
    links.truncate(kept);
    links
}

impl Problem {
    /// A mapping with paths found greedily (B.4.2).
    pub fn place(&self, hosts: Vec<usize>) -> Placement {
        let (paths, unmapped) = route(self, &hosts);
        let objective = self.objective(&hosts, &paths).unwrap_or(f64::NEG_INFINITY);
        Placement {
            hosts,
            paths,
            objective,
            unmapped,
        }
    }
}
