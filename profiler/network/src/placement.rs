//! Placement of processes on hosts, additional links, and routes (VADAPT, appendices A and B). Works on
//! numbers alone: demands between processes and capacities between hosts. For real hosts the result is
//! advice.

mod advice;
mod anneal;
mod greedy;
mod paths;
mod problem;

pub use advice::{MARGIN, advise};
pub use anneal::{Annealing, anneal};
pub use greedy::{breadth_first, by_lists, migrations};
pub use paths::{Limit, least_loaded_route, links, route, widest_path};
use problem::is_better;
pub use problem::{Placement, Problem};

/// Largest number of hosts for which all mappings are tried.
pub const EXHAUSTIVE: usize = 8;

/// Every mapping of processes to hosts, with greedy paths. `None` if there are more processes than
/// hosts, or more than [`EXHAUSTIVE`] hosts.
pub fn exhaustive(problem: &Problem) -> Option<(Placement, Vec<f64>)> {
    let (n, m) = (problem.demands.size(), problem.capacities.size());
    if n > m || m > EXHAUSTIVE || n == 0 {
        return None;
    }
    let mut best: Option<Placement> = None;
    let mut feasible = Vec::new();
    let mut hosts = Vec::with_capacity(n);
    permute(n, m, &mut hosts, &mut |hosts| {
        let placement = problem.place(hosts.to_vec());
        if placement.unmapped.is_empty() {
            feasible.push(placement.objective);
        }
        if best.as_ref().is_none_or(|best| is_better(&placement, best)) {
            best = Some(placement);
        }
    });
    Some((best?, feasible))
}

fn permute(n: usize, m: usize, hosts: &mut Vec<usize>, visit: &mut impl FnMut(&[usize])) {
    if hosts.len() == n {
        return visit(hosts);
    }
    for host in 0..m {
        if !hosts.contains(&host) {
            hosts.push(host);
            permute(n, m, hosts, visit);
            hosts.pop();
        }
    }
}

/// The best placement that can be computed in reasonable time: from all mappings if there are few
/// hosts, else from annealing that begins with the better greedy one. `None` if there are more
/// processes than hosts.
pub fn best(problem: &Problem) -> Option<Placement> {
    if problem.demands.size() > problem.capacities.size() {
        return None;
    }
    if let Some((best, _)) = exhaustive(problem) {
        return Some(best);
    }
    let greedy = [breadth_first(problem)?, by_lists(problem, None)?]
        .into_iter()
        .map(|hosts| problem.place(hosts))
        .reduce(|a, b| if is_better(&b, &a) { b } else { a })?;
    let annealed = anneal(problem, &greedy, Annealing::default());
    Some(if is_better(&annealed, &greedy) {
        annealed
    } else {
        greedy
    })
}

/// Cost of one superstep of a BSP program (eq. 3.1): `(alpha + beta g + gamma l) / s`.
pub fn bsp_cost(alpha: f64, (beta, g): (f64, f64), (gamma, l): (f64, f64), s: f64) -> f64 {
    (alpha + beta * g + gamma * l) / s
}

#[cfg(test)]
mod tests;
