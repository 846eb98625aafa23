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

/// The part of intervals that lies outside of others; both are in order and apart.
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

/// The part of intervals that lies within others; both are in order and apart.
pub(crate) fn within(intervals: &[(i64, i64)], others: &[(i64, i64)]) -> Vec<(i64, i64)> {
    minus(intervals, &minus(intervals, others))
}

#[cfg(test)]
mod tests {
    use super::*;

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
