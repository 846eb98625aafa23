//! The waits of the steps, and the processes that they waited for: the table of `flowtrace waits`.

use serde::Serialize;

use super::rules::Numbers;
use crate::analysis::phrases::evidence_of;
use crate::analysis::waits::{Wait, waits};
use crate::model::Workflow;
use crate::timeline::Timeline;

/// Rows kept.
const MOST: usize = 500;

#[derive(Debug, Default, Serialize)]
pub(super) struct Waits {
    /// Waits of one rule for another, the longest first.
    waits: Vec<Row>,
    left_out: usize,
    /// The source of the waits, in words.
    evidence: &'static str,
}

#[derive(Debug, Serialize)]
struct Row {
    rule: usize,
    kind: &'static str,
    /// Rule that it waited for; `None`: not a process, or not known.
    #[serde(rename = "culprit")]
    blocker: Option<usize>,
    /// Kind of the channel.
    channel: Option<String>,
    ns: i64,
    waits: u64,
    processes: usize,
    /// True if the waiter only runs others.
    is_orchestrator: bool,
}

pub(super) fn of(workflow: &Workflow, timeline: &Timeline, numbers: &Numbers) -> Waits {
    let found = waits(workflow, timeline).waits;
    let left_out = found.len().saturating_sub(MOST);
    let row = |wait: Wait| Row {
        rule: numbers.get(&wait.waiter),
        kind: wait.kind.name(),
        blocker: wait.blocker.map(|name| numbers.get(&name)),
        channel: wait.channel,
        ns: wait.ns as i64,
        waits: wait.waits,
        processes: wait.processes,
        is_orchestrator: wait.is_orchestrator,
    };
    Waits {
        waits: found.into_iter().take(MOST).map(row).collect(),
        left_out,
        evidence: evidence_of(timeline),
    }
}
