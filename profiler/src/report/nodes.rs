//! The machines of a cluster beside each other.

use flowtrace_schema::{Result, Trace};

use crate::analysis::nodes::{Nodes, Shown, nodes};
use crate::analysis::resources::{self, Capacity};
use crate::model::Workflow;
use crate::timeline::Timeline;

/// Points of a chart.
const POINTS: i64 = 60;

pub(super) fn of(workflow: &Workflow, timeline: &Timeline, trace: &Trace) -> Result<Nodes> {
    let counters = &timeline.counters;
    let step = |(first, last): (i64, i64)| -> Vec<i64> {
        let length = last.saturating_sub(first) as f64;
        let end = |point| first.saturating_add((length * point as f64 / POINTS as f64) as i64);
        (0..=POINTS).map(end).collect()
    };
    let shown = Shown {
        steps: counters.span().map(step).unwrap_or_default(),
        now_ns: workflow.is_live.then_some(workflow.last_ns),
        ..Shown::default()
    };
    let mut nodes = nodes(counters, &trace.hosts()?, &trace.nodes()?, &shown);
    if !nodes.rows.is_empty() {
        let sequential = resources::sequential(trace.sequences()?.values()).unwrap_or(1.0);
        for node in &mut nodes.rows {
            let intervals =
                resources::machine(counters, node.host_id, sequential, Capacity::default());
            node.parts = resources::mean(&intervals).map(|(parts, _)| parts);
        }
    }
    Ok(nodes)
}
