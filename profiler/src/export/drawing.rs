//! A graph ready to be written in any graph format. All formats of one invocation have the same nodes,
//! edges, ids and attributes.
//!
//! The stored edges never make a cycle. An edge against the order of the others is stored with its ends
//! exchanged and drawn with its head at the begin ([`Order::Back`]). Examples are the fork of a child
//! whose answer the parent read, and a host that sends to one from which it receives. A picture shows
//! the true direction, and a program that sorts the graph finds no cycle.

mod labels;
mod process;
mod rule;

use std::collections::HashMap;

use petgraph::graph::NodeIndex;
pub use process::of_processes;
pub use rule::of_rules;

use crate::analysis::critical_path::CriticalPath;
use crate::analysis::critical_path::route::{Added, Link, route};
use crate::graph::order::Order as Places;
use crate::graph::{Dag, EdgeKind};
use crate::model::{ProcessId, Way, Workflow};

/// Longest command or path in an attribute, in characters. Graphviz fails on strings over 16 384 bytes,
/// and a character has at most 4.
const LONGEST: usize = 1000;

/// Attribute of nodes and edges: 1 if on the critical path.
const ON_PATH: &str = "on_critical_path";

/// A graph to be drawn.
#[derive(Clone, Debug, Default)]
pub struct Drawing {
    /// Title of the graph, one line.
    pub title: String,
    /// Facts about the whole graph, by name.
    pub attributes: Vec<(&'static str, Value)>,
    /// Nodes, in a stable order.
    pub nodes: Vec<DrawnNode>,
    /// Edges, in a stable order.
    pub edges: Vec<DrawnEdge>,
    /// Number of texts that were shortened.
    pub shortened: i64,
}

/// A node of a drawing.
#[derive(Clone, Debug)]
pub struct DrawnNode {
    /// Id of the node: `p` and the upid of a process's first image; `f` and the id of a file; both with `_`
    /// and the version from the second one on; `r` and `g` for groups of processes and files; `more` for
    /// the nodes that were cut.
    pub id: String,
    /// Kind of the node.
    pub shape: Shape,
    /// The lines of its label.
    pub label: Vec<String>,
    /// Hue of the node in degrees; `None` for no colour.
    pub hue: Option<u16>,
    /// Processes of the node, in order; empty for a file.
    pub processes: Vec<ProcessId>,
    /// Those of the processes that go on as a later version, in order. That version has the measured
    /// values.
    pub goes_on: Vec<ProcessId>,
    /// True if the node is on the critical path.
    pub is_critical: bool,
    /// Facts about the node, by name.
    pub attributes: Vec<(&'static str, Value)>,
    /// Weight of the node. The heaviest nodes stay if there are too many.
    pub weight: i64,
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One or more processes.
    Process,
    /// One or more files.
    File,
    /// The nodes that were cut.
    More,
}

/// An edge of a drawing.
#[derive(Clone, Debug)]
pub struct DrawnEdge {
    /// Place of the node at which the edge begins.
    pub from: usize,
    /// Place of the node at which the edge ends.
    pub to: usize,
    /// Kind of the edge.
    pub relation: Relation,
    /// Direction of the data. Only sockets have another one than forth.
    pub way: Way,
    /// Relation of the edge to the order of the others.
    pub order: Order,
    /// The lines of its label.
    pub label: Vec<String>,
    /// Bytes moved along the edge, or an upper bound.
    pub bytes: i64,
    /// Bytes per second of the time in the calls that moved them; `None` if not known.
    pub bytes_per_s: Option<i64>,
    /// True if the edge is on the critical path.
    pub is_critical: bool,
    /// Facts about the edge, by name.
    pub attributes: Vec<(&'static str, Value)>,
}

/// The kind of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// An edge of the workflow graph.
    Graph(EdgeKind),
    /// A step of the critical path without data or fork: the second process began or went on when the
    /// first one had ended or released it.
    Wait,
}

impl Relation {
    /// Name shown to people.
    pub const fn name(self) -> &'static str {
        match self {
            Relation::Graph(kind) => kind.name(),
            Relation::Wait => "wait",
        }
    }
}

/// The relation of an edge to the order of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The edge is part of the order: its begin comes before its end.
    Forward,
    /// The edge is no part of the order, and does not contradict it.
    Beside,
    /// The edge leads back: `from` and `to` are exchanged, and so is the head of its arrow.
    Back,
}

impl DrawnEdge {
    /// An edge along which nothing moves.
    fn plain((from, to): (usize, usize), relation: Relation) -> DrawnEdge {
        DrawnEdge {
            from,
            to,
            relation,
            way: Way::Forth,
            order: Order::Forward,
            label: Vec::new(),
            bytes: 0,
            bytes_per_s: None,
            is_critical: false,
            attributes: vec![("kind", Value::Text(relation.name().into()))],
        }
    }

    /// Puts the edge into the order of the others, with its ends exchanged if it would close a cycle.
    fn put_in(&mut self, places: &mut Places) {
        if !places.add(self.from as u32, self.to as u32) {
            (self.from, self.to) = (self.to, self.from);
            self.order = Order::Back;
            places.add(self.from as u32, self.to as u32);
        }
    }

    /// Places of the nodes from which and to which the edge leads in truth.
    pub const fn leads(&self) -> (usize, usize) {
        match self.order {
            Order::Back => (self.to, self.from),
            Order::Forward | Order::Beside => (self.from, self.to),
        }
    }
}

/// The value of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A whole number.
    Integer(i64),
    /// A text without control characters.
    Text(String),
}

impl Drawing {
    /// Keeps the `most` heaviest nodes and counts the others in one more node, so that every cut is
    /// visible.
    pub fn limit(&mut self, most: usize) {
        if self.nodes.len() <= most {
            return;
        }
        let kept_count = most.saturating_sub(1);
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|&i| (std::cmp::Reverse(self.nodes[i].weight), i));
        let mut is_kept = vec![false; self.nodes.len()];
        for &i in order.iter().take(kept_count) {
            is_kept[i] = true;
        }
        let cut = self.nodes.len() - kept_count;
        let place: HashMap<usize, usize> = (0..self.nodes.len())
            .filter(|&i| is_kept[i])
            .enumerate()
            .map(|(new, old)| (old, new))
            .collect();
        let edges = self.edges.len();
        self.edges
            .retain_mut(|edge| match (place.get(&edge.from), place.get(&edge.to)) {
                (Some(&from), Some(&to)) => {
                    (edge.from, edge.to) = (from, to);
                    true
                }
                _ => false,
            });
        let cut_edges = edges - self.edges.len();
        let mut i = 0;
        self.nodes.retain(|_| {
            i += 1;
            is_kept[i - 1]
        });
        self.nodes.push(DrawnNode {
            id: "more".into(),
            shape: Shape::More,
            label: vec![format!("+{cut} more"), format!("with {cut_edges} edges")],
            hue: None,
            processes: Vec::new(),
            goes_on: Vec::new(),
            is_critical: false,
            attributes: vec![
                ("nodes_cut", Value::Integer(cut as i64)),
                ("edges_cut", Value::Integer(cut_edges as i64)),
            ],
            weight: 0,
        });
        self.attributes
            .push(("nodes_cut", Value::Integer(cut as i64)));
        self.attributes
            .push(("edges_cut", Value::Integer(cut_edges as i64)));
    }

    /// Adds edges that make the order. If they have a cycle, the lightest edges of data become
    /// [`Order::Back`].
    fn add_in_order(&mut self, mut edges: Vec<DrawnEdge>) {
        let ranks = vec![0; self.nodes.len()];
        let ends = |edge: &DrawnEdge| (edge.from as u32, edge.to as u32);
        if Places::of(&ranks, edges.iter().map(ends)).is_none() {
            let mut heaviest: Vec<usize> = (0..edges.len()).collect();
            let is_data = |edge: &DrawnEdge| edge.relation != Relation::Graph(EdgeKind::Fork);
            heaviest.sort_by_key(|&at| {
                let edge = &edges[at];
                std::cmp::Reverse((is_data(edge), edge.bytes, std::cmp::Reverse(at)))
            });
            if let Some(mut places) = Places::of(&ranks, std::iter::empty()) {
                for at in heaviest {
                    edges[at].put_in(&mut places);
                }
            }
        }
        self.edges.extend(edges);
    }

    /// Adds edges that are no part of the order.
    fn add_beside(&mut self, edges: Vec<DrawnEdge>) {
        if edges.is_empty() {
            return;
        }
        let ranks = vec![0; self.nodes.len()];
        let ends = |edge: &DrawnEdge| (edge.from as u32, edge.to as u32);
        let Some(mut places) = Places::of(&ranks, self.edges.iter().map(ends)) else {
            unreachable!("what was added before makes no cycle");
        };
        for mut edge in edges {
            edge.order = Order::Beside;
            edge.put_in(&mut places);
            self.edges.push(edge);
        }
    }

    /// Marks the critical path: its processes, and the one way through the graph that it takes from
    /// each process to the next, with the files on it. Adds the steps for which there is no edge, the
    /// work of each process, and its slack. `place` returns the node of the drawing for a node of the
    /// graph.
    pub fn mark_critical(
        &mut self,
        workflow: &Workflow,
        dag: &Dag,
        path: &CriticalPath,
        place: impl Fn(NodeIndex) -> usize,
    ) {
        let stays = path.stays(workflow, dag);
        let stays = stays
            .iter()
            .map(|stay| (stay.node.map(&place), stay.is_forked));
        let is_file: Vec<bool> = self.nodes.iter().map(|n| n.shape == Shape::File).collect();
        let link = |edge: &DrawnEdge| {
            let (from, to) = edge.leads();
            let kind = match edge.relation {
                Relation::Graph(kind) => kind,
                Relation::Wait => EdgeKind::Fork,
            };
            Link {
                from,
                to,
                kind,
                bytes: edge.bytes,
            }
        };
        let links: Vec<Link> = self.edges.iter().map(link).collect();
        let found = route(stays, &is_file, &links);
        for (edge, is_on) in self.edges.iter_mut().zip(found.is_edge) {
            edge.is_critical = is_on;
        }
        let added = |step: Added| DrawnEdge {
            is_critical: true,
            ..DrawnEdge::plain(
                (step.from, step.to),
                match step.is_fork {
                    true => Relation::Graph(EdgeKind::Fork),
                    false => Relation::Wait,
                },
            )
        };
        self.add_beside(found.added.into_iter().map(added).collect());
        for (node, is_on) in self.nodes.iter_mut().zip(found.is_node) {
            node.is_critical = is_on;
            if node.shape == Shape::Process {
                let ends = |id: &&ProcessId| node.goes_on.binary_search(id).is_err();
                let own = node.processes.iter().filter(ends);
                let own = own.map(|id| path.own_ns[id.0 as usize]);
                let own = own.fold(0, i64::saturating_add);
                let slack = node.processes.iter();
                let slack = slack.filter_map(|id| path.slack_ns[id.0 as usize]).min();
                node.attributes.push(("own_ns", Value::Integer(own)));
                node.attributes
                    .extend(slack.map(|ns| ("slack_ns", Value::Integer(ns))));
            }
            let is_on = Value::Integer(i64::from(is_on));
            node.attributes.push((ON_PATH, is_on));
        }
        for edge in &mut self.edges {
            let is_on = Value::Integer(i64::from(edge.is_critical));
            edge.attributes.push((ON_PATH, is_on));
            if edge.order != Order::Forward {
                edge.attributes.push(("constraint", Value::Integer(0)));
            }
            if edge.order == Order::Back {
                edge.attributes.push(("dir", Value::Text("back".into())));
            }
        }
    }

    /// Adds to every node the numbers of edges that lead to it and from it.
    fn add_degrees(&mut self) {
        let mut degrees = vec![(0, 0); self.nodes.len()];
        for edge in &self.edges {
            let (from, to) = edge.leads();
            degrees[from].1 += 1;
            degrees[to].0 += 1;
        }
        for (node, (incoming, outgoing)) in self.nodes.iter_mut().zip(degrees) {
            node.attributes
                .push(("in_degree", Value::Integer(incoming)));
            node.attributes
                .push(("out_degree", Value::Integer(outgoing)));
        }
    }

    /// A text for an attribute, without control characters and of bounded length.
    fn text(&mut self, text: &str) -> Value {
        Value::Text(self.cut(text, LONGEST))
    }

    /// A text of at most `width` characters. Shortened texts are counted.
    fn cut(&mut self, text: &str, width: usize) -> String {
        let plain = flowtrace_render::units::plain(text);
        if plain.chars().count() > width {
            self.shortened += 1;
        }
        flowtrace_render::units::shorten(&plain, width)
    }
}

/// A hue for a rule, the same in every drawing of every run.
pub(super) fn hue(rule: &str) -> u16 {
    // FNV-1a; its low bits spread short names well enough over 36 hues.
    let hash = rule.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) as u16 % 36 * 10
}
