//! A topological order that is kept while edges are added (Pearce and Kelly, "A dynamic
//! topological sort algorithm for directed acyclic graphs", 2006).
//!
//! petgraph has one too, but it recurses, and forks may nest as deep as there are processes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The order of the nodes of an acyclic graph that grows.
pub(crate) struct Order {
    place: Vec<u32>,
    after: Vec<Vec<u32>>,
    before: Vec<Vec<u32>>,
    is_marked: Vec<bool>,
}

impl Order {
    /// The order of the graph with these edges; where they leave a choice, lower ranks come
    /// first. `None` when they close a cycle.
    pub(crate) fn of(ranks: &[u32], edges: impl Iterator<Item = (u32, u32)>) -> Option<Order> {
        let nodes = ranks.len();
        let mut order = Order {
            place: vec![0; nodes],
            after: vec![Vec::new(); nodes],
            before: vec![Vec::new(); nodes],
            is_marked: vec![false; nodes],
        };
        for (from, to) in edges {
            order.connect(from, to);
        }
        let mut missing: Vec<usize> = order.before.iter().map(Vec::len).collect();
        let key = |node: u32| Reverse((ranks[node as usize], node));
        let mut ready: BinaryHeap<_> = (0..nodes as u32)
            .filter(|&n| missing[n as usize] == 0)
            .map(key)
            .collect();
        let mut placed = 0;
        while let Some(Reverse((_, node))) = ready.pop() {
            order.place[node as usize] = placed;
            placed += 1;
            for &next in &order.after[node as usize] {
                missing[next as usize] -= 1;
                if missing[next as usize] == 0 {
                    ready.push(key(next));
                }
            }
        }
        (placed as usize == nodes).then_some(order)
    }

    /// Adds an edge, unless it would close a cycle; returns true if it was added.
    pub(crate) fn add(&mut self, from: u32, to: u32) -> bool {
        let (low, high) = (self.place[to as usize], self.place[from as usize]);
        if from == to {
            return false;
        }
        if high > low {
            // Only nodes between both can be out of order now.
            let Some(below) = self.reach(to, from, |o, n| &o.after[n], |place| place <= high)
            else {
                return false;
            };
            let Some(above) = self.reach(from, to, |o, n| &o.before[n], |place| place >= low)
            else {
                return false;
            };
            let mut places: Vec<u32> = above
                .iter()
                .chain(&below)
                .map(|&n| self.place[n as usize])
                .collect();
            places.sort_unstable();
            for (&node, place) in above.iter().chain(&below).zip(places) {
                self.place[node as usize] = place;
            }
        }
        self.connect(from, to);
        true
    }

    fn connect(&mut self, from: u32, to: u32) {
        self.after[from as usize].push(to);
        self.before[to as usize].push(from);
    }

    /// The nodes that can be reached from `start` within the places allowed, in their order; `None` when
    /// `forbidden` is one of them.
    fn reach(
        &mut self,
        start: u32,
        forbidden: u32,
        neighbours: fn(&Order, usize) -> &Vec<u32>,
        is_allowed: impl Fn(u32) -> bool,
    ) -> Option<Vec<u32>> {
        let mut found = vec![start];
        self.is_marked[start as usize] = true;
        let mut next = 0;
        while let Some(&node) = found.get(next) {
            next += 1;
            for i in 0..neighbours(self, node as usize).len() {
                let other = neighbours(self, node as usize)[i];
                if !self.is_marked[other as usize] && is_allowed(self.place[other as usize]) {
                    self.is_marked[other as usize] = true;
                    found.push(other);
                }
            }
        }
        let is_cycle = self.is_marked[forbidden as usize];
        for &node in &found {
            self.is_marked[node as usize] = false;
        }
        found.sort_unstable_by_key(|&node| self.place[node as usize]);
        (!is_cycle).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// An edge is refused exactly when its end reaches its begin, and the order holds.
        #[test]
        fn refuses_cycles_and_nothing_else(
            edges in prop::collection::vec((0u32..12, 0u32..12), 0..60)
        ) {
            let mut order = Order::of(&[0; 12], std::iter::empty()).unwrap();
            let mut kept: Vec<(u32, u32)> = Vec::new();
            for (from, to) in edges {
                let mut reached = vec![to];
                for i in 0.. {
                    let Some(&node) = reached.get(i) else { break };
                    for &(_, next) in kept.iter().filter(|edge| edge.0 == node) {
                        if !reached.contains(&next) {
                            reached.push(next);
                        }
                    }
                }
                let is_added = order.add(from, to);
                prop_assert_eq!(is_added, !reached.contains(&from));
                if is_added {
                    kept.push((from, to));
                }
                for &(from, to) in &kept {
                    prop_assert!(order.place[from as usize] < order.place[to as usize]);
                }
            }
        }
    }
}
