//! The workflow as a graph of processes and files, by ParaTrac's causal orders: a fork puts the parent before
//! the child, a read puts the file before the process, a write or creation puts the process before the file.
//! A pipe puts its writer before its reader.
//!
//! The graph is always acyclic. A file that was changed after a process had read it appears as several
//! versions ([`versions`]). A process that got back data that it had caused is cut into versions, too, by
//! [`lineage()`]; [`build()`] keeps it whole. An edge that still closes a cycle is left out and listed
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
/// the processes that they had started.
pub const MOST_VERSIONS: u32 = 8;

/// A node of the workflow graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// A process, its images merged: the shell's image opens a redirection and the program's image writes it.
    Process {
        /// The process.
        id: ProcessId,
        /// Counted from 1.
        version: u32,
        /// Number of its versions: more than one where a single node would close a cycle.
        versions: u32,
    },
    /// The contents of a file from one change after a read to the next.
    File {
        /// The file.
        file: FileIndex,
        /// Counted from 1.
        version: u32,
        /// Number of versions of the file.
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

    /// Size of a file when last seen, bytes; that of its newest version. The size of a version that another
    /// one replaced is not known.
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

/// Version of its process that a node is, from 1; 0 for the whole process, which is not the same as the first
/// version of a sibling.
fn part_of_life(node: &Node) -> u32 {
    match *node {
        Node::Process {
            version, versions, ..
        } if versions > 1 => version,
        _ => 0,
    }
}

/// Relation that an edge stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeKind {
    /// Parent to child.
    Fork,
    /// An older version of a file to the next, whose contents build on it; a version of a process to the
    /// next.
    Update,
    /// File to the process that ran it as its program.
    Exec,
    /// Process to process through sockets: [`Edge::way`] has the direction of the data.
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

    /// Returns true if data may have moved.
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
    /// Direction of the data through sockets; for all other edges forth.
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
    /// Time of the first use, ns.
    pub first_ns: i64,
    /// Time of the last use, ns.
    pub last_ns: i64,
    /// True if other versions of the process took part, too, but are not connected because that would close a
    /// cycle.
    pub is_narrowed: bool,
    /// True if the bytes were not counted, and are a bound.
    pub is_bound: bool,
}

impl Edge {
    /// An edge that stands for one instant and moves nothing.
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

    /// Bytes moved along the edge: those written where it leads to a file, else those read. Where they are a
    /// bound, at most these. Through sockets both directions, as far as that is known.
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

    /// Calls that moved these bytes.
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
    /// Node where the edge would have begun.
    pub from: NodeIndex,
    /// Node where the edge would have ended.
    pub to: NodeIndex,
    /// The edge itself.
    pub edge: Edge,
}

/// The workflow graph.
#[derive(Clone, Debug, Default)]
pub struct Dag {
    /// Processes in their order, then files in theirs, then later versions of processes.
    pub graph: DiGraph<Node, Edge>,
    /// Edges left out so that the graph has no cycle, in the order of their ends.
    pub dropped: Vec<Dropped>,
    /// Begin of the second and each later version of the processes that are cut, ns.
    pub cuts: BTreeMap<ProcessId, Vec<i64>>,
}

#[cfg(test)]
mod tests;
