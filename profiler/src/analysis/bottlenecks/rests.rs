//! What is left of a window beside those to blame for it.
//!
//! Algorithm 2 takes the tasks of a window for concurrent, and blames the last of a chain. Where they ran one after another
//! in a window, the last covers only the end of it, and what ran before is to be asked for itself: the window is cut there.

use super::algorithm;
use super::result::{Bottlenecks, Window, lives};
use super::tasks::Tasks;
use super::windows::{self, MOST};
use crate::intervals::union;
use crate::timeline::Timeline;

/// Where the rests of a window are this much shorter than it they are not looked at again.
const SHORTER: i64 = 50;
/// A chain of so many steps in one window is followed to its begin.
const ROUNDS: usize = 12;

/// Looks for bottlenecks between boundaries, and again in what those found leave of their windows.
pub(super) fn examine(
    result: &Bottlenecks,
    timeline: &Timeline,
    mut boundaries: Vec<i64>,
) -> Vec<Window> {
    let (steps, lives) = (steps(&result.tasks), Lives::of(result, timeline));
    let mut windows = detect(result, timeline, &boundaries);
    for _ in 0..ROUNDS {
        let rests = windows
            .iter()
            .flat_map(|window| left(window, &lives, &steps));
        let mut cuts: Vec<(i64, i64)> = rests.collect();
        // The longest first, for there may be more than windows.
        cuts.sort_by_key(|&(from, to)| (from - to, from));
        cuts.truncate(MOST.saturating_sub(boundaries.len()) / 2);
        let known = boundaries.len();
        boundaries.extend(cuts.into_iter().flat_map(|(from, to)| [from, to]));
        boundaries.sort_unstable();
        boundaries.dedup();
        if boundaries.len() == known {
            break;
        }
        windows = detect(result, timeline, &boundaries);
    }
    windows
}

/// What those to blame leave of a window while steps lived, if that is worth a look.
fn left(window: &Window, lives: &Lives, steps: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut alive_ns = 0;
    let mut rests = rest(&lives.covered(window), window.from, window.to);
    rests.retain(|&(from, to)| {
        let alive = overlap(steps, from, to);
        alive_ns += alive;
        alive > 0
    });
    match alive_ns < (window.to - window.from) / SHORTER {
        true => Vec::new(),
        false => rests,
    }
}

fn detect(result: &Bottlenecks, timeline: &Timeline, boundaries: &[i64]) -> Vec<Window> {
    let Bottlenecks { graph, options, .. } = result;
    let measured = windows::measure(timeline, &result.tasks, graph, boundaries, options.alpha);
    let window = |window: windows::Measured| {
        let (pt, st) = (&window.pt, &window.st);
        let thresholds = (options.alpha, options.beta);
        Window {
            from: window.from,
            to: window.to,
            cpu: window.cpu,
            on_cpu_ns: window.on_cpu as i64,
            found: algorithm::detect(graph, pt, &window.single, st, thresholds),
            pt: pt.iter().map(|load| load.mean()).collect(),
            single: window.single.iter().map(|load| load.mean()).collect(),
            st: st.iter().map(|load| load.mean()).collect(),
        }
    };
    measured.into_iter().map(window).collect()
}

/// When those that can be to blame lived: of each vertex, and of each edge those who carry something through it.
struct Lives {
    vertices: Vec<Vec<(i64, i64)>>,
    edges: Vec<Vec<(i64, i64)>>,
}

impl Lives {
    fn of(result: &Bottlenecks, timeline: &Timeline) -> Lives {
        let Bottlenecks { graph, tasks, .. } = result;
        let mut writers = vec![Vec::new(); graph.edges.len()];
        for (edge, of) in tasks.edges.iter().zip(&graph.edge_of) {
            if let Some(of) = *of {
                writers[of].extend(edge.carriers(timeline));
            }
        }
        let each = |tasks: &[Vec<usize>]| tasks.iter().map(|tasks| lives(result, tasks)).collect();
        Lives {
            vertices: each(&graph.members),
            edges: each(&writers),
        }
    }

    /// When those to blame for a window lived in it. All of it where nobody is to blame: then there is no rest.
    fn covered(&self, window: &Window) -> Vec<(i64, i64)> {
        let vertices = self.vertices.iter().zip(&window.found.cpu);
        let edges = self.edges.iter().zip(&window.found.io);
        let mut blamed = vertices
            .chain(edges)
            .filter(|(_, is_found)| **is_found)
            .peekable();
        if blamed.peek().is_none() {
            return vec![(window.from, window.to)];
        }
        let mut covered: Vec<_> = blamed
            .flat_map(|(lives, _)| within(lives, window))
            .collect();
        covered.sort_unstable();
        union(covered)
    }
}

/// When any step lived: intervals that do not touch, in order.
pub(super) fn steps(tasks: &Tasks) -> Vec<(i64, i64)> {
    let steps = tasks.parts.iter().filter(|(_, task)| task.is_some());
    let mut lives: Vec<_> = steps.map(|(part, _)| (part.from, part.to)).collect();
    lives.sort_unstable();
    union(lives)
}

/// What of intervals that are in order lies in a window.
pub(super) fn within(intervals: &[(i64, i64)], window: &Window) -> Vec<(i64, i64)> {
    let first = intervals.partition_point(|&(_, to)| to <= window.from);
    let inside = intervals[first..]
        .iter()
        .take_while(|one| one.0 < window.to);
    inside
        .map(|&(from, to)| (from.max(window.from), to.min(window.to)))
        .collect()
}

/// What intervals that are in order, and do not overlap, leave between two moments.
pub(super) fn rest(intervals: &[(i64, i64)], from: i64, to: i64) -> Vec<(i64, i64)> {
    let ends = intervals.iter().map(|one| one.1);
    let begins = intervals.iter().map(|one| one.0).chain([to]);
    let gaps = [from].into_iter().chain(ends).zip(begins);
    gaps.filter(|&(from, to)| from < to).collect()
}

/// How much of the time between two moments such intervals cover, ns.
pub(super) fn overlap(intervals: &[(i64, i64)], from: i64, to: i64) -> i64 {
    let first = intervals.partition_point(|one| one.1 <= from);
    let inside = intervals[first..].iter().take_while(|one| one.0 < to);
    inside.map(|one| one.1.min(to) - one.0.max(from)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_what_no_interval_covers() {
        assert_eq!(rest(&[], 1, 5), [(1, 5)]);
        assert_eq!(rest(&[(1, 2), (3, 4)], 1, 5), [(2, 3), (4, 5)]);
        assert_eq!(rest(&[(1, 5)], 1, 5), []);
        assert_eq!(overlap(&[(0, 2), (3, 9)], 1, 5), 3);
        assert_eq!(overlap(&[(0, 2), (3, 9)], 2, 3), 0);
    }
}
