//! Up to when a trace is complete, of a run that goes on or was cut short.
//!
//! Rows come late, and not equally late: a thread that goes on with one thing has a row of that when it turns to another, or
//! when that has lasted for some seconds; a process has its totals when it ends. (All rows go through one queue, so that a commit
//! lacks only what came after what it has.) So at the newest edge of a trace one process seems to wait and another one to do nothing, and
//! what is concluded there is wrong. This is the one place that says up to when all of them have told.

use std::collections::HashMap;

use flowtrace_schema::{Result, Trace};

use crate::model::Workflow;

/// A thread that lives has a row that ends no longer before the newest ones than this, ns: one that goes on with the same
/// is recorded every 5 s. One of which nothing is known for so long is not looked at, or has ended.
const RECORDED_NS: i64 = 7_000_000_000;

/// The moment up to which all rows are there, ns.
pub(super) fn until(workflow: &Workflow, trace: &Trace) -> Result<i64> {
    let newest = workflow.last_ns;
    if !workflow.is_live && !workflow.is_cut_short() {
        return Ok(newest);
    }
    let threads = trace.threads_alive()?;
    let mut told: HashMap<i64, Vec<i64>> = HashMap::new();
    for (upid, last_ns) in threads {
        told.entry(upid).or_default().push(last_ns);
    }
    let alive = workflow
        .images
        .iter()
        .filter(|image| image.end_ns.is_none());
    let last = alive.flat_map(|image| {
        let of_threads = told.get(&image.upid).cloned();
        of_threads.unwrap_or_else(|| vec![image.start_ns])
    });
    let last = last.filter(|&last_ns| last_ns > newest - RECORDED_NS).min();
    Ok(last.map_or(newest, |last| last.min(newest)))
}
