//! Steps of a critical path, and the evidence for them.

use std::sync::Arc;

use crate::model::{ProcessId, Stint};
/// A part of the path spent in one program of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The process.
    pub process: ProcessId,
    /// The program that it ran.
    pub program: Stint,
    /// Begin, ns.
    pub from_ns: i64,
    /// End, ns.
    pub to_ns: i64,
    /// Activity of the process.
    pub kind: StepKind,
}

/// Activity of a process on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepKind {
    /// The process worked: it ran, waited for a CPU or for storage, or slept.
    Work,
    /// The process waited although the blocker had come, as far as is known: it woke late, or the other
    /// process is not known that well.
    Late,
    /// Job control had stopped it for most of the time.
    Stopped,
    /// The process had not begun, and as far as is known nothing else of the run had to happen before.
    NotBegun,
}

/// Evidence for the waits of all processes, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Waits seen by samples.
    pub sampled_ns: i64,
    /// Waits that follow from exact times of CPU and storage, or are taken to be waits because nothing else
    /// is known.
    pub inferred_ns: i64,
}

/// Contribution of one rule to the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contribution {
    /// The rule.
    pub rule: Arc<str>,
    /// Its processes on the path.
    pub processes: i64,
    /// Time of the path spent in them, ns.
    pub ns: i64,
    /// Length of the path if the rule took half its time, ns.
    pub halved_ns: i64,
}
