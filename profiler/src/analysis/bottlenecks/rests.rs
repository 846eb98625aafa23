//! The rest of a window: the part in which none of its bottlenecks lived.
//!
//! Algorithm 2 takes the tasks of a window as concurrent, and blames the last of a chain. If tasks ran one
//! after another, the last one covers only the end of the window. The window is then cut, so that the time
//! before is examined for itself.

use super::algorithm;
use super::result::{Bottlenecks, Window, lives};
use super::tasks::Tasks;
use super::windows::{self, MOST};
use crate::intervals::union;
use crate::timeline::Timeline;

/// A rest that is this many times shorter than its window is not examined again.
const SHORTER: i64 = 50;
/// Most steps of a chain in one window that are followed back to the begin of the chain.
const ROUNDS: usize = 12;

/// Finds the bottlenecks between boundaries, and again in the rests of their windows.
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
        // The longest rests come first, for the number of windows is limited.
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

/// The rests of a window in which steps lived; empty if they are too short to examine.
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

/// The lives of everything that can be a bottleneck: of each vertex, and of the carriers of each edge.
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

    /// The intervals of a window in which its bottlenecks lived. All of the window if it has no bottleneck:
    /// then there is no rest.
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

/// Intervals in which any step lived, disjoint and in order.
pub(super) fn steps(tasks: &Tasks) -> Vec<(i64, i64)> {
    let steps = tasks.parts.iter().filter(|(_, task)| task.is_some());
    let mut lives: Vec<_> = steps.map(|(part, _)| (part.from, part.to)).collect();
    lives.sort_unstable();
    union(lives)
}

/// The parts of ordered intervals that lie in a window.
pub(super) fn within(intervals: &[(i64, i64)], window: &Window) -> Vec<(i64, i64)> {
    let first = intervals.partition_point(|&(_, to)| to <= window.from);
    let inside = intervals[first..]
        .iter()
        .take_while(|one| one.0 < window.to);
    inside
        .map(|&(from, to)| (from.max(window.from), to.min(window.to)))
        .collect()
}

/// The gaps that ordered, disjoint intervals leave between two instants.
pub(super) fn rest(intervals: &[(i64, i64)], from: i64, to: i64) -> Vec<(i64, i64)> {
    let ends = intervals.iter().map(|one| one.1);
    let begins = intervals.iter().map(|one| one.0).chain([to]);
    let gaps = [from].into_iter().chain(ends).zip(begins);
    gaps.filter(|&(from, to)| from < to).collect()
}

/// Time between two instants that ordered, disjoint intervals cover, ns.
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
