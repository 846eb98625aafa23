//! Messages on standard error about a graph that is drawn.

use std::collections::BTreeSet;

use flowtrace_profiler::export::drawing::{self, Drawing};
use flowtrace_profiler::graph::{Dag, Dropped, Node, arguments, groups};
use flowtrace_profiler::model::{ProcessId, Workflow};
use flowtrace_render::units;

/// Edges shown of those that were left out.
const NAMED: usize = 3;

/// Draws groups, and says where contracting them would have made cycles.
pub(super) fn of_groups(workflow: &Workflow, dag: &Dag, groups: &groups::RuleGraph) -> Drawing {
    for cycle in groups.cycles.iter().take(NAMED) {
        let names: Vec<String> = cycle
            .iter()
            .take(NAMED)
            .map(|&g| units::shorten(&units::plain(&groups.described(workflow, g)), 24))
            .collect();
        let more = match cycle.len() - names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        message!(
            "flowtrace: drawn as several groups, because they use each other's data: {}{more}",
            names.join(", ")
        );
    }
    if groups.cycles.len() > NAMED {
        message!(
            "flowtrace: and {} more such sets",
            groups.cycles.len() - NAMED
        );
    }
    drawing::of_rules(workflow, dag, groups)
}

/// `wc (p5) → run.sh (p1) by pipe`, a few of them.
fn named_edges(workflow: &Workflow, dag: &Dag, dropped: &[Dropped]) -> String {
    let name = |node| match dag.graph[node] {
        Node::Process { id, .. } => {
            let upid = workflow.images(id)[0].upid;
            let name = units::between_arrows(&units::plain(workflow.rule(id)));
            format!("{name} (p{upid})")
        }
        Node::File { file, .. } => {
            let path = workflow.file(file).path.as_deref().unwrap_or("?");
            units::plain(path.rsplit('/').next().unwrap_or(path))
        }
    };
    let shown: Vec<String> = dropped
        .iter()
        .take(NAMED)
        .map(|d| {
            format!(
                "{} → {} by {}",
                name(d.from),
                name(d.to),
                d.edge.kind.name()
            )
        })
        .collect();
    match dropped.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{}, +{more} more", shown.join(", ")),
    }
}

/// Reports the edges that were not followed in a question about dependencies.
pub(super) fn cut_off(workflow: &Workflow, dag: &Dag, dropped: &[Dropped]) {
    if dropped.is_empty() {
        return;
    }
    message!(
        "flowtrace: the answer may be incomplete: edges behind {} are not followed everywhere, because they would close a cycle",
        named_edges(workflow, dag, dropped)
    );
}

/// Reports processes that may have passed data on as arguments, which the trace cannot show.
pub(super) fn passed_as_arguments(workflow: &Workflow, part: &Dag) {
    let processes = part.graph.node_weights().filter_map(|node| match node {
        Node::Process { id, .. } => Some(*id),
        Node::File { .. } => None,
    });
    let named = |ids: &BTreeSet<ProcessId>| {
        let name = |&id: &ProcessId| {
            let name = units::plain(workflow.rule(id));
            format!("{name} (p{})", workflow.images(id)[0].upid)
        };
        let shown: Vec<String> = ids.iter().rev().take(NAMED).map(name).collect();
        match ids.len() - shown.len() {
            0 => shown.join(", "),
            more => format!("{}, +{more} more", shown.join(", ")),
        }
    };
    for passed in arguments::passed_on(workflow, &processes.collect())
        .iter()
        .take(NAMED)
    {
        message!(
            "flowtrace: {} read the output of {} before it started {}: it may have passed it on as arguments, which the graph does not show",
            named(&BTreeSet::from([passed.by])),
            named(&passed.from),
            named(&passed.to)
        );
    }
}

/// Reports edges that were left out of a graph, and forks that are drawn though they contradict it.
pub(super) fn dropped(workflow: &Workflow, dag: &Dag, is_drawn: bool) {
    let (data, forks): (Vec<Dropped>, Vec<Dropped>) =
        dag.dropped.iter().partition(|d| d.edge.kind.is_data());
    if !data.is_empty() {
        let count = units::counted(
            data.len() as i64,
            "edge of data that contradicts others",
            "edges of data that contradict others",
        );
        message!(
            "flowtrace: left out {count}: {}",
            named_edges(workflow, dag, &data)
        );
    }
    if !forks.is_empty() && is_drawn {
        let count = units::counted(forks.len() as i64, "fork leads", "forks lead");
        message!(
            "flowtrace: {count} against the order of the data (the parent read data of the child, or data that came later than the child): drawn, but the order of the steps does not depend on that"
        );
    }
}
