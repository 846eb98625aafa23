//! Simulated annealing over mappings and paths (B.4.3).

use super::problem::{Placement, Problem, is_better};

/// Parameters. The text gives none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Annealing {
    /// Seed of the random numbers: equal seeds give equal results.
    pub seed: u64,
    /// Number of steps.
    pub steps: u32,
    /// Factor on the temperature per step.
    pub cooling: f64,
    /// Probability that a step changes the mapping, which resets the paths.
    pub mapping: f64,
}

impl Default for Annealing {
    fn default() -> Self {
        Annealing {
            seed: 1,
            steps: 4000,
            cooling: 0.995,
            mapping: 0.05,
        }
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Anneals from `start` and returns the best placement seen, `start` included (SA+GH+B).
pub fn anneal(problem: &Problem, start: &Placement, annealing: Annealing) -> Placement {
    let mut random = Random(annealing.seed);
    let mut best = start.clone();
    let mut now = start.clone();
    if !now.unmapped.is_empty() || !now.objective.is_finite() {
        // Infeasible states are rejected, so a feasible first state is searched.
        for _ in 0..annealing.steps {
            let tried = problem.place(moved(&now.hosts, problem.capacities.size(), &mut random));
            if is_better(&tried, &best) {
                best = tried.clone();
            }
            now = tried;
            if now.unmapped.is_empty() {
                break;
            }
        }
        if !now.unmapped.is_empty() {
            return best;
        }
    }
    let mut temperature = first_temperature(problem, &now, annealing, &mut random);
    for _ in 0..annealing.steps {
        let Some(next) = neighbour(problem, &now, annealing, &mut random) else {
            continue;
        };
        let gain = next.objective - now.objective;
        if gain > 0.0 || random.uniform() < (gain / temperature.max(f64::MIN_POSITIVE)).exp() {
            now = next;
            if is_better(&now, &best) {
                best = now.clone();
            }
        }
        temperature *= annealing.cooling;
    }
    best
}

/// The mean change of the objective over a hundred moves.
fn first_temperature(
    problem: &Problem,
    from: &Placement,
    annealing: Annealing,
    random: &mut Random,
) -> f64 {
    let gains: Vec<f64> = (0..100)
        .filter_map(|_| neighbour(problem, from, annealing, random))
        .map(|next| (next.objective - from.objective).abs())
        .collect();
    gains.iter().sum::<f64>() / gains.len().max(1) as f64
}

/// A state next to this one; `None` if it is not feasible.
fn neighbour(
    problem: &Problem,
    now: &Placement,
    annealing: Annealing,
    random: &mut Random,
) -> Option<Placement> {
    let hosts = problem.capacities.size();
    if random.uniform() < annealing.mapping || !problem.may_relay {
        let mapping = if random.uniform() < 0.5 {
            moved(&now.hosts, hosts, random)
        } else {
            drawn(now.hosts.len(), hosts, random)
        };
        let next = problem.place(mapping);
        return next.unmapped.is_empty().then_some(next);
    }
    let mut next = now.clone();
    for (.., path) in &mut next.paths {
        perturb(path, hosts, random);
    }
    next.objective = problem.objective(&next.hosts, &next.paths)?;
    Some(next)
}

/// Another mapping: one process moves to another host, and changes places with the process there.
fn moved(mapping: &[usize], hosts: usize, random: &mut Random) -> Vec<usize> {
    let mut mapping = mapping.to_vec();
    let process = random.below(mapping.len());
    let to = random.below(hosts);
    if let Some(other) = mapping.iter().position(|&host| host == to) {
        mapping.swap(process, other);
    } else if let Some(host) = mapping.get_mut(process) {
        *host = to;
    }
    mapping
}

/// A random mapping, since single exchanges may have to pass through infeasible ones.
fn drawn(processes: usize, hosts: usize, random: &mut Random) -> Vec<usize> {
    let mut all: Vec<usize> = (0..hosts).collect();
    for i in (1..hosts).rev() {
        all.swap(i, random.below(i + 1));
    }
    all.truncate(processes);
    all
}

/// One of three changes of a path, with equal probability: insert a host, remove an inner host, or swap
/// two inner hosts. The ends stay.
fn perturb(path: &mut Vec<usize>, hosts: usize, random: &mut Random) {
    let inner = path.len().saturating_sub(2);
    match random.below(3) {
        0 => {
            let host = random.below(hosts);
            if path.len() >= 2 && !path.contains(&host) {
                let at = 1 + random.below(inner + 1);
                path.insert(at, host);
            }
        }
        1 if inner > 0 => {
            path.remove(1 + random.below(inner));
        }
        2 if inner > 1 => path.swap(1 + random.below(inner), 1 + random.below(inner)),
        _ => {}
    }
}
