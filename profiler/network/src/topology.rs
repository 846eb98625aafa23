//! The topology of an application: the heavy cells of its traffic matrix (2.1).

use std::collections::BTreeSet;

use super::archetype::{self, Archetype};
use super::matrix::Matrix;

/// A pruned traffic matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Number of processes.
    pub size: usize,
    /// Number of processes that sent or received anything.
    pub talkers: usize,
    /// Edges with their bytes and shares of the heaviest edge, in the order of rows.
    pub edges: Vec<Edge>,
    /// Known patterns of these edges among all nodes with traffic. There may be several, since 4 nodes
    /// in a ring are also a 2×2 mesh.
    pub archetypes: Vec<Archetype>,
    /// Known patterns among the talkers with an edge, if other talkers have none.
    pub among_joined: Vec<Archetype>,
}

/// One directed edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    /// Sender.
    pub src: usize,
    /// Receiver.
    pub dst: usize,
    /// Bytes.
    pub bytes: f64,
    /// Share of the heaviest edge, 0 to 1.
    pub ratio: f64,
}

/// Keeps an edge if it carries at least the share `b_min` of the heaviest. The diagonal does not count.
/// A matrix of zeros has no edges (the text divides by zero there).
pub fn infer(matrix: &Matrix<f64>, b_min: f64) -> Topology {
    let edges = edges(matrix, b_min);
    let talkers = talkers(matrix).len();
    let pairs = undirected(&edges);
    let is_of_all = archetype::joined(&pairs).len() == talkers;
    let found = archetype::recognise(&pairs);
    let (archetypes, among_joined) = match is_of_all {
        true => (found, Vec::new()),
        false => (Vec::new(), found),
    };
    Topology {
        size: matrix.size(),
        talkers,
        edges,
        archetypes,
        among_joined,
    }
}

/// Processes that exchanged anything with another one.
pub fn talkers(matrix: &Matrix<f64>) -> BTreeSet<usize> {
    let cells = matrix.off_diagonal().filter(|(.., bytes)| **bytes > 0.0);
    cells.flat_map(|(src, dst, _)| [src, dst]).collect()
}

impl Topology {
    /// Pattern of the edges, in words. A pattern is named only if all nodes with traffic are part of it.
    pub fn form(&self) -> String {
        let names = |all: &[Archetype]| {
            let named: Vec<String> = all.iter().map(ToString::to_string).collect();
            match named.as_slice() {
                [] => None,
                [one] => Some(one.clone()),
                [first, rest @ ..] => {
                    Some(format!("{first} (the same graph: {})", rest.join(", ")))
                }
            }
        };
        if self.edges.is_empty() {
            return "no edges".into();
        }
        if self.talkers == 2 {
            return "a pair".into();
        }
        if let Some(named) = names(&self.archetypes) {
            return named;
        }
        let joined = archetype::joined(&undirected(&self.edges)).len();
        match self.among_joined.first() {
            Some(part) => format!("no pattern of all, {joined} of them form a {part}"),
            None => "no pattern that has a name".into(),
        }
    }
}

/// The edges of a matrix.
pub fn edges(matrix: &Matrix<f64>, b_min: f64) -> Vec<Edge> {
    let heaviest = matrix
        .off_diagonal()
        .fold(0.0, |most: f64, (.., &bytes)| most.max(bytes));
    if heaviest <= 0.0 {
        return Vec::new();
    }
    matrix
        .off_diagonal()
        .map(|(src, dst, &bytes)| Edge {
            src,
            dst,
            bytes,
            ratio: bytes / heaviest,
        })
        .filter(|edge| edge.ratio >= b_min && edge.bytes > 0.0)
        .collect()
}

/// Pairs with an edge in either direction, the smaller number first.
pub fn undirected(edges: &[Edge]) -> Pairs {
    edges
        .iter()
        .map(|edge| (edge.src.min(edge.dst), edge.src.max(edge.dst)))
        .collect()
}

/// Pairs of processes.
pub type Pairs = BTreeSet<(usize, usize)>;

/// Pairs that are only in one of two sets: (declared only, seen only).
pub fn difference(declared: &Pairs, seen: &Pairs) -> (Pairs, Pairs) {
    (declared - seen, seen - declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figure 2.4: IS on eight hosts, MB.
    fn figure_2_4() -> Matrix<f64> {
        Matrix::from_rows([
            [0., 19.0, 19.6, 19.2, 19.6, 18.8, 13.7, 19.3],
            [22.6, 0., 10.7, 10.8, 10.7, 10.9, 9.7, 10.5],
            [22.2, 8.78, 0., 11.2, 10.4, 10.1, 10.5, 10.5],
            [22.4, 8.9, 9.5, 0., 11.1, 10.8, 10.6, 10.2],
            [22.3, 10.0, 9.51, 9.72, 0., 11.7, 10.9, 11.9],
            [24.0, 8.9, 10.7, 9.9, 10.8, 0., 12.2, 12.1],
            [23.2, 10.0, 9.7, 9.5, 10.3, 10.2, 0., 12.0],
            [24.9, 11.2, 11.0, 11.8, 11.5, 11.2, 10.7, 0.],
        ])
    }

    fn count(matrix: &Matrix<f64>, b_min: f64) -> usize {
        edges(matrix, b_min).len()
    }

    #[test]
    fn figure_2_4_at_every_threshold() {
        let matrix = figure_2_4();
        for (b_min, expected) in [
            (0.1, 56),
            (0.3, 56),
            (0.35, 56),
            (0.36, 53),
            (0.4, 46),
            (0.45, 21),
            (0.5, 14),
            (0.6, 13),
            (0.8, 7),
            (0.9, 4),
            (1.0, 1),
        ] {
            assert_eq!(count(&matrix, b_min), expected, "b_min {b_min}");
        }
        let half = edges(&matrix, 0.5);
        assert!(half.iter().all(|edge| edge.src == 0 || edge.dst == 0));
        let lost: Vec<_> = half
            .iter()
            .filter(|e| {
                edges(&matrix, 0.6)
                    .iter()
                    .all(|k| (k.src, k.dst) != (e.src, e.dst))
            })
            .map(|e| (e.src, e.dst))
            .collect();
        assert_eq!(lost, [(0, 6)]);
        assert!(edges(&matrix, 0.8).iter().all(|edge| edge.dst == 0));
        let heavy: Vec<_> = edges(&matrix, 0.9).iter().map(|e| (e.src, e.dst)).collect();
        assert_eq!(heavy, [(1, 0), (5, 0), (6, 0), (7, 0)].map(|(s, d)| (s, d)));
        let one: Vec<_> = edges(&matrix, 1.0).iter().map(|e| (e.src, e.dst)).collect();
        assert_eq!(one, [(7, 0)]);
    }

    #[test]
    fn figure_2_4_sums() {
        let matrix = figure_2_4();
        let near = |a: f64, b: f64| assert!((a - b).abs() < 0.005, "{a} is not {b}");
        let rows = [129.2, 85.9, 83.68, 83.5, 86.03, 88.6, 84.9, 92.3];
        let columns = [161.6, 76.78, 80.71, 82.12, 84.4, 83.7, 78.3, 86.5];
        for i in 0..8 {
            near((0..8).map(|j| *matrix.at(i, j)).sum(), rows[i]);
            near((0..8).map(|j| *matrix.at(j, i)).sum(), columns[i]);
        }
        near(matrix.off_diagonal().map(|(.., b)| b).sum(), 734.11);
        near(
            matrix
                .off_diagonal()
                .fold(99.0, |m: f64, (.., &b)| m.min(b)),
            8.78,
        );
        near(
            matrix.off_diagonal().fold(0.0, |m: f64, (.., &b)| m.max(b)),
            24.9,
        );
    }

    #[test]
    fn figures_2_12_and_2_13() {
        let online = Matrix::from_rows([
            [0., 7.7, 7.6, 7.8],
            [13.1, 0., 6.6, 6.5],
            [13.5, 6.4, 0., 6.6],
            [13.2, 6.5, 6.5, 0.],
        ]);
        for (b_min, n) in [
            (0.47, 12),
            (0.475, 11),
            (0.5, 6),
            (0.57, 5),
            (0.6, 3),
            (0.95, 3),
        ] {
            assert_eq!(count(&online, b_min), n, "online, b_min {b_min}");
        }
        let least = edges(&online, 0.1)
            .iter()
            .fold(1.0, |m: f64, e| m.min(e.ratio));
        assert!((least - 0.47407).abs() < 5e-6);
        let offline = Matrix::from_rows([
            [0., 5.1, 5.0, 5.0],
            [4.5, 0., 4.3, 3.8],
            [4.7, 3.9, 0., 3.8],
            [4.5, 3.9, 3.9, 0.],
        ]);
        for (b_min, n) in [(0.74, 12), (0.75, 10), (0.8, 7), (0.85, 6), (0.9, 4)] {
            assert_eq!(count(&offline, b_min), n, "offline, b_min {b_min}");
        }
    }

    /// One heavy edge between two of three processes with traffic is no pattern of three.
    #[test]
    fn a_pattern_is_named_only_of_all_that_talk() {
        let of = |rows| infer(&Matrix::from_rows(rows), 0.1).form();
        let light = [[0., 100., 0.], [90., 0., 5.], [0., 0., 0.]];
        assert_eq!(of(light), "no pattern that has a name");
        assert_eq!(of([[0., 9., 0.], [0., 0., 0.], [0., 0., 0.]]), "a pair");
        assert_eq!(of([[0., 9., 0.], [0., 0., 9.], [0., 0., 0.]]), "bus");
        // A ring of four, and a launcher with little traffic.
        let mut ring = Matrix::new(5);
        for at in 0..4 {
            *ring.at_mut(at, (at + 1) % 4) = 1000.0;
        }
        *ring.at_mut(4, 0) = 1.0;
        let found = infer(&ring, 0.1);
        assert_eq!((found.talkers, found.archetypes.len()), (5, 0));
        assert_eq!(found.form(), "no pattern of all, 4 of them form a ring");
        *ring.at_mut(4, 0) = 0.0;
        assert_eq!(infer(&ring, 0.1).form(), "ring (the same graph: 2×2 mesh)");
    }

    #[test]
    fn silence_has_no_edges() {
        assert!(infer(&Matrix::new(4), 0.1).edges.is_empty());
        assert!(infer(&Matrix::new(0), 0.1).edges.is_empty());
    }
}
