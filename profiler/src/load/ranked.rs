//! The greatest of the values at a range of places, while these change.

use std::ops::Range;

/// Values at places. They may change; the greatest value within a range of places, and no older than a given
/// time, is found quickly.
pub(super) struct Ranked<K> {
    /// The places, in order.
    places: Vec<u32>,
    /// A tree over the places; node 1 is its root.
    nodes: Vec<Node<K>>,
}

#[derive(Clone, Copy)]
struct Node<K> {
    /// Number of values below the node.
    count: u32,
    /// The greatest value below it.
    greatest: Option<K>,
    /// The earliest and the latest time of these values, ns.
    time_ns: (i64, i64),
}

impl<K: Copy + Ord> Ranked<K> {
    const NONE: Node<K> = Node {
        count: 0,
        greatest: None,
        time_ns: (i64::MAX, i64::MIN),
    };

    /// No values yet at these places, which are in order.
    pub(super) fn new(places: Vec<u32>) -> Self {
        let nodes = vec![Self::NONE; places.len().next_power_of_two() * 2];
        Ranked { places, nodes }
    }

    /// Puts a value with its time at one of the places, counted from 0, or takes it away.
    pub(super) fn set(&mut self, number: usize, value: Option<(K, i64)>) {
        let mut at = self.nodes.len() / 2 + number;
        self.nodes[at] = value.map_or(Self::NONE, |(value, at_ns)| Node {
            count: 1,
            greatest: Some(value),
            time_ns: (at_ns, at_ns),
        });
        while at > 1 {
            at /= 2;
            self.nodes[at] = Self::both(self.nodes[2 * at], self.nodes[2 * at + 1]);
        }
    }

    fn both(a: Node<K>, b: Node<K>) -> Node<K> {
        Node {
            count: a.count + b.count,
            greatest: a.greatest.max(b.greatest),
            time_ns: (a.time_ns.0.min(b.time_ns.0), a.time_ns.1.max(b.time_ns.1)),
        }
    }

    /// Number of values at these places that are no older than `since_ns`, and the greatest of them.
    pub(super) fn greatest(&self, places: Range<u32>, since_ns: i64) -> (u32, Option<K>) {
        let from = self.places.partition_point(|&place| place < places.start);
        let to = self.places.partition_point(|&place| place < places.end);
        let all = self.within(1, 0..self.nodes.len() / 2, &(from..to), since_ns);
        (all.count, all.greatest)
    }

    fn within(&self, at: usize, own: Range<usize>, asked: &Range<usize>, since_ns: i64) -> Node<K> {
        let node = self.nodes[at];
        let is_apart = own.end <= asked.start || asked.end <= own.start;
        if node.count == 0 || is_apart || node.time_ns.1 < since_ns {
            return Self::NONE;
        }
        if asked.start <= own.start && own.end <= asked.end && node.time_ns.0 >= since_ns {
            return node;
        }
        let middle = own.start.midpoint(own.end);
        Self::both(
            self.within(2 * at, own.start..middle, asked, since_ns),
            self.within(2 * at + 1, middle..own.end, asked, since_ns),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_in_a_range_that_is_new_enough() {
        let mut ranked = Ranked::new(vec![2, 3, 5, 9, 12]);
        for (number, value) in [(0, (7, 10)), (1, (9, 20)), (2, (8, 30)), (4, (1, 5))] {
            ranked.set(number, Some(value));
        }
        assert_eq!(ranked.greatest(0..20, 0), (4, Some(9)));
        assert_eq!(ranked.greatest(0..3, 0), (1, Some(7)));
        assert_eq!(ranked.greatest(3..12, 21), (1, Some(8)));
        assert_eq!(ranked.greatest(6..9, 0), (0, None));
        ranked.set(1, None);
        assert_eq!(ranked.greatest(0..20, 6), (2, Some(8)));
        assert_eq!(Ranked::<u8>::new(Vec::new()).greatest(0..9, 0), (0, None));
    }
}
