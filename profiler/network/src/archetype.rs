//! The patterns of table 1.1, which name a topology.

use std::collections::BTreeSet;
use std::fmt;

/// Largest number of processes for which patterns are tried.
pub const MOST: usize = 64;
/// Steps of the search for one pattern; a graph that needs more is not named.
const MOST_STEPS: u32 = 200_000;

/// A pattern of communication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Archetype {
    /// Each process with each other one.
    AllToAll,
    /// A chain: a mesh of one dimension.
    Bus,
    /// A closed chain: a torus of one dimension.
    Ring,
    /// A grid of the given sizes.
    Mesh(Vec<usize>),
    /// A grid whose ends are joined.
    Torus(Vec<usize>),
    /// The corners of a cube of this many dimensions.
    Hypercube(u32),
    /// A binary tree: process k with 2k+1 and 2k+2.
    ReductionTree,
    /// One process with all others, as a master with its workers.
    Star,
}

impl fmt::Display for Archetype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = |sizes: &[usize]| {
            let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
            sizes.join("×")
        };
        match self {
            Archetype::AllToAll => write!(f, "all-to-all"),
            Archetype::Bus => write!(f, "bus"),
            Archetype::Ring => write!(f, "ring"),
            Archetype::Mesh(s) => write!(f, "{} mesh", sizes(s)),
            Archetype::Torus(s) => write!(f, "{} torus", sizes(s)),
            Archetype::Hypercube(n) => write!(f, "{n}-D hypercube"),
            Archetype::ReductionTree => write!(f, "reduction tree"),
            Archetype::Star => write!(f, "star"),
        }
    }
}

/// Pairs of neighbours, the smaller first.
pub type Pairs = BTreeSet<(usize, usize)>;

impl Archetype {
    /// The pairs of the pattern on `n` processes, numbered as in programs of that pattern.
    pub fn pairs(&self, n: usize) -> Pairs {
        match self {
            Archetype::AllToAll => (0..n)
                .flat_map(|a| (a + 1..n).map(move |b| (a, b)))
                .collect(),
            Archetype::Bus => grid(&[n], false),
            Archetype::Ring => grid(&[n], true),
            Archetype::Mesh(sizes) => grid(sizes, false),
            Archetype::Torus(sizes) => grid(sizes, true),
            Archetype::Hypercube(dimensions) => grid(&vec![2; *dimensions as usize], false),
            Archetype::ReductionTree => (1..n).map(|k| ((k - 1) / 2, k)).collect(),
            Archetype::Star => (1..n).map(|k| (0, k)).collect(),
        }
    }
}

fn grid(sizes: &[usize], is_wrapped: bool) -> Pairs {
    let n: usize = sizes.iter().product();
    let mut pairs = Pairs::new();
    for at in 0..n {
        let mut stride = 1;
        for &size in sizes {
            let along = at / stride % size;
            // A wrap over a dimension of 2 is the same edge.
            let next = if along + 1 < size {
                Some(at + stride)
            } else if is_wrapped && size > 2 {
                Some(at - along * stride)
            } else {
                None
            };
            if let Some(next) = next {
                pairs.insert((at.min(next), at.max(next)));
            }
            stride *= size;
        }
    }
    pairs
}

/// Processes that are joined to another.
pub fn joined(pairs: &Pairs) -> BTreeSet<usize> {
    pairs.iter().flat_map(|&(a, b)| [a, b]).collect()
}

/// The patterns that this graph has on the processes that it joins, the simplest first. The numbers of
/// the processes do not matter. A graph of one pair has none, since it fits every pattern.
pub fn recognise(pairs: &Pairs) -> Vec<Archetype> {
    let number: Vec<usize> = joined(pairs).into_iter().collect();
    let index = |at: usize| number.binary_search(&at).unwrap_or(0);
    let pairs: Pairs = pairs.iter().map(|&(a, b)| (index(a), index(b))).collect();
    let n = number.len();
    if !(3..=MOST).contains(&n) {
        return Vec::new();
    }
    let fits = |candidate: &Archetype| are_isomorphic(n, &candidate.pairs(n), &pairs);
    candidates(n).into_iter().filter(fits).collect()
}

fn candidates(n: usize) -> Vec<Archetype> {
    let mut all = vec![Archetype::AllToAll];
    all.push(Archetype::Bus);
    all.push(Archetype::Ring);
    if n.is_power_of_two() && n >= 8 {
        all.push(Archetype::Hypercube(n.trailing_zeros()));
    }
    if n >= 4 {
        all.push(Archetype::Star);
        all.push(Archetype::ReductionTree);
    }
    for sizes in factorisations(n, 2) {
        if sizes.len() > 1 {
            all.push(Archetype::Mesh(sizes.clone()));
            if sizes.iter().any(|&size| size > 2) {
                all.push(Archetype::Torus(sizes));
            }
        }
    }
    all
}

/// All ways to write `n` as a product of factors not below `least`, ascending.
fn factorisations(n: usize, least: usize) -> Vec<Vec<usize>> {
    let mut all = vec![vec![n]];
    for first in (least..).take_while(|f| f * f <= n) {
        if n.is_multiple_of(first) {
            for mut rest in factorisations(n / first, first) {
                rest.insert(0, first);
                all.push(rest);
            }
        }
    }
    all
}

fn neighbours(n: usize, pairs: &Pairs) -> Vec<u64> {
    let mut sets = vec![0u64; n];
    for &(a, b) in pairs {
        sets[a] |= 1 << b;
        sets[b] |= 1 << a;
    }
    sets
}

fn are_isomorphic(n: usize, a: &Pairs, b: &Pairs) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (a, b) = (neighbours(n, a), neighbours(n, b));
    let (colour_a, colour_b) = (colours(&a), colours(&b));
    let sorted = |colours: &[u64]| {
        let mut colours = colours.to_vec();
        colours.sort_unstable();
        colours
    };
    if sorted(&colour_a) != sorted(&colour_b) {
        return false;
    }
    // Each process after a neighbour, so that a wrong choice fails at once.
    let mut order: Vec<usize> = Vec::new();
    while order.len() < n {
        let placed = order.iter().fold(0u64, |set, &at| set | 1 << at);
        let free = (0..n).filter(|at| placed & (1 << at) == 0);
        let next = free.max_by_key(|&at| ((a[at] & placed).count_ones(), n - at));
        order.extend(next);
    }
    let mut search = Search {
        a: &a,
        b: &b,
        colour_a: &colour_a,
        colour_b: &colour_b,
        order: &order,
        image: vec![usize::MAX; n],
        steps: MOST_STEPS,
    };
    search.extend(0, 0)
}

/// Colours of the processes; equal for processes with the same surroundings.
fn colours(graph: &[u64]) -> Vec<u64> {
    let mix = |x: u64| {
        let x = (x ^ (x >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x ^ (x >> 29)
    };
    let mut colours: Vec<u64> = graph
        .iter()
        .map(|set| mix(set.count_ones().into()))
        .collect();
    for _ in 0..graph.len().min(16) {
        colours = (0..graph.len())
            .map(|at| {
                let around = (0..graph.len()).filter(|&other| graph[at] & (1 << other) != 0);
                let sum = around.fold(0u64, |sum, other| sum.wrapping_add(mix(colours[other])));
                mix(colours[at].wrapping_mul(3).wrapping_add(sum))
            })
            .collect();
    }
    colours
}

struct Search<'a> {
    a: &'a [u64],
    b: &'a [u64],
    colour_a: &'a [u64],
    colour_b: &'a [u64],
    order: &'a [usize],
    image: Vec<usize>,
    steps: u32,
}

impl Search<'_> {
    fn extend(&mut self, depth: usize, used: u64) -> bool {
        let Some(&at) = self.order.get(depth) else {
            return true;
        };
        for to in 0..self.b.len() {
            if used & (1 << to) != 0 || self.colour_a[at] != self.colour_b[to] {
                continue;
            }
            if self.steps == 0 {
                return false;
            }
            self.steps -= 1;
            let agrees = self.order[..depth].iter().all(|&other| {
                let is_joined = self.a[at] & (1 << other) != 0;
                is_joined == (self.b[to] & (1 << self.image[other]) != 0)
            });
            if agrees {
                self.image[at] = to;
                if self.extend(depth + 1, used | 1 << to) {
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of pairs in figure 2.3, and of a mesh that the figure does not show.
    #[test]
    fn patterns_have_their_pairs() {
        for (archetype, n, pairs) in [
            (Archetype::ReductionTree, 7, 6),
            (Archetype::Mesh(vec![3, 3]), 9, 12),
            (Archetype::Torus(vec![3, 2, 3]), 18, 45),
            (Archetype::Mesh(vec![3, 2, 3]), 18, 33),
            (Archetype::AllToAll, 6, 15),
            (Archetype::Hypercube(3), 8, 12),
        ] {
            assert_eq!(archetype.pairs(n).len(), pairs, "{archetype}");
        }
    }

    /// The pairs after a permutation of the processes that hides the pattern's usual numbers.
    fn shuffled(n: usize, pairs: &Pairs) -> Pairs {
        let mut to: Vec<usize> = (0..n).collect();
        let mut state = 12345u64;
        for i in (1..n).rev() {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            to.swap(i, (state >> 33) as usize % (i + 1));
        }
        let pair = |&(a, b): &(usize, usize)| (to[a].min(to[b]), to[a].max(to[b]));
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn every_pattern_is_named_whatever_its_processes_are_called() {
        for (archetype, n) in [
            (Archetype::AllToAll, 6),
            (Archetype::Bus, 7),
            (Archetype::Ring, 8),
            (Archetype::ReductionTree, 7),
            (Archetype::ReductionTree, 8),
            (Archetype::Mesh(vec![3, 3]), 9),
            (Archetype::Mesh(vec![2, 4]), 8),
            (Archetype::Mesh(vec![2, 3, 3]), 18),
            (Archetype::Torus(vec![2, 3, 3]), 18),
            (Archetype::Torus(vec![4, 4, 4]), 64),
            (Archetype::Hypercube(3), 8),
            (Archetype::Hypercube(6), 64),
            (Archetype::Star, 5),
        ] {
            let named = recognise(&shuffled(n, &archetype.pairs(n)));
            assert!(named.contains(&archetype), "{archetype} on {n}: {named:?}");
        }
    }

    #[test]
    fn what_is_no_pattern_has_no_name() {
        let mut pairs = Archetype::Mesh(vec![3, 3]).pairs(9);
        pairs.remove(&(0, 1));
        pairs.insert((0, 8));
        assert_eq!(recognise(&pairs), []);
        assert_eq!(recognise(&Pairs::new()), []);
        assert_eq!(
            recognise(&Pairs::from([(0, 1)])),
            [],
            "a pair is any pattern"
        );
    }
}
