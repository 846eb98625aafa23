//! Steps of a critical path, and what they rest on.

use std::sync::Arc;

use crate::model::{ProcessId, Stint};
/// A stretch of the path spent in one program of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The process.
    pub process: ProcessId,
    /// What it ran then.
    pub program: Stint,
    /// Begin, ns.
    pub from_ns: i64,
    /// End, ns.
    pub to_ns: i64,
    /// What it did.
    pub kind: StepKind,
}

/// What a process did on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepKind {
    /// It worked: ran, waited for a processor or for storage, slept.
    Work,
    /// It waited, and what it waited for had come, as far as is known: it woke late, or the other
    /// process is not known that well.
    Late,
    /// Job control had stopped it for most of that time.
    Stopped,
    /// It had not begun, and nothing else of the run had to happen before it as far as is known.
    NotBegun,
}

/// How the waits of all processes are known, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Waits that samples saw.
    pub sampled_ns: i64,
    /// Waits that follow from exact times of processor and storage, or are taken to be waits
    /// because nothing else is known.
    pub inferred_ns: i64,
}

/// What one rule contributed to the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contribution {
    /// The rule.
    pub rule: Arc<str>,
    /// Its processes on the path.
    pub processes: i64,
    /// Time of the path spent in them, ns.
    pub ns: i64,
    /// How long the path would be if the rule took half its time, ns.
    pub halved_ns: i64,
}
