//! Intervals of time: (from, to), ns.

/// Joins intervals that touch; they are in the order of their begins.
pub(crate) fn union(intervals: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for (from, to) in intervals {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// Largest number of intervals that overlap at one instant.
pub(crate) fn at_once(intervals: &[(i64, i64)]) -> usize {
    let mut changes: Vec<(i64, i64)> = intervals
        .iter()
        .flat_map(|&(from, to)| [(from, 1), (to, -1)])
        .collect();
    changes.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in changes {
        now += change;
        most = most.max(now);
    }
    most.max(1) as usize
}

/// The part of intervals that lies outside of others; each list is in order, and its intervals do not
/// overlap.
pub(crate) fn minus(intervals: &[(i64, i64)], others: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut rest = Vec::new();
    for &(from, to) in intervals {
        let mut at = from;
        let first = others.partition_point(|other| other.1 <= from);
        for &(begin, end) in others[first..].iter().take_while(|other| other.0 < to) {
            if begin > at {
                rest.push((at, begin));
            }
            at = at.max(end);
        }
        if at < to {
            rest.push((at, to));
        }
    }
    rest
}

/// The part of intervals that lies within others; each list is in order, and its intervals do not overlap.
pub(crate) fn within(intervals: &[(i64, i64)], others: &[(i64, i64)]) -> Vec<(i64, i64)> {
    minus(intervals, &minus(intervals, others))
}

/// For each list of intervals, its time; time that several lists have is divided among them. The intervals of
/// a list do not overlap.
pub(crate) fn divided(lists: &[&[(i64, i64)]]) -> Vec<f64> {
    let mut edges: Vec<(i64, bool, usize)> = Vec::new();
    for (at, list) in lists.iter().enumerate() {
        edges.extend(list.iter().map(|&(from, _)| (from, true, at)));
        edges.extend(list.iter().map(|&(_, to)| (to, false, at)));
    }
    // At one time, ends come before begins.
    edges.sort_unstable();
    let mut times = vec![0.0; lists.len()];
    let mut open: Vec<usize> = Vec::new();
    let mut last = 0;
    for (at, begins, list) in edges {
        for &one in &open {
            times[one] += (at - last) as f64 / open.len() as f64;
        }
        last = at;
        match begins {
            true => open.push(list),
            false => open.retain(|&one| one != list),
        }
    }
    times
}

/// Intervals that may overlap, in the order of their begins, each with an owner. Those that meet a time are
/// found without a walk over all earlier ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stretches {
    begins: Vec<i64>,
    /// A tree over the intervals, node 1 its root: of the intervals below a node, the latest end with its
    /// owner, and the latest end of any other owner.
    nodes: Vec<[(i64, u32); 2]>,
}

/// The owner of nothing.
pub(crate) const NOBODY: u32 = u32::MAX;

impl Stretches {
    /// Builds the tree from begins, ends and owners, in the order of the begins.
    pub(crate) fn of(all: impl ExactSizeIterator<Item = (i64, i64, u32)>) -> Stretches {
        const NONE: (i64, u32) = (i64::MIN, NOBODY);
        let leaves = all.len().next_power_of_two();
        let mut nodes = vec![[NONE; 2]; leaves * 2];
        let mut begins = Vec::with_capacity(all.len());
        for (number, (from, to, owner)) in all.enumerate() {
            begins.push(from);
            nodes[leaves + number] = [(to, owner), NONE];
        }
        for at in (1..leaves).rev() {
            let [a, b] = [nodes[2 * at], nodes[2 * at + 1]];
            let (first, less) = if a[0].0 >= b[0].0 { (a, b) } else { (b, a) };
            let other = less.into_iter().find(|(_, owner)| *owner != first[0].1);
            nodes[at] = [first[0], first[1].max(other.unwrap_or(NONE))];
        }
        Stretches { begins, nodes }
    }

    /// The first interval, from number `from` on, that begins at `begins_until_ns` at the latest, ends after
    /// `ends_after_ns`, and is not of the owner `not_of`.
    pub(crate) fn next(
        &self,
        from: usize,
        begins_until_ns: i64,
        ends_after_ns: i64,
        not_of: u32,
    ) -> Option<usize> {
        let until = self
            .begins
            .partition_point(|&begin| begin <= begins_until_ns);
        let ends = |at: usize| {
            let mut ends = self.nodes[at].iter();
            ends.any(|&(end, owner)| end > ends_after_ns && owner != not_of)
        };
        let leaves = self.nodes.len() / 2;
        if from >= until {
            return None;
        }
        // Climb until a node to the right has one, then descend to the first.
        let mut at = leaves + from;
        while !ends(at) {
            while at % 2 == 1 {
                at /= 2;
            }
            if at == 0 {
                return None;
            }
            at += 1;
        }
        while at < leaves {
            at = if ends(2 * at) { 2 * at } else { 2 * at + 1 };
        }
        Some(at - leaves).filter(|&number| number < until)
    }

    /// The intervals that meet a time, both ends included, in their order.
    pub(crate) fn meeting(&self, from_ns: i64, to_ns: i64) -> impl Iterator<Item = usize> {
        let next = move |from| self.next(from, to_ns, from_ns.saturating_sub(1), NOBODY);
        std::iter::successors(next(0), move |&at| next(at + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_several_lists_is_divided_among_them() {
        let lists: [&[(i64, i64)]; 3] = [&[(0, 10), (20, 30)], &[(5, 25)], &[]];
        assert_eq!(divided(&lists), [15.0, 15.0, 0.0]);
        let same: [&[(i64, i64)]; 2] = [&[(0, 4), (4, 8)], &[(0, 8)]];
        assert_eq!(divided(&same), [4.0, 4.0]);
    }

    #[test]
    fn stretches_that_meet_a_time_are_found_in_order() {
        // A number that does not fill the tree.
        let all: Vec<(i64, i64, u32)> = (0..37)
            .map(|k| {
                (
                    k * 3,
                    k * 3 + [1, 90, 7, 2, 30][k as usize % 5],
                    k as u32 % 3,
                )
            })
            .collect();
        let found = Stretches::of(all.iter().copied());
        for from in (-5..130).step_by(3) {
            for to in [from, from + 4, from + 50] {
                let meets = |&k: &usize| all[k].0 <= to && all[k].1 >= from;
                let expected: Vec<usize> = (0..all.len()).filter(meets).collect();
                assert_eq!(found.meeting(from, to).collect::<Vec<_>>(), expected);
                let other = expected.iter().copied().find(|&k| all[k].2 != 1);
                assert_eq!(found.next(0, to, from - 1, 1), other);
            }
        }
        assert_eq!(Stretches::default().meeting(0, 1).count(), 0);
        assert_eq!(Stretches::of([].into_iter()).meeting(0, 1).count(), 0);
    }

    #[test]
    fn what_lies_outside_and_within_is_all() {
        let (all, others) = ([(0, 10), (20, 30), (40, 50)], [(5, 22), (25, 26), (50, 60)]);
        assert_eq!(minus(&all, &others), [(0, 5), (22, 25), (26, 30), (40, 50)]);
        assert_eq!(within(&all, &others), [(5, 10), (20, 22), (25, 26)]);
        assert_eq!(minus(&all, &[]), all);
        assert_eq!(
            union(vec![(0, 3), (3, 5), (4, 9), (12, 13)]),
            [(0, 9), (12, 13)]
        );
    }
}
