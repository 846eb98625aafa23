//! The workflow as a graph of processes and files, by ParaTrac's causal orders: a fork puts the
//! parent before the child, a read puts the file before the process, a write or creation puts
//! the process before the file. A pipe puts who wrote before who read.
//!
//! The graph is always acyclic. A file that was changed after somebody had read it appears as
//! several versions ([`versions`]). A process that got back what it had caused is cut into versions, too,
//! by [`lineage()`]; [`build()`] keeps it whole. What still closes a cycle is left out and listed
//! ([`Dag::dropped`]).

mod acyclic;
pub mod arguments;
mod build;
pub(crate) mod endings;
pub mod groups;
mod lineage;
pub mod motifs;
pub(crate) mod order;
mod past;
pub(crate) mod rounds;
pub mod select;
pub mod versions;
mod workers;

use std::collections::BTreeMap;

pub use build::build;
pub use lineage::{lineage, steps};
use petgraph::graph::{DiGraph, NodeIndex};

use crate::model::{FileIndex, ProcessId, Way, Workflow};

/// Processes with more versions than these are one node in graphs of rules, and are not cut only because of
/// what they had started.
pub const MOST_VERSIONS: u32 = 8;

/// A node of the workflow graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// A process, its images merged: a redirection is opened by the shell's image and written by
    /// the program's.
    Process {
        /// The process.
        id: ProcessId,
        /// Counted from 1.
        version: u32,
        /// How many versions of it there are: more than one where as one it would close a cycle.
        versions: u32,
    },
    /// What a file held from one change after a read to the next.
    File {
        /// The file.
        file: FileIndex,
        /// Counted from 1.
        version: u32,
        /// How many versions of the file there are.
        versions: u32,
    },
}

impl Node {
    /// A process that is not cut.
    pub const fn process(id: ProcessId) -> Node {
        Node::Process {
            id,
            version: 1,
            versions: 1,
        }
    }

    /// Bytes of a file as it was when last seen, which are those of its newest version; how large one was that
    /// another replaced nobody knows.
    pub fn size_bytes(&self, workflow: &Workflow) -> Option<i64> {
        match *self {
            Node::File {
                file,
                version,
                versions,
            } if version == versions => workflow.file(file).size_bytes,
            _ => None,
        }
    }
}

/// Which version of its process a node is, from 1; 0: the whole of it, which is another thing than the first
/// version of a sibling.
fn part_of_life(node: &Node) -> u32 {
    match *node {
        Node::Process {
            version, versions, ..
        } if versions > 1 => version,
        _ => 0,
    }
}

/// What an edge stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeKind {
    /// Parent to child.
    Fork,
    /// An older version of a file to the next, whose contents build on it; a version of a process to the
    /// next.
    Update,
    /// File to the process that ran it as its program.
    Exec,
    /// Process to process through sockets: [`Edge::way`] says which way the data went.
    Socket,
    /// Process to process through a pipe or FIFO.
    Pipe,
    /// File to process.
    Read,
    /// Process to file.
    Write,
    /// Process to the file that it created.
    Create,
}

impl EdgeKind {
    /// Name shown to people.
    pub const fn name(self) -> &'static str {
        match self {
            EdgeKind::Fork => "fork",
            EdgeKind::Update => "update",
            EdgeKind::Exec => "exec",
            EdgeKind::Socket => "socket",
            EdgeKind::Pipe => "pipe",
            EdgeKind::Read => "read",
            EdgeKind::Write => "write",
            EdgeKind::Create => "create",
        }
    }

    /// Whether data may have moved.
    pub const fn is_data(self) -> bool {
        !matches!(self, EdgeKind::Fork)
    }
}

/// An edge of the workflow graph. Where a process both wrote and read a version of a file, the
/// edge is that of writing and the reading stays here as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The strongest relation: create > write > read.
    pub kind: EdgeKind,
    /// Which way the data went through sockets; of everything else forth.
    pub way: Way,
    /// Bytes written; through a pipe 0: not known; through sockets those that went forth, counted or captured.
    pub write_bytes: i64,
    /// Write calls.
    pub writes: i64,
    /// Bytes read; through sockets those that went back.
    pub read_bytes: i64,
    /// Read calls.
    pub reads: i64,
    /// Time in the calls that moved bytes along the edge, ns.
    pub latency_ns: i64,
    /// First moment, ns.
    pub first_ns: i64,
    /// Last moment, ns.
    pub last_ns: i64,
    /// Whether other versions of the process took part, too, but are not connected because that would
    /// close a cycle.
    pub is_narrowed: bool,
    /// Whether the bytes were not counted, and are a bound.
    pub is_bound: bool,
}

impl Edge {
    /// An edge that stands for a moment and moves nothing.
    pub(crate) fn at(kind: EdgeKind, at_ns: i64) -> Edge {
        Edge {
            kind,
            way: Way::Forth,
            write_bytes: 0,
            writes: 0,
            read_bytes: 0,
            reads: 0,
            latency_ns: 0,
            first_ns: at_ns,
            last_ns: at_ns,
            is_narrowed: false,
            is_bound: false,
        }
    }

    /// Bytes moved along the edge: those written where it leads to a file, else those read; where they
    /// are a bound at most these; through sockets both ways, as far as that is known.
    pub fn bytes(&self) -> i64 {
        match self.kind {
            EdgeKind::Create | EdgeKind::Write | EdgeKind::Pipe => self.write_bytes,
            EdgeKind::Read | EdgeKind::Exec => self.read_bytes,
            EdgeKind::Socket => self.write_bytes.saturating_add(self.read_bytes),
            EdgeKind::Fork | EdgeKind::Update => 0,
        }
    }

    /// Bytes that went the other way through sockets.
    pub fn back_bytes(&self) -> i64 {
        match self.kind {
            EdgeKind::Socket => self.read_bytes,
            _ => 0,
        }
    }

    /// Calls that moved them.
    pub fn calls(&self) -> i64 {
        match self.kind {
            EdgeKind::Create | EdgeKind::Write => self.writes,
            EdgeKind::Read | EdgeKind::Exec => self.reads,
            EdgeKind::Fork | EdgeKind::Update | EdgeKind::Socket | EdgeKind::Pipe => 0,
        }
    }
}

/// An edge that was left out because it would have closed a cycle, or a fork that would lead back in time. Pictures
/// draw the forks among them, as such ([`crate::export::drawing`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Where it would have begun.
    pub from: NodeIndex,
    /// Where it would have ended.
    pub to: NodeIndex,
    /// What it stood for.
    pub edge: Edge,
}

/// The workflow graph.
#[derive(Clone, Debug, Default)]
pub struct Dag {
    /// Processes in their order, then files in theirs, then later versions of processes.
    pub graph: DiGraph<Node, Edge>,
    /// Edges left out so that the graph has no cycle, in the order of their ends.
    pub dropped: Vec<Dropped>,
    /// Where processes are cut: the moments at which their second and later versions begin, ns.
    pub cuts: BTreeMap<ProcessId, Vec<i64>>,
}

#[cfg(test)]
mod tests;
