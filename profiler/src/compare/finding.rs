//! One difference between runs.

use serde::Serialize;

/// Smallest share of the smaller value by which a difference counts.
pub(super) const LEAST_SHARE: f64 = 0.5;

/// The subject of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// The run itself.
    Run,
    /// The packets of the run.
    Network,
    /// A file that existed before the run.
    Input,
    /// A rule.
    Rule,
    /// A file that the run made.
    File,
}

/// The kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// It is only in the second side.
    New,
    /// It is only in the first side.
    Gone,
    /// It was executed, or exists, more or fewer times.
    Count,
    /// It took another time, not counting waits for a CPU, ns.
    Time,
    /// It used another CPU time, ns.
    Cpu,
    /// It waited for another time, ns.
    Waits,
    /// Its processes, together, took another time from begin to end, ns; the remark says why.
    Span,
    /// It read another amount, bytes.
    Reads,
    /// It wrote another amount, bytes.
    Writes,
    /// It read with another number of calls.
    ReadCalls,
    /// It wrote with another number of calls.
    WriteCalls,
    /// It has another size, bytes.
    Size,
    /// It took another time in all, ns.
    Duration,
    /// It iterates at another rate, per second.
    Rate,
    /// It has another period, ns.
    Period,
    /// It sends another number of messages.
    Messages,
    /// It sends another amount of payload, bytes.
    Payload,
    /// Another process holds the others up. The values are the delays of that process, ns.
    Balance,
}

/// One difference between the sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The subject of the difference.
    pub subject: Subject,
    /// Name of the subject: a rule, or a pattern of file names.
    pub name: String,
    /// The kind of change.
    pub change: Change,
    /// Mean of the first side.
    pub a: f64,
    /// Mean of the second side.
    pub b: f64,
    /// Probability of such a difference by chance, corrected for the number of tests; `None` if not
    /// tested.
    pub p: Option<f64>,
    /// Cost of a new or gone rule, or its share of the critical path.
    pub remark: Option<String>,
}
