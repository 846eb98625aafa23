//! The rule graph: one node for all processes of a rule, one for all files of one kind between
//! the same rules. Small enough for a page where the process graph is not.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;
use twins::Kind;

use super::endings::Endings;
use super::rounds::{Rounds, by_neighbours, rounds};
use super::workers::workers;
use super::{Dag, EdgeKind, Node};
use crate::model::{FileIndex, ProcessId, Way, Workflow};

pub(crate) mod forks;
mod twins;

/// More kinds of files than this between the same rules become one node.
const KINDS: usize = 6;

/// A node of the rule graph.
#[derive(Clone, Debug)]
pub struct Group {
    /// Processes or files of the group.
    pub members: Members,
    /// Number of this part of the group, from 1, where the group had to be split to keep the graph acyclic.
    pub round: u32,
    /// Number of parts of the group.
    pub rounds: u32,
    /// Version of its processes, from 1.
    pub version: u32,
    /// Greatest number of versions of one of its processes.
    pub versions: u32,
    /// Processes that go on as a later version, which has their measured values.
    pub goes_on: Vec<ProcessId>,
    /// True if the processes are copies at work of the program that forked them, as the workers of a pool.
    pub is_fork: bool,
    /// Files that no other process wrote or read, where these are no nodes ([`by_place`]).
    pub inner_files: i64,
    /// Size of these files, bytes, as far as known.
    pub inner_bytes: i64,
}

impl Group {
    /// Suffix of the name: the version of its processes, ` [1/2]`, or nothing; and the mark of copies
    /// ([`Group::fork_mark`]).
    pub fn mark(&self) -> String {
        let fork = self.fork_mark();
        match self.versions {
            0 | 1 => fork.into(),
            versions => format!("{fork} [{}/{versions}]", self.version),
        }
    }

    /// Suffix of the name for copies of the program that they worked for: ` (fork)`, or nothing.
    pub fn fork_mark(&self) -> &'static str {
        if self.is_fork { " (fork)" } else { "" }
    }
}

/// The members of a group.
#[derive(Clone, Debug)]
pub enum Members {
    /// Processes of one rule.
    Processes {
        /// The rule.
        rule: Arc<str>,
        /// Their ids, in the order of discovery.
        processes: Vec<ProcessId>,
    },
    /// Files that the same rules wrote and the same rules read.
    Files {
        /// The common form of their names.
        pattern: String,
        /// Each once, in order.
        files: Vec<FileIndex>,
        /// Size of the files whose newest version is a member, bytes, as far as known; `None`: no such file.
        /// The size of a version that another one replaced is not known.
        size_bytes: Option<i64>,
    },
}

/// An edge of the rule graph: edges of the workflow graph taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupEdge {
    /// The strongest kind among them.
    pub kind: EdgeKind,
    /// Number of edges.
    pub count: i64,
    /// Direction of the data of the strongest edge.
    pub way: Way,
    /// Bytes moved along them.
    pub bytes: i64,
    /// The part of `bytes` that went the other way, through sockets.
    pub back_bytes: i64,
    /// True if the bytes of one of the edges are a bound.
    pub is_bound: bool,
    /// Calls that moved these bytes.
    pub calls: i64,
    /// Time in these calls, ns.
    pub latency_ns: i64,
    /// Time of the first use, ns.
    pub first_ns: i64,
    /// Time of the last use, ns.
    pub last_ns: i64,
}

/// The rule graph.
#[derive(Clone, Debug, Default)]
pub struct RuleGraph {
    /// Acyclic, except for the graph of [`by_place`].
    pub graph: DiGraph<Group, GroupEdge>,
    /// Forks not drawn because the child's rule is connected by data already.
    pub hidden_forks: usize,
    /// Data edges of the workflow graph whose ends are in the same group.
    pub inner_edges: usize,
    /// The group of every node of the workflow graph.
    pub group_of: Vec<NodeIndex>,
    /// Cycles that the contraction would have made: the first parts of the groups on each, which were split
    /// to avoid it.
    pub cycles: Vec<Vec<NodeIndex>>,
}

impl RuleGraph {
    /// The name of a group: its rule, or the common form of its files.
    pub fn name(&self, group: NodeIndex) -> &str {
        match &self.graph[group].members {
            Members::Processes { rule, .. } => rule,
            Members::Files { pattern, .. } => pattern,
        }
    }

    /// A group as part of a sentence, with unchanged names: files are distinguished from rules of the same
    /// name.
    pub fn described(&self, workflow: &Workflow, group: NodeIndex) -> String {
        let cwd = workflow.runs.first().map_or("", |run| run.cwd.as_str());
        match &self.graph[group].members {
            Members::Processes { rule, .. } => format!("{rule}{}", self.graph[group].mark()),
            Members::Files { pattern, files, .. } => {
                let many = if files.len() == 1 { "" } else { "s" };
                format!("file{many} {}", crate::paths::relative(pattern, cwd))
            }
        }
    }
}

/// Property that all nodes of one group share.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    /// The label of processes, and the version of these.
    Label(u32, u32),
    Files {
        producers: Vec<(u32, u32)>,
        consumers: Vec<(u32, u32)>,
        kind: Option<Kind>,
    },
}

/// Contracts the workflow graph by rule.
pub fn by_rule(workflow: &Workflow, dag: &Dag) -> RuleGraph {
    let workers = workers(workflow, dag);
    of_labels(workflow, dag, &rules(workflow), &workers)
}

/// The rules of all processes.
fn rules(workflow: &Workflow) -> Vec<Arc<str>> {
    let rule = |id| Arc::clone(workflow.rule(id));
    workflow.process_ids().map(rule).collect()
}

/// Contracts the workflow graph: the processes of one label become one node. `labels` has the label of
/// every process of the workflow, also where `dag` is a part of its graph.
pub fn by_label(workflow: &Workflow, dag: &Dag, labels: &[Arc<str>]) -> RuleGraph {
    of_labels(workflow, dag, labels, &vec![false; labels.len()])
}

fn of_labels(workflow: &Workflow, dag: &Dag, labels: &[Arc<str>], workers: &[bool]) -> RuleGraph {
    let label_of = numbers(labels, workers);
    let (part, hidden_forks) = forks::without_plain(dag, &label_of);
    let group = group_numbers(workflow, &part, &label_of, false);
    let mut round = rounds(&part, &group);
    by_neighbours(&part, &group, &mut round, |node| {
        matches!(part[node], Node::Process { .. })
    });
    let labels = Labels {
        of: labels,
        workers,
        is_place: false,
    };
    contract(workflow, &part, labels, (&group, round), hidden_forks)
}

/// Contracts the workflow graph to one node for each label, such as a machine, a directory or a job, even
/// where that makes cycles: if two labels give each other data, each comes after the other. Files that only
/// processes of one label wrote and read are part of its node.
pub fn by_place(workflow: &Workflow, dag: &Dag, labels: &[Arc<str>]) -> RuleGraph {
    let workers = vec![false; labels.len()];
    let label_of = numbers(labels, &workers);
    let (part, hidden_forks) = forks::without_plain(dag, &label_of);
    let group = group_numbers(workflow, &part, &label_of, true);
    let rounds = Rounds {
        of: vec![0; part.node_count()],
        cycles: Vec::new(),
    };
    let labels = Labels {
        of: labels,
        workers: &workers,
        is_place: true,
    };
    contract(workflow, &part, labels, (&group, rounds), hidden_forks)
}

/// Contracts processes of one rule whose neighbours are alike, and files of one kind whose neighbours are:
/// the steps that a map repeats over many inputs become one chain.
pub fn by_twins(workflow: &Workflow, dag: &Dag) -> RuleGraph {
    let (labels, workers) = (rules(workflow), workers(workflow, dag));
    let label_of = numbers(&labels, &workers);
    let (part, hidden_forks) = forks::without_plain(dag, &label_of);
    let group = twins::numbers(workflow, &part, &label_of);
    let round = rounds(&part, &group);
    let labels = Labels {
        of: &labels,
        workers: &workers,
        is_place: false,
    };
    contract(workflow, &part, labels, (&group, round), hidden_forks)
}

/// Labels by which processes are grouped.
#[derive(Clone, Copy)]
struct Labels<'a> {
    /// The label of every process.
    of: &'a [Arc<str>],
    /// For every process: true if it is a copy at work of the process that forked it.
    workers: &'a [bool],
    /// True if all processes of a label are one node, even where that makes cycles.
    is_place: bool,
}

/// Numbers labels in the order of their first process.
fn numbers(labels: &[Arc<str>], workers: &[bool]) -> Vec<u32> {
    let mut numbers: HashMap<(&str, bool), u32> = HashMap::new();
    let mut of = Vec::with_capacity(labels.len());
    for (label, &is_worker) in labels.iter().zip(workers) {
        let next = numbers.len() as u32;
        of.push(*numbers.entry((label, is_worker)).or_insert(next));
    }
    of
}

fn group_numbers(
    workflow: &Workflow,
    part: &DiGraph<Node, super::Edge>,
    label_of: &[u32],
    is_place: bool,
) -> Vec<u32> {
    let life = |node: &Node| {
        if is_place {
            0
        } else {
            super::part_of_life(node)
        }
    };
    let rules_at = |node: NodeIndex, direction: Direction| -> Vec<(u32, u32)> {
        let rules: BTreeSet<(u32, u32)> = part
            .neighbors_directed(node, direction)
            .filter_map(|other| match part[other] {
                Node::Process { id, .. } => Some((label_of[id.0 as usize], life(&part[other]))),
                Node::File { .. } => None,
            })
            .collect();
        rules.into_iter().collect()
    };
    let endings = Endings::of(workflow);
    let key = |node: NodeIndex| match part[node] {
        Node::Process { id, .. } => Key::Label(label_of[id.0 as usize], life(&part[node])),
        Node::File { file, .. } => {
            let path = workflow.file(file).path.as_deref().unwrap_or("");
            let producers = rules_at(node, Direction::Incoming);
            let consumers = rules_at(node, Direction::Outgoing);
            if let ([(label, life)], true) = (&producers[..], is_place && producers == consumers) {
                return Key::Label(*label, *life);
            }
            Key::Files {
                producers,
                consumers,
                kind: Some((path.split('/').count(), endings.get(path).into())),
            }
        }
    };
    let mut keys: Vec<Key> = part.node_indices().map(key).collect();
    let mut kinds: HashMap<Key, BTreeSet<Kind>> = HashMap::new();
    let without_kind = |key: &Key| {
        let mut key = key.clone();
        let Key::Files { kind, .. } = &mut key else {
            return None;
        };
        let kind = kind.take()?;
        Some((key, kind))
    };
    for (key, kind) in keys.iter().filter_map(without_kind) {
        kinds.entry(key).or_default().insert(kind);
    }
    for key in &mut keys {
        if let Some((wide, _)) = without_kind(key)
            && kinds.get(&wide).is_some_and(|kinds| kinds.len() > KINDS)
        {
            *key = wide;
        }
    }
    let mut numbers: HashMap<Key, u32> = HashMap::new();
    let number = |key| {
        let next = numbers.len() as u32;
        *numbers.entry(key).or_insert(next)
    };
    keys.into_iter().map(number).collect()
}

fn contract(
    workflow: &Workflow,
    part: &DiGraph<Node, super::Edge>,
    labels: Labels<'_>,
    (group, Rounds { of: round, cycles }): (&[u32], Rounds),
    hidden_forks: usize,
) -> RuleGraph {
    let groups = group.iter().max().map_or(0, |&last| last as usize + 1);
    // Rounds may skip numbers in a group; its parts are shown as 1, 2, 3.
    let mut parts: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); groups];
    for (&group, &round) in group.iter().zip(&round) {
        parts[group as usize].insert(round);
    }
    let mut graph: DiGraph<Group, GroupEdge> = DiGraph::new();
    let mut contracted: HashMap<(u32, u32), NodeIndex> = HashMap::new();
    let mut member_of: Vec<NodeIndex> = Vec::with_capacity(part.node_count());
    for node in part.node_indices() {
        let (group, round) = (group[node.index()], round[node.index()]);
        let parts = &parts[group as usize];
        let into = *contracted.entry((group, round)).or_insert_with(|| {
            let members = match part[node] {
                Node::Process { id, .. } => Members::Processes {
                    rule: Arc::clone(&labels.of[id.0 as usize]),
                    processes: Vec::new(),
                },
                Node::File { .. } => Members::Files {
                    pattern: String::new(),
                    files: Vec::new(),
                    size_bytes: None,
                },
            };
            let place = parts.iter().take_while(|&&r| r < round).count() as u32 + 1;
            graph.add_node(Group {
                members,
                round: place,
                rounds: parts.len() as u32,
                version: 1,
                versions: 1,
                goes_on: Vec::new(),
                is_fork: false,
                inner_files: 0,
                inner_bytes: 0,
            })
        });
        member_of.push(into);
        if let Node::Process {
            id,
            version,
            versions,
        } = part[node]
            && !labels.is_place
        {
            let group = &mut graph[into];
            group.version = version;
            group.is_fork = labels.workers[id.0 as usize];
            group.versions = group.versions.max(versions);
            if version < versions {
                group.goes_on.push(id);
            }
        }
        let size = part[node].size_bytes(workflow);
        let group = &mut graph[into];
        match (&mut group.members, part[node]) {
            // A place has each process once.
            (Members::Processes { .. }, Node::Process { version: 2.., .. }) if labels.is_place => {}
            (Members::Processes { processes, .. }, Node::Process { id, .. }) => processes.push(id),
            (Members::Processes { .. }, Node::File { version: 1, .. }) => {
                group.inner_files += 1;
                group.inner_bytes = group.inner_bytes.saturating_add(size.unwrap_or(0));
            }
            (Members::Processes { .. }, Node::File { .. }) => {
                group.inner_bytes = group.inner_bytes.saturating_add(size.unwrap_or(0));
            }
            (
                Members::Files {
                    files, size_bytes, ..
                },
                Node::File { file, .. },
            ) => {
                if files.last() != Some(&file) {
                    files.push(file);
                }
                // The newest version is one node: a file is counted once.
                if let Some(size) = size {
                    *size_bytes = Some(size_bytes.unwrap_or(0).saturating_add(size));
                }
            }
            _ => {}
        }
    }
    for group in graph.node_weights_mut() {
        if let Members::Files { pattern, files, .. } = &mut group.members {
            *pattern = file_pattern(workflow, files);
        }
    }
    let mut inner_edges = 0;
    for edge in part.edge_references() {
        let (from, to) = (
            member_of[edge.source().index()],
            member_of[edge.target().index()],
        );
        if from == to {
            inner_edges += 1;
            continue;
        }
        let more = GroupEdge::of(edge.weight());
        match graph.find_edge(from, to) {
            Some(existing) => graph[existing].add(&more),
            None => {
                graph.add_edge(from, to, more);
            }
        }
    }
    // The first part of each group that was on a cycle.
    let mut first: HashMap<u32, NodeIndex> = HashMap::new();
    for (&group, &into) in group.iter().zip(&member_of) {
        if graph[into].round == 1 {
            first.entry(group).or_insert(into);
        }
    }
    let cycles = cycles
        .into_iter()
        .map(|cycle| {
            cycle
                .iter()
                .filter_map(|group| first.get(group).copied())
                .collect()
        })
        .collect();
    RuleGraph {
        graph,
        hidden_forks,
        inner_edges,
        group_of: member_of,
        cycles,
    }
}

impl GroupEdge {
    /// One edge.
    pub(crate) fn of(e: &super::Edge) -> GroupEdge {
        GroupEdge {
            kind: e.kind,
            count: 1,
            way: e.way,
            bytes: e.bytes(),
            back_bytes: e.back_bytes(),
            is_bound: e.is_bound,
            calls: e.calls(),
            latency_ns: e.latency_ns,
            first_ns: e.first_ns,
            last_ns: e.last_ns,
        }
    }

    /// Adds another edge.
    pub(crate) fn add(&mut self, more: &GroupEdge) {
        self.way = match self.kind.cmp(&more.kind) {
            Ordering::Less => more.way,
            Ordering::Equal => self.way.and(more.way),
            Ordering::Greater => self.way,
        };
        self.kind = self.kind.max(more.kind);
        self.count += more.count;
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.back_bytes = self.back_bytes.saturating_add(more.back_bytes);
        self.is_bound |= more.is_bound;
        self.calls += more.calls;
        self.latency_ns = self.latency_ns.saturating_add(more.latency_ns);
        self.first_ns = self.first_ns.min(more.first_ns);
        self.last_ns = self.last_ns.max(more.last_ns);
    }
}

fn file_pattern(workflow: &Workflow, files: &[FileIndex]) -> String {
    let path = |&file: &FileIndex| workflow.file(file).path.as_deref().unwrap_or("?");
    crate::paths::of_paths(&files.iter().map(path).collect::<Vec<_>>())
}
