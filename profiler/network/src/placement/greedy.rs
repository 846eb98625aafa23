//! Mappings by sorted lists.

use super::paths::widest_path;
use super::problem::Problem;
use crate::matrix::Matrix;

/// Pairs by weight in both directions, the heaviest first.
fn sorted_pairs(matrix: &Matrix<f64>) -> Vec<(usize, usize, f64)> {
    let n = matrix.size();
    let pairs = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j)));
    let mut pairs: Vec<_> = pairs
        .map(|(i, j)| (i, j, matrix.at(i, j) + matrix.at(j, i)))
        .collect();
    pairs.sort_by(|a, b| b.2.total_cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
    pairs
}

/// GH-A (A.3.2): maps the pair of processes with the most traffic to the pair of hosts with the best
/// throughput. Remaining processes go to the free host nearest to their partner's. `old` is the present
/// mapping, from which processes have to move. `None` if there are too few hosts.
pub fn by_lists(problem: &Problem, old: Option<&[usize]>) -> Option<Vec<usize>> {
    let n = problem.demands.size();
    let m = problem.capacities.size();
    if n > m {
        return None;
    }
    let mut host: Vec<Option<usize>> = vec![None; n];
    let mut is_free = vec![true; m];
    let demands: Vec<_> = sorted_pairs(&problem.demands)
        .into_iter()
        .filter(|(.., weight)| *weight > 0.0)
        .collect();
    let throughput = sorted_pairs(&problem.capacities);
    for &(i, j, _) in &demands {
        if host[i].is_some() || host[j].is_some() {
            continue;
        }
        let pair = throughput
            .iter()
            .find(|&&(a, b, _)| is_free[a] && is_free[b]);
        if let Some(&(a, b, _)) = pair {
            host[i] = Some(a);
            host[j] = Some(b);
            is_free[a] = false;
            is_free[b] = false;
        }
    }
    // Remaining processes: in the order of the list those with a mapped partner, then those without.
    let order = demands
        .iter()
        .flat_map(|&(i, j, _)| [(i, Some(j)), (j, Some(i))]);
    let rest = (0..n).map(|i| (i, None));
    for (i, partner) in order.chain(rest) {
        if host[i].is_some() || (partner.is_some_and(|j| host[j].is_none())) {
            continue;
        }
        let traffic = |j: usize| problem.demands.at(i, j) + problem.demands.at(j, i);
        let mapped = (0..n).filter(|&j| host[j].is_some() && j != i && traffic(j) > 0.0);
        let nearest = partner
            .or_else(|| mapped.max_by(|&a, &b| traffic(a).total_cmp(&traffic(b))))
            .and_then(|j| host[j]);
        let wish = |at: usize| match nearest {
            Some(other) => problem.capacities.at(at, other) + problem.capacities.at(other, at),
            None => (0..m).map(|to| *problem.capacities.at(at, to)).sum(),
        };
        let was = old.and_then(|old| old.get(i)).copied();
        let free = (0..m).filter(|&at| is_free[at]);
        let best = free.reduce(|a, b| {
            let is_better = wish(b) > wish(a) || (wish(b) == wish(a) && was == Some(b));
            if is_better { b } else { a }
        })?;
        host[i] = Some(best);
        is_free[best] = false;
    }
    host.into_iter().collect()
}

/// GH-B (B.4.2): processes and hosts are each put in the order in which their sorted pairs first name
/// them, and mapped in these orders. `None` if there are too few hosts.
pub fn breadth_first(problem: &Problem) -> Option<Vec<usize>> {
    let (n, m) = (problem.demands.size(), problem.capacities.size());
    if n > m {
        return None;
    }
    let mut widths: Matrix<f64> = Matrix::new(m);
    for a in 0..m {
        for b in (0..m).filter(|&b| b != a) {
            let path = widest_path(&problem.capacities, a, b, problem.may_relay);
            *widths.at_mut(a, b) = path.map_or(0.0, |path| path.1);
        }
    }
    let processes = first_named(n, &sorted_pairs(&problem.demands));
    let hosts = first_named(m, &sorted_pairs(&widths));
    let mut mapping = vec![0; n];
    for (process, host) in processes.into_iter().zip(hosts) {
        mapping[process] = host;
    }
    Some(mapping)
}

/// The nodes of a sorted list of pairs, breadth first: the heaviest pair, then the node joined to a
/// named one by the heaviest pair, then the rest.
fn first_named(n: usize, pairs: &[(usize, usize, f64)]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::new();
    while order.len() < n {
        let joined = pairs
            .iter()
            .find(|(a, b, weight)| *weight > 0.0 && (order.contains(a) != order.contains(b)));
        let fresh = || {
            pairs
                .iter()
                .find(|(a, b, w)| *w > 0.0 && !order.contains(a) && !order.contains(b))
        };
        match joined.or_else(fresh) {
            Some(&(a, b, _)) => {
                for node in [a, b] {
                    if !order.contains(&node) {
                        order.push(node);
                    }
                }
            }
            None => {
                let rest: Vec<usize> = (0..n).filter(|node| !order.contains(node)).collect();
                order.extend(rest);
            }
        }
    }
    order
}

/// Number of processes that a new mapping moves.
pub fn migrations(old: &[usize], new: &[usize]) -> usize {
    old.iter().zip(new).filter(|(a, b)| a != b).count()
}
