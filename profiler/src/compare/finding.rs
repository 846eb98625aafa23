//! One difference between runs.

use serde::Serialize;

/// Nor when by less than this share of the smaller one.
pub(super) const LEAST_SHARE: f64 = 0.5;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// The run itself.
    Run,
    /// What its packets say.
    Network,
    /// A file that was there before.
    Input,
    /// A kind of step.
    Rule,
    /// A file that the run made.
    File,
}

/// How it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Only in the second.
    New,
    /// Only in the first.
    Gone,
    /// Was executed, or is there, more or fewer times.
    Count,
    /// Took another time, without waiting for a processor, ns.
    Time,
    /// Needed another CPU time, ns.
    Cpu,
    /// Waited for another time, ns.
    Waits,
    /// Reads another amount, bytes.
    Reads,
    /// Writes another amount, bytes.
    Writes,
    /// Has another size, bytes.
    Size,
    /// Took another time in all, ns.
    Duration,
    /// Iterates more or less often, per second.
    Rate,
    /// Has another period, ns.
    Period,
    /// Sends another number of messages.
    Messages,
    /// Sends another amount of payload, bytes.
    Payload,
    /// Somebody else holds the others up; values are his delays, ns.
    Balance,
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub subject: Subject,
    /// Its name: a rule, or a pattern of file names.
    pub name: String,
    /// What changed.
    pub change: Change,
    /// Mean of the first side.
    pub a: f64,
    /// Mean of the second side.
    pub b: f64,
    /// Probability of such a difference by chance, corrected; `None`: not tested.
    pub p: Option<f64>,
    /// What a new or gone rule costs, or what moved on the critical path.
    pub remark: Option<String>,
}
