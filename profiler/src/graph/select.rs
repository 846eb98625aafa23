//! Parts of the workflow graph.

use std::collections::{HashMap, HashSet};

use petgraph::Direction;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;

use super::{Dag, Dropped, Node};
use crate::model::{FileIndex, ProcessId, Workflow};
use crate::paths::{glob, relative};

/// Selected part of the graph; a node stays if it fits all given conditions.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Processes that lived in this interval, and files used then; ns since the start of the recording.
    pub within_ns: Option<(i64, i64)>,
    /// Processes of rules that fit, and their files.
    pub rules: Vec<String>,
    /// Processes with all their descendants, and their files: the upids of any of their images.
    pub subtrees_of: Vec<i64>,
    /// Files that fit, and the processes that used them.
    pub files: Vec<String>,
    /// All that these depend on, themselves included.
    pub ancestors_of: Option<String>,
    /// All that depends on these, themselves included.
    pub descendants_of: Option<String>,
    /// All nodes on a path from the first to the second, both included.
    pub between: Option<(String, String)>,
    /// Leave out edges where a longer path leads from the same begin to the same end.
    pub is_reduced: bool,
    /// Names that files had besides the one that is shown, to select by.
    pub other_names: HashMap<FileIndex, Vec<String>>,
}

/// Reason why there is nothing to select.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NothingFits(pub String);

impl Selection {
    /// Returns true if everything is selected.
    pub fn is_all(&self) -> bool {
        self.within_ns.is_none()
            && self.rules.is_empty()
            && self.subtrees_of.is_empty()
            && self.files.is_empty()
            && self.ancestors_of.is_none()
            && self.descendants_of.is_none()
            && self.between.is_none()
            && !self.is_reduced
    }

    /// The part of a graph.
    ///
    /// # Errors
    /// The names that no process or file fits.
    pub fn of(&self, workflow: &Workflow, dag: &Dag) -> Result<Dag, NothingFits> {
        let mut keep = vec![true; dag.graph.node_count()];
        let mut only = |nodes: &HashSet<NodeIndex>| {
            for (at, keep) in keep.iter_mut().enumerate() {
                *keep &= nodes.contains(&NodeIndex::new(at));
            }
        };
        if let Some(span) = self.within_ns {
            only(&within(workflow, dag, span));
        }
        if !self.rules.is_empty() {
            let fits = |node: NodeIndex| match dag.graph[node] {
                Node::Process { id, .. } => {
                    let fits = |rule: &str| self.rules.iter().any(|r| glob(r, rule));
                    workflow.is_of_rule(id, fits)
                }
                Node::File { .. } => false,
            };
            only(&with_neighbours(dag, found(dag, fits, &self.rules)?));
        }
        if !self.subtrees_of.is_empty() {
            let nodes = subtrees(workflow, dag, &self.subtrees_of)?;
            only(&with_neighbours(dag, nodes));
        }
        if !self.files.is_empty() {
            let fits = |node: NodeIndex| match dag.graph[node] {
                Node::File { .. } => self
                    .files
                    .iter()
                    .any(|f| self.is_named(workflow, dag, node, f)),
                Node::Process { .. } => false,
            };
            only(&with_neighbours(dag, found(dag, fits, &self.files)?));
        }
        if let Some(name) = &self.ancestors_of {
            only(&reach(
                dag,
                &self.named(workflow, dag, name)?,
                Direction::Incoming,
            ));
        }
        if let Some(name) = &self.descendants_of {
            only(&reach(
                dag,
                &self.named(workflow, dag, name)?,
                Direction::Outgoing,
            ));
        }
        if let Some((from, to)) = &self.between {
            only(&reach(
                dag,
                &self.named(workflow, dag, from)?,
                Direction::Outgoing,
            ));
            only(&reach(
                dag,
                &self.named(workflow, dag, to)?,
                Direction::Incoming,
            ));
        }
        if !keep.is_empty() && !keep.contains(&true) {
            return Err(self.nothing(workflow));
        }
        let part = part(dag, &keep);
        Ok(if self.is_reduced { reduced(part) } else { part })
    }

    /// The data edges that lead from or to a selected node and were left out of the graph, or narrowed to one
    /// version of a process, so that it has no cycle: nodes beyond them are missing from dependencies.
    pub fn cut_off(&self, dag: &Dag, part: &Dag) -> Vec<Dropped> {
        let is_asked =
            self.ancestors_of.is_some() || self.descendants_of.is_some() || self.between.is_some();
        if !is_asked {
            return Vec::new();
        }
        let kept: HashSet<Node> = part.graph.node_weights().copied().collect();
        let is_kept = |node: NodeIndex| kept.contains(&dag.graph[node]);
        let dropped = dag.dropped.iter().filter(|d| d.edge.kind.is_data());
        let narrowed = dag.graph.edge_references().map(|edge| Dropped {
            from: edge.source(),
            to: edge.target(),
            edge: *edge.weight(),
        });
        dropped
            .copied()
            .chain(narrowed.filter(|d| d.edge.is_narrowed))
            .filter(|d| is_kept(d.from) || is_kept(d.to))
            .collect()
    }

    /// The reason why nothing is left.
    fn nothing(&self, workflow: &Workflow) -> NothingFits {
        let seconds = |ns: i64| format!("{:.1}", ns as f64 * 1e-9);
        NothingFits(match (&self.between, self.within_ns) {
            (Some((from, to)), _) => format!("no data leads from {from} to {to}"),
            (None, Some((from, to))) => {
                let begins = workflow.begins_ns();
                let seconds = |ns: i64| seconds(ns.saturating_sub(begins));
                let first = workflow.processes.iter().map(|p| p.start_ns).min();
                format!(
                    "nothing that fits was there from {} to {} s; the processes lived from {} to {} s",
                    seconds(from),
                    if to == i64::MAX {
                        "the end".into()
                    } else {
                        seconds(to)
                    },
                    seconds(first.unwrap_or(0)),
                    seconds(workflow.last_ns)
                )
            }
            _ => "nothing in the graph fits all that was asked for at once".into(),
        })
    }

    /// The nodes that a name means: `p12` a process by the upid of one of its images, else files by their
    /// path, else processes by their rule.
    fn named(
        &self,
        workflow: &Workflow,
        dag: &Dag,
        name: &str,
    ) -> Result<HashSet<NodeIndex>, NothingFits> {
        if let Some(upid) = name.strip_prefix('p').and_then(|n| n.parse::<i64>().ok()) {
            let image = workflow.images.iter().find(|image| image.upid == upid);
            if let Some(image) = image {
                let process = HashSet::from([image.process]);
                return Ok(nodes_of(dag, &process));
            }
        }
        let names = [name.to_owned()];
        let fits = |node: NodeIndex| self.is_named(workflow, dag, node, name);
        found(dag, fits, &names).or_else(|error| {
            let fits = |node: NodeIndex| match dag.graph[node] {
                Node::Process { id, .. } => workflow.is_of_rule(id, |rule| glob(name, rule)),
                Node::File { .. } => false,
            };
            found(dag, fits, &names).map_err(|_| error)
        })
    }

    /// Returns true if a file has a name that fits: its path, the path from the run's directory, or the last
    /// parts of it; `./x` is only the `x` in the run's directory.
    fn is_named(&self, workflow: &Workflow, dag: &Dag, node: NodeIndex, pattern: &str) -> bool {
        let Node::File { file, .. } = dag.graph[node] else {
            return false;
        };
        let cwd = workflow.runs.first().map_or("", |run| run.cwd.as_str());
        let others = self.other_names.get(&file).into_iter().flatten();
        let ends = match pattern.starts_with('/') {
            true => pattern.to_owned(),
            false => format!("*/{pattern}"),
        };
        let mut names = workflow
            .file(file)
            .path
            .as_deref()
            .into_iter()
            .chain(others.map(String::as_str));
        names.any(|path| {
            let here = relative(path, cwd);
            match pattern.strip_prefix("./") {
                Some(pattern) => glob(pattern, here),
                None => glob(pattern, here) || glob(&ends, path),
            }
        })
    }
}

/// The graph without the nodes that are not kept.
fn part(dag: &Dag, keep: &[bool]) -> Dag {
    let mut place = vec![NodeIndex::end(); keep.len()];
    let kept = keep.iter().enumerate().filter(|(_, keep)| **keep);
    for (next, (at, _)) in kept.enumerate() {
        place[at] = NodeIndex::new(next);
    }
    let graph = dag.graph.filter_map(
        |at, node| keep[at.index()].then_some(*node),
        |_, edge| Some(*edge),
    );
    let dropped = dag
        .dropped
        .iter()
        .filter(|d| keep[d.from.index()] && keep[d.to.index()])
        .map(|d| Dropped {
            from: place[d.from.index()],
            to: place[d.to.index()],
            edge: d.edge,
        })
        .collect();
    Dag {
        graph,
        dropped,
        cuts: dag.cuts.clone(),
    }
}

/// Without edges whose end can be reached from their begin another way.
fn reduced(dag: Dag) -> Dag {
    let order = petgraph::algo::toposort(&dag.graph, None).unwrap_or_default();
    let mut place = vec![0; dag.graph.node_count()];
    for (at, node) in order.iter().enumerate() {
        place[node.index()] = at;
    }
    let mut is_longer = vec![false; dag.graph.edge_count()];
    let mut reached = vec![usize::MAX; dag.graph.node_count()];
    for (turn, &node) in order.iter().enumerate() {
        let mut targets: Vec<_> = dag
            .graph
            .edges(node)
            .map(|e| (place[e.target().index()], e.target(), e.id()))
            .collect();
        targets.sort_unstable();
        let last = targets.last().map_or(0, |t| t.0);
        for (_, target, edge) in targets {
            // The nearest come first: a node that is reached already is reached through one of them.
            if reached[target.index()] == turn {
                is_longer[edge.index()] = true;
                continue;
            }
            let mut waiting = vec![target];
            reached[target.index()] = turn;
            while let Some(at) = waiting.pop() {
                for next in dag.graph.neighbors(at) {
                    if reached[next.index()] != turn && place[next.index()] <= last {
                        reached[next.index()] = turn;
                        waiting.push(next);
                    }
                }
            }
        }
    }
    let graph = dag.graph.filter_map(
        |_, node| Some(*node),
        |edge, weight| (!is_longer[edge.index()]).then_some(*weight),
    );
    Dag {
        graph,
        dropped: dag.dropped,
        cuts: dag.cuts,
    }
}

fn within(workflow: &Workflow, dag: &Dag, (from, to): (i64, i64)) -> HashSet<NodeIndex> {
    let lives = |node: &NodeIndex| match dag.graph[*node] {
        Node::Process { id, version, .. } => {
            let (begin, end) = dag.version_ns(workflow, id, version);
            begin <= to && end.is_none_or(|end| end >= from)
        }
        Node::File { .. } => [Direction::Incoming, Direction::Outgoing]
            .into_iter()
            .flat_map(|direction| dag.graph.edges_directed(*node, direction))
            .any(|edge| edge.weight().first_ns <= to && edge.weight().last_ns >= from),
    };
    dag.graph.node_indices().filter(lives).collect()
}

fn subtrees(
    workflow: &Workflow,
    dag: &Dag,
    upids: &[i64],
) -> Result<HashSet<NodeIndex>, NothingFits> {
    let mut waiting = Vec::new();
    for upid in upids {
        let image = workflow.images.iter().find(|image| image.upid == *upid);
        let Some(image) = image else {
            return Err(NothingFits(format!("no process image has the upid {upid}")));
        };
        waiting.push(image.process);
    }
    let children = workflow.children();
    let mut found = HashSet::new();
    while let Some(id) = waiting.pop() {
        if found.insert(id) {
            waiting.extend(&children[id.0 as usize]);
        }
    }
    Ok(nodes_of(dag, &found))
}

/// All versions of processes.
fn nodes_of(dag: &Dag, processes: &HashSet<ProcessId>) -> HashSet<NodeIndex> {
    let is_one = |node: &NodeIndex| match dag.graph[*node] {
        Node::Process { id, .. } => processes.contains(&id),
        Node::File { .. } => false,
    };
    dag.graph.node_indices().filter(is_one).collect()
}

fn with_neighbours(dag: &Dag, mut nodes: HashSet<NodeIndex>) -> HashSet<NodeIndex> {
    let is_other = |a: NodeIndex, b: NodeIndex| {
        let is_file = |node| matches!(dag.graph[node], Node::File { .. });
        is_file(a) != is_file(b)
    };
    let around: Vec<NodeIndex> = nodes
        .iter()
        .flat_map(|&node| {
            let neighbours = dag.graph.neighbors_undirected(node);
            neighbours.filter(move |&other| is_other(node, other))
        })
        .collect();
    nodes.extend(around);
    nodes
}

fn reach(dag: &Dag, from: &HashSet<NodeIndex>, direction: Direction) -> HashSet<NodeIndex> {
    let mut found = from.clone();
    let mut waiting: Vec<NodeIndex> = from.iter().copied().collect();
    while let Some(node) = waiting.pop() {
        for edge in dag.graph.edges_directed(node, direction) {
            let next = match direction {
                Direction::Outgoing => edge.target(),
                Direction::Incoming => edge.source(),
            };
            // A fork shows no dependency.
            if edge.weight().kind.is_data() && found.insert(next) {
                waiting.push(next);
            }
        }
    }
    found
}

fn found(
    dag: &Dag,
    fits: impl Fn(NodeIndex) -> bool,
    names: &[String],
) -> Result<HashSet<NodeIndex>, NothingFits> {
    let found: HashSet<NodeIndex> = dag.graph.node_indices().filter(|&n| fits(n)).collect();
    if found.is_empty() {
        return Err(NothingFits(format!(
            "nothing in the graph fits {}",
            names.join(", ")
        )));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use crate::paths::glob;

    #[test]
    fn patterns_fit_as_in_a_shell() {
        for (pattern, text, fits) in [
            ("*.fits", "a/b.fits", true),
            ("m*Fit", "mDiffFit", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("a*b*c", "aXXbYYc", true),
            ("a*b*c", "aXXcYYb", false),
            ("", "x", false),
        ] {
            assert_eq!(glob(pattern, text), fits, "{pattern} {text}");
        }
    }
}
