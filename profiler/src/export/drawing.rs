//! A graph ready to be written in any graph format, so that all formats of one invocation have
//! the same nodes, edges, ids and attributes.

mod labels;
mod process;
mod rule;

pub use process::of_processes;
pub use rule::of_rules;

use std::collections::HashMap;

use crate::model::{ProcessId, Way};

/// Longest command or path in an attribute, in characters. Graphviz gives up on strings over
/// 16 384 bytes, and a character has at most 4.
const LONGEST: usize = 1000;

/// A graph to be drawn.
#[derive(Clone, Debug, Default)]
pub struct Drawing {
    /// What it shows, one line.
    pub title: String,
    /// Facts on the whole.
    pub attributes: Vec<(&'static str, Value)>,
    /// In a stable order.
    pub nodes: Vec<DrawnNode>,
    /// In a stable order.
    pub edges: Vec<DrawnEdge>,
    /// Texts that were shortened.
    pub shortened: i64,
}

/// A node of a drawing.
#[derive(Clone, Debug)]
pub struct DrawnNode {
    /// `p` and the upid of a process's first image; `f` and the id of a file, both with `_` and the
    /// version from the second on; `r` and `g` for groups of them; `more` for what was cut.
    pub id: String,
    /// What it stands for.
    pub shape: Shape,
    /// The lines of its label.
    pub label: Vec<String>,
    /// Hue in degrees; `None`: no colour.
    pub hue: Option<u16>,
    /// Processes that it stands for, in order; of a file none.
    pub processes: Vec<ProcessId>,
    /// Those of them that go on as a later version, where what was measured of them stands; in order.
    pub goes_on: Vec<ProcessId>,
    /// Whether it is on the critical path.
    pub is_critical: bool,
    /// Facts, by name.
    pub attributes: Vec<(&'static str, Value)>,
    /// Decides who stays when there are too many.
    pub weight: i64,
}

/// What a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A process or several.
    Process,
    /// A file or several.
    File,
    /// What was cut.
    More,
}

/// An edge of a drawing.
#[derive(Clone, Debug)]
pub struct DrawnEdge {
    /// Place of the node where it begins.
    pub from: usize,
    /// Place of the node where it ends.
    pub to: usize,
    /// Relation: create, write, read, exec, update, fork.
    pub kind: crate::graph::EdgeKind,
    /// Which way data went; only through sockets anything but forth.
    pub way: Way,
    /// Label; empty: none.
    pub label: String,
    /// Whether it is on the critical path.
    pub is_critical: bool,
    /// Facts, by name.
    pub attributes: Vec<(&'static str, Value)>,
}

/// A fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A whole number.
    Integer(i64),
    /// A text without control characters.
    Text(String),
}

impl Drawing {
    /// Keeps the `most` heaviest nodes and counts the others in a node of their own, so that no
    /// cut is silent.
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

    /// Marks what is on the critical path: its processes, the files through which one of them gave data to
    /// another, and the edges between all these. Adds what each process worked and its slack.
    pub fn mark_critical(
        &mut self,
        is_on_path: impl Fn(ProcessId) -> bool,
        slack_ns: &[Option<i64>],
        own_ns: &[i64],
    ) {
        for node in &mut self.nodes {
            let ends = |id: &&ProcessId| node.goes_on.binary_search(id).is_err();
            let own = node.processes.iter().filter(ends);
            let own = own.map(|id| own_ns[id.0 as usize]);
            let slack = node
                .processes
                .iter()
                .filter_map(|id| slack_ns[id.0 as usize])
                .min();
            node.is_critical = node.processes.iter().any(|&id| is_on_path(id));
            if node.shape == Shape::Process {
                let own = own.fold(0, i64::saturating_add);
                node.attributes.push(("own_ns", Value::Integer(own)));
                node.attributes
                    .extend(slack.map(|ns| ("slack_ns", Value::Integer(ns))));
            }
        }
        let (mut is_fed, mut feeds) =
            (vec![false; self.nodes.len()], vec![false; self.nodes.len()]);
        for edge in self.edges.iter().filter(|edge| edge.kind.is_data()) {
            is_fed[edge.to] |= self.nodes[edge.from].is_critical;
            feeds[edge.from] |= self.nodes[edge.to].is_critical;
        }
        for (at, node) in self.nodes.iter_mut().enumerate() {
            node.is_critical |= node.shape == Shape::File && is_fed[at] && feeds[at];
        }
        for edge in &mut self.edges {
            let (from, to) = (&self.nodes[edge.from], &self.nodes[edge.to]);
            edge.is_critical = edge.kind.is_data() && from.is_critical && to.is_critical;
        }
        for node in &mut self.nodes {
            let is_critical = i64::from(node.is_critical);
            node.attributes
                .push(("critical", Value::Integer(is_critical)));
        }
    }

    /// Adds to every node how many edges come and go.
    fn add_degrees(&mut self) {
        let mut degrees = vec![(0, 0); self.nodes.len()];
        for edge in &self.edges {
            degrees[edge.from].1 += 1;
            degrees[edge.to].0 += 1;
        }
        for (node, (incoming, outgoing)) in self.nodes.iter_mut().zip(degrees) {
            node.attributes
                .push(("in_degree", Value::Integer(incoming)));
            node.attributes
                .push(("out_degree", Value::Integer(outgoing)));
        }
    }

    /// A text for an attribute: safe, and of bounded length.
    fn text(&mut self, text: &str) -> Value {
        Value::Text(self.cut(text, LONGEST))
    }

    /// A text of at most `width` characters; cuts are counted.
    fn cut(&mut self, text: &str, width: usize) -> String {
        let plain = crate::text::units::plain(text);
        if plain.chars().count() > width {
            self.shortened += 1;
        }
        crate::text::units::shorten(&plain, width)
    }
}

/// A hue for a rule: the same in every drawing of every run.
pub(super) fn hue(rule: &str) -> u16 {
    // FNV-1a; its low bits spread short names well enough over 36 hues.
    let hash = rule.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) as u16 % 36 * 10
}
