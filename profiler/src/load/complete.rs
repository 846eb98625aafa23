//! Time up to which a trace is complete, of a run that goes on or was cut short.
//!
//! Rows come late, and not equally late: a thread that stays in one state has a row of it when it changes to
//! another, or when the state has lasted for some seconds; a process has its totals when it ends. (All rows
//! go through one queue, so that a commit lacks only rows later than those that it has.) So at the newest end
//! of a trace one process seems to wait and another to do nothing, and conclusions there are wrong. Only this
//! module decides up to which time the rows of all processes are there.

use std::collections::HashMap;

use flowtrace_schema::{Result, Trace};

use crate::model::Workflow;

/// A living thread has a row that ends no longer than this before the newest ones, ns: a thread that stays in
/// one state is recorded every 5 s. A thread without a row for so long is not sampled, or has ended.
const RECORDED_NS: i64 = 7_000_000_000;

/// Time up to which all rows are there, ns.
pub(super) fn until(workflow: &Workflow, trace: &Trace) -> Result<i64> {
    let newest = workflow.last_ns;
    if !workflow.is_live && !workflow.is_cut_short() {
        return Ok(newest);
    }
    let threads = trace.threads_alive()?;
    let mut reported: HashMap<i64, Vec<i64>> = HashMap::new();
    for (upid, last_ns) in threads {
        reported.entry(upid).or_default().push(last_ns);
    }
    let alive = workflow
        .images
        .iter()
        .filter(|image| image.end_ns.is_none());
    let last = alive.flat_map(|image| {
        let of_threads = reported.get(&image.upid).cloned();
        of_threads.unwrap_or_else(|| vec![image.start_ns])
    });
    let last = last.filter(|&last_ns| last_ns > newest - RECORDED_NS).min();
    Ok(last.map_or(newest, |last| last.min(newest)))
}
