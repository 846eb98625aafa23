//! Battré et al., "Detecting Bottlenecks in Parallel DAG-based Data Flow Programs", Algorithms 1 to 3. They
//! apply to any graph: cycles are contracted first.

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};

/// A share averaged over members: instances of a task, or channels of an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Sum of the members' shares.
    pub sum: f64,
    /// The part of `sum` in waits for a CPU.
    pub queued: f64,
    /// Number of members with a known share.
    pub members: u32,
}

impl Load {
    /// One member's share.
    pub fn of(share: f64) -> Load {
        Load::with(share, 0.0)
    }

    /// One member's share, with the part of it in waits for a CPU.
    pub fn with(share: f64, queued: f64) -> Load {
        Load {
            sum: share,
            queued,
            members: 1,
        }
    }

    /// Adds the members of another load.
    pub fn add(&mut self, other: Load) {
        self.sum += other.sum;
        self.queued += other.queued;
        self.members += other.members;
    }

    /// The arithmetic mean; `None`: no member has a known share.
    pub fn mean(self) -> Option<f64> {
        (self.members > 0).then(|| self.sum / f64::from(self.members))
    }

    /// True if the mean is above a threshold. A mean that equals the threshold except for rounding is not
    /// above it.
    fn exceeds(self, threshold: f64) -> bool {
        const ROUNDING: f64 = 1e-9;
        self.mean().is_some_and(|mean| mean > threshold + ROUNDING)
    }

    /// The mean without waits for a CPU.
    fn work(self) -> f64 {
        (self.sum - self.queued) / f64::from(self.members.max(1))
    }
}

/// A graph of tasks without cycles: each vertex is a task, or several that depend on each other.
#[derive(Clone, Debug, Default)]
pub struct Contracted {
    /// Vertex that each task is part of.
    pub vertex_of: Vec<usize>,
    /// Tasks of each vertex.
    pub members: Vec<Vec<usize>>,
    /// Edges between vertices, each pair once.
    pub edges: Vec<(usize, usize)>,
    /// Edge that each edge of the given graph is part of; `None`: it lies within a vertex.
    pub edge_of: Vec<Option<usize>>,
    /// Edges that leave each vertex.
    out: Vec<Vec<usize>>,
}

/// Contracts the strongly connected components of a graph. Vertices are numbered in reverse
/// topological order: those without successors come first (Algorithm 1, line 1).
pub fn contract(tasks: usize, edges: &[(usize, usize)]) -> Contracted {
    let mut graph: DiGraph<(), ()> = DiGraph::with_capacity(tasks, edges.len());
    for _ in 0..tasks {
        graph.add_node(());
    }
    for &(from, to) in edges {
        graph.add_edge(NodeIndex::new(from), NodeIndex::new(to), ());
    }
    // Tarjan's algorithm gives the components in reverse topological order.
    let mut contracted = Contracted {
        vertex_of: vec![0; tasks],
        ..Contracted::default()
    };
    for (vertex, nodes) in tarjan_scc(&graph).into_iter().enumerate() {
        let mut members: Vec<usize> = nodes.into_iter().map(NodeIndex::index).collect();
        members.sort_unstable();
        for &task in &members {
            contracted.vertex_of[task] = vertex;
        }
        contracted.members.push(members);
    }
    contracted.out = vec![Vec::new(); contracted.members.len()];
    let mut at = std::collections::HashMap::new();
    for &(from, to) in edges {
        let ends = (contracted.vertex_of[from], contracted.vertex_of[to]);
        if ends.0 == ends.1 {
            contracted.edge_of.push(None);
            continue;
        }
        let edge = *at.entry(ends).or_insert_with(|| {
            contracted.edges.push(ends);
            contracted.out[ends.0].push(contracted.edges.len() - 1);
            contracted.edges.len() - 1
        });
        contracted.edge_of.push(Some(edge));
    }
    contracted
}

/// Result of one application of the algorithms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// For each vertex, true if it is a CPU bottleneck.
    pub cpu: Vec<bool>,
    /// For each edge, true if it is an I/O bottleneck.
    pub io: Vec<bool>,
    /// True if single instances make their tasks bottlenecks.
    pub by_single: bool,
}

impl Found {
    /// True if there is no bottleneck.
    pub fn is_nothing(&self) -> bool {
        !self.cpu.contains(&true) && !self.io.contains(&true)
    }
}

/// Algorithm 1. `pt` has for each vertex the share of time its instances were processing, `st` for each
/// edge the share of time its channels were saturated. `alpha` and `beta` are the thresholds, which must be
/// exceeded.
///
/// In the paper the instances of a task share its work evenly. In a pool one instance may have all of the
/// work. The mean then makes no task a bottleneck, and no channel is saturated, for the others wait at
/// empty ones. So if nothing is found, `single` is used: for each vertex the loads of only those instances
/// that were at work for more than `alpha` of the time.
pub fn detect(
    graph: &Contracted,
    pt: &[Load],
    single: &[Load],
    st: &[Load],
    (alpha, beta): (f64, f64),
) -> Found {
    let mut found = Found {
        cpu: cpu_bottlenecks(graph, pt, alpha),
        io: vec![false; graph.edges.len()],
        by_single: false,
    };
    // Line 5: edges are examined only if no task is a bottleneck.
    if !found.cpu.contains(&true) {
        found.io = io_bottlenecks(graph, st, beta);
    }
    if found.is_nothing() {
        found.cpu = cpu_bottlenecks(graph, single, alpha);
        found.by_single = found.cpu.contains(&true);
    }
    found
}

/// Algorithm 2 for every vertex in reverse topological order.
///
/// In the paper each task has a CPU. Here a quick task may wait for a CPU while the tasks before it compute, and
/// then it never lacks data. So a task that exceeds `alpha` by such waits alone gives way to one before it that
/// works more.
fn cpu_bottlenecks(graph: &Contracted, pt: &[Load], alpha: f64) -> Vec<bool> {
    let mut is_bottleneck = vec![false; graph.members.len()];
    // For each vertex, the work that it needs to be the bottleneck instead of those that can be reached from it.
    let mut needed = vec![f64::NEG_INFINITY; graph.members.len()];
    for vertex in 0..graph.members.len() {
        let next = |&edge: &usize| graph.edges[edge].1;
        let of_next = graph.out[vertex].iter().map(next).map(|next| {
            let work = pt[next].work();
            match is_bottleneck[next] {
                true if work > alpha => f64::INFINITY,
                // Two that do about the same are both slow.
                true => needed[next].max(work + (1.0 - alpha)),
                false => needed[next],
            }
        });
        needed[vertex] = of_next.fold(f64::NEG_INFINITY, f64::max);
        if !pt[vertex].exceeds(alpha) || pt[vertex].work() <= needed[vertex] {
            continue;
        }
        let mut left = vec![vertex];
        while let Some(at) = left.pop() {
            for next in graph.out[at].iter().map(next) {
                if is_bottleneck[next] || needed[next].is_finite() {
                    is_bottleneck[next] = false;
                    needed[next] = f64::NEG_INFINITY;
                    left.push(next);
                }
            }
        }
        is_bottleneck[vertex] = true;
    }
    is_bottleneck
}

/// Algorithm 3 for every edge, in the order of the vertices that they leave.
fn io_bottlenecks(graph: &Contracted, st: &[Load], beta: f64) -> Vec<bool> {
    let mut is_bottleneck = vec![false; graph.edges.len()];
    // True for a vertex if an edge on a path that begins at it is a bottleneck.
    let mut has_below = vec![false; graph.members.len()];
    for vertex in 0..graph.members.len() {
        for &edge in &graph.out[vertex] {
            let next = graph.edges[edge].1;
            is_bottleneck[edge] = st[edge].exceeds(beta) && !has_below[next];
        }
        has_below[vertex] = graph.out[vertex]
            .iter()
            .any(|&edge| is_bottleneck[edge] || has_below[graph.edges[edge].1]);
    }
    is_bottleneck
}

#[cfg(test)]
#[path = "algorithm/tests.rs"]
mod tests;

#[cfg(test)]
#[path = "algorithm/ocr.rs"]
mod ocr;
