//! The order of steps.

use std::collections::BTreeMap;

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use super::effects::{Effects, How, Thing, Touch};

/// Pairs of steps, the first of which must come before the second; true if data goes from one to the
/// other.
pub(super) type Edges = BTreeMap<(usize, usize), bool>;

/// The order of steps by what they touched.
pub(super) fn edges(effects: &Effects) -> Edges {
    let mut edges = Edges::new();
    for (thing, touches) in &effects.touches {
        if touches.len() < 2
            || touches
                .iter()
                .all(|touch| touch.how == touches[0].how && is_free(touch.how))
        {
            continue;
        }
        let only_made = |step: usize| match thing {
            Thing::Name(path) => effects.made_directories.contains(&(step, path.clone())),
            _ => false,
        };
        add(&mut edges, thing, touches, only_made);
    }
    edges
}

/// Returns true if steps that touch a thing only in this way need no order among them.
fn is_free(how: How) -> bool {
    matches!(how, How::Read | How::Vary)
}

/// Adds the order that the touches of one thing ask for. `only_made` returns true for a step that made
/// the thing as a directory; the age of a directory does not matter.
fn add(edges: &mut Edges, thing: &Thing, touches: &[Touch], only_made: impl Fn(usize) -> bool) {
    let mut touches: Vec<&Touch> = touches.iter().collect();
    touches.sort_by_key(|touch| (touch.span.first_ns, touch.span.last_ns, touch.step));
    // The last touch that changed the thing, and all touches since or at the same time. The order after
    // earlier ones is implied.
    let mut since: Vec<&Touch> = Vec::new();
    for touch in touches {
        for &earlier in &since {
            if earlier.how == touch.how && is_free(touch.how) {
                continue;
            }
            let is_outside = matches!(thing, Thing::Outside(_));
            let is_data = (is_outside
                || matches!(thing, Thing::Content(_) | Thing::Name(_) | Thing::List(_)))
                && earlier.how > How::Read
                && !only_made(earlier.step);
            let mut add = |from: usize, to: usize| {
                *edges.entry((from, to)).or_default() |= is_data;
            };
            let (before, after) = match earlier.orders(touch) {
                // The times are not known well enough to say that the two steps need each other.
                (true, true) if is_outside => (false, false),
                order => order,
            };
            if before {
                add(earlier.step, touch.step);
            }
            if after {
                add(touch.step, earlier.step);
            }
        }
        if !is_free(touch.how)
            && since
                .iter()
                .all(|earlier| earlier.span.last_ns <= touch.span.first_ns)
        {
            since.clear();
        }
        since.push(touch);
    }
}

/// Keeps each step, given by its begin and end, after the steps that had ended before it began. Use it
/// where the effects of steps outside the traced directories were not seen, so that no other order is
/// known to be right.
pub(super) fn keep_time(spans: &[(i64, i64)], edges: &mut Edges) {
    let mut by_end: Vec<usize> = (0..spans.len()).collect();
    by_end.sort_by_key(|&step| spans[step].1);
    // The latest begin among the steps that ended so far. A step that ended before that instant is
    // implied.
    let mut latest = Vec::with_capacity(by_end.len());
    for &step in &by_end {
        let before = latest.last().copied().unwrap_or(i64::MIN);
        latest.push(before.max(spans[step].0));
    }
    let mut added = Edges::new();
    for (step, &(begin, _)) in spans.iter().enumerate() {
        let over = by_end.partition_point(|&other| spans[other].1 <= begin);
        let Some(&latest) = over.checked_sub(1).and_then(|last| latest.get(last)) else {
            continue;
        };
        let direct = by_end[..over].iter().rev();
        let direct = direct.take_while(|&&other| spans[other].1 > latest);
        added.extend(direct.map(|&other| ((other, step), false)));
    }
    // Observed data decide if a step did things both before and after another one.
    let mut all = added.clone();
    all.extend(edges.iter());
    let mut ring_of = BTreeMap::new();
    for (ring, steps) in rings(spans.len(), &all).into_iter().enumerate() {
        ring_of.extend(steps.into_iter().map(|step| (step, ring)));
    }
    added.retain(|(from, to), _| {
        let rings = (ring_of.get(from), ring_of.get(to));
        rings.0.is_none() || rings.0 != rings.1
    });
    for (pair, is_data) in added {
        edges.entry(pair).or_insert(is_data);
    }
}

/// Steps that depend on each other in a ring, in order within each ring. Single steps are not listed.
pub(super) fn rings(count: usize, edges: &Edges) -> Vec<Vec<usize>> {
    let mut graph = DiGraph::<(), ()>::new();
    let nodes: Vec<_> = (0..count).map(|_| graph.add_node(())).collect();
    for &(from, to) in edges.keys() {
        graph.add_edge(nodes[from], nodes[to], ());
    }
    let mut rings: Vec<Vec<usize>> = tarjan_scc(&graph)
        .into_iter()
        .filter(|ring| ring.len() > 1)
        .map(|ring| {
            let mut steps: Vec<usize> = ring.into_iter().map(NodeIndex::index).collect();
            steps.sort_unstable();
            steps
        })
        .collect();
    rings.sort();
    rings
}

/// Leaves out the edges that others imply. The edges lead from lower to higher numbers.
pub(super) fn reduced(count: usize, edges: &Edges) -> Edges {
    let words = count.div_ceil(64);
    let mut before = vec![vec![0u64; words]; count];
    let mut kept = Edges::new();
    let mut direct_to = vec![Vec::new(); count];
    for &(from, to) in edges.keys() {
        direct_to[to].push(from);
    }
    for (to, direct) in direct_to.into_iter().enumerate() {
        // From the latest step back: the steps before it are implied.
        let mut reached = vec![0u64; words];
        for &from in direct.iter().rev() {
            if reached[from / 64] >> (from % 64) & 1 == 0 {
                kept.insert((from, to), edges[&(from, to)]);
            } else if edges[&(from, to)] {
                // An edge with data is kept, so that the data are named.
                kept.insert((from, to), true);
            }
            reached[from / 64] |= 1 << (from % 64);
            for (word, of_from) in reached.iter_mut().zip(&before[from]) {
                *word |= of_from;
            }
        }
        before[to] = reached;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::super::touch::Span;
    use super::*;

    fn touch(step: usize, how: How, first_ns: i64, last_ns: i64) -> Touch {
        Touch::new(step, how, Span { first_ns, last_ns })
    }

    fn of(touches: &[Touch]) -> Vec<(usize, usize)> {
        let mut edges = Edges::new();
        add(&mut edges, &Thing::Content(1), touches, |_| false);
        edges.into_keys().collect()
    }

    #[test]
    fn changes_come_after_earlier_reads() {
        use How::{Read, Write};
        let history = [
            touch(0, Write, 0, 1),
            touch(1, Read, 2, 3),
            touch(2, Read, 2, 4),
            touch(3, Write, 5, 6),
            touch(4, Read, 7, 8),
        ];
        assert_eq!(
            of(&history),
            [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3), (3, 4)]
        );
    }

    #[test]
    fn what_is_added_needs_no_order_but_a_list_does() {
        use How::{Read, Vary};
        let history = [
            touch(0, Vary, 0, 1),
            touch(1, Vary, 2, 3),
            touch(2, Read, 4, 5),
            touch(3, Vary, 6, 7),
        ];
        assert_eq!(of(&history), [(0, 2), (1, 2), (2, 3)]);
    }

    #[test]
    fn what_two_did_at_once_is_a_ring() {
        let edges = [touch(0, How::Write, 0, 5), touch(1, How::Write, 2, 8)];
        assert_eq!(of(&edges), [(0, 1), (1, 0)]);
        let edges = Edges::from([((0, 1), true), ((1, 0), false), ((1, 2), true)]);
        assert_eq!(rings(3, &edges), [vec![0, 1]]);
    }

    /// Programs may list a directory when they begin, and add names to it later.
    #[test]
    fn a_step_that_lists_and_adds_needs_an_order_that_gives_what_was_seen() {
        use How::{Read, Vary};
        let both = |step, listed: (i64, i64), added: (i64, i64)| {
            let mut all = touch(step, Read, listed.0, listed.1);
            all.add(touch(step, Vary, added.0, added.1));
            all
        };
        // Each step listed before the other one added, or while it added.
        assert_eq!(of(&[both(0, (0, 1), (8, 20)), both(1, (2, 3), (9, 9))]), []);
        assert_eq!(
            of(&[both(0, (0, 1), (4, 20)), both(1, (9, 9), (30, 31))]),
            [(0, 1)]
        );
        assert_eq!(of(&[both(0, (0, 1), (4, 20)), touch(1, Read, 9, 9)]), []);
        // The second step added everything while the first one went on listing.
        assert_eq!(
            of(&[both(0, (0, 9), (2, 3)), touch(1, Read, 5, 6)]),
            [(0, 1)]
        );
        // Each may have waited for the other's names, or listed both its own and the other's.
        let waits = [both(0, (0, 6), (8, 9)), both(1, (1, 1), (5, 5))];
        assert_eq!(of(&waits), [(0, 1), (1, 0)]);
        let meet = [both(0, (7, 7), (1, 1)), both(1, (8, 8), (2, 2))];
        assert_eq!(of(&meet), [(0, 1), (1, 0)]);
        // One step after the other.
        assert_eq!(
            of(&[both(0, (0, 1), (4, 5)), both(1, (5, 6), (7, 8))]),
            [(0, 1)]
        );
    }

    #[test]
    fn in_the_order_of_time_a_step_comes_after_all_that_had_ended() {
        let kept = |spans: &[(i64, i64)], edges: &[(usize, usize)]| -> Vec<(usize, usize)> {
            let mut all: Edges = edges.iter().map(|&pair| (pair, true)).collect();
            keep_time(spans, &mut all);
            all.into_keys().collect()
        };
        assert_eq!(kept(&[(0, 1), (1, 2), (3, 4)], &[]), [(0, 1), (1, 2)]);
        // Two steps at the same time, between others.
        let beside = [(0, 1), (2, 5), (3, 6), (7, 8)];
        assert_eq!(kept(&beside, &[]), [(0, 1), (0, 2), (1, 3), (2, 3)]);
        // The first step lasts all the time, is used by the second, and uses the third.
        let around = [(0, 9), (1, 2), (3, 4)];
        assert_eq!(kept(&around, &[(0, 1), (2, 0)]), [(0, 1), (2, 0)]);
    }

    #[test]
    fn implied_edges_are_left_out_unless_data_go_along() {
        let edges = Edges::from([
            ((0, 1), true),
            ((1, 2), true),
            ((0, 2), false),
            ((0, 3), true),
            ((2, 3), false),
        ]);
        let kept: Vec<_> = reduced(4, &edges).into_keys().collect();
        assert_eq!(kept, [(0, 1), (0, 3), (1, 2), (2, 3)]);
    }
}
