//! A run as one HTML file that opens from disk: the page in `page/`, and the data it shows as
//! JSON inside it, so that nothing is ever fetched.
//!
//! Every part of the data is a block of its own that the page parses when it first needs it. Long lists
//! (processes, files, edges, rules) are cut to the heaviest entries; the rest are counted in `left_out` and
//! drawn as sums, so that the size of a page is bounded whatever the size of the run. Columns of numbers
//! instead of objects keep it small.

mod bottlenecks;
mod calls;
mod channels;
mod files;
mod graph;
mod head;
mod network;
mod nodes;
mod page;
mod path;
mod pictures;
mod processes;
mod rules;
mod stacks;
mod text;
mod waits;

use std::io::{self, Write};

pub use page::live_html;

use flowtrace_schema::{Result, Trace};
use serde::Serialize;

use crate::analysis::counters::{self, Machines};
use crate::analysis::critical_path::CriticalPath;
use crate::analysis::nodes::Nodes;
use crate::load::load_activity;
use crate::model::Workflow;
use crate::stacks::Samples;
use crate::{graph as workflow_graph, timeline};

/// The data of a report. Times are nanoseconds since the start of the recording, sizes bytes; `null` for a
/// value that is not known.
#[derive(Debug, Serialize)]
pub struct Report {
    head: head::Head,
    rules: rules::Rules,
    path: path::Path,
    bottlenecks: bottlenecks::Limiting,
    processes: processes::Processes,
    machine: Machines,
    nodes: Nodes,
    graph: graph::Graph,
    members: graph::MemberEdges,
    files: files::Files,
    calls: calls::Calls,
    channels: channels::Channels,
    flows: channels::Flows,
    network: network::Network,
    pictures: pictures::Pictures,
    waits: waits::Waits,
    stacks: stacks::Stacks,
}

/// Greatest numbers of items that are shown one by one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Processes.
    pub processes: usize,
    /// Files.
    pub files: usize,
    /// Pairs of a process and a file that it used.
    pub accesses: usize,
    /// Groups of the rule graph.
    pub groups: usize,
    /// Edges between single processes and files.
    pub edges: usize,
    /// Stretches of the critical path.
    pub steps: usize,
    /// Channels, and likewise flows.
    pub channels: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            processes: 10_000,
            files: 10_000,
            accesses: 40_000,
            groups: 150,
            edges: 40_000,
            steps: 5_000,
            channels: 2_000,
        }
    }
}

/// Gathers everything that a report shows.
///
/// # Errors
/// When the trace cannot be read.
pub fn gather(workflow: &Workflow, trace: &Trace, limits: Limits) -> Result<Report> {
    let costs = trace.costs()?;
    let machine = counters::machines(trace, workflow.last_ns)?;
    let mut texts = text::Texts::new(workflow.processes.len());
    let numbers = rules::Numbers::of(workflow);
    let kept = processes::Kept::of(workflow, limits.processes);
    let kept_files = files::Kept::of(workflow, limits.files);
    let dag = workflow_graph::build(workflow);
    let steps = workflow_graph::steps(workflow);
    let groups = workflow_graph::groups::by_rule(workflow, &steps);
    let critical = CriticalPath::of(workflow, &load_activity(trace, workflow)?);
    let calls = calls::of(workflow, &numbers, trace)?;
    let packets = network::run(trace)?;
    let samples = Samples::read(trace, workflow)?;
    let timeline = timeline::read(trace, workflow)?;
    let drawn = graph::Drawn::of(workflow, &groups, limits.groups);
    let stays = critical.stays(workflow, &steps);
    Ok(Report {
        head: head::of(workflow, trace)?,
        rules: rules::of(workflow, &numbers, &costs),
        bottlenecks: bottlenecks::of(
            workflow,
            &timeline,
            (&dag, &critical),
            &numbers,
            (trace, samples.as_ref()),
        )?,
        path: path::of(workflow, &critical, &numbers, &kept, limits.steps),
        processes: processes::of(workflow, &numbers, &kept, &costs, &mut texts),
        pictures: pictures::of(workflow, &calls, packets.as_ref(), &machine),
        nodes: nodes::of(workflow, &timeline, trace)?,
        machine,
        graph: graph::of(workflow, (&steps, &stays), &groups, &drawn, &numbers),
        members: graph::members(
            (&steps, &stays),
            (&groups, &drawn),
            &kept,
            &kept_files,
            limits.edges,
        ),
        files: files::of(workflow, &kept, &kept_files, limits.accesses),
        calls,
        channels: channels::of(workflow, trace, &kept, limits.channels)?,
        flows: channels::flows(workflow, trace, &kept, limits.channels)?,
        network: packets.as_ref().map(network::of).unwrap_or_default(),
        waits: waits::of(workflow, &timeline, &numbers),
        stacks: stacks::of(workflow, samples.as_ref(), &critical, &numbers),
    })
}

impl Report {
    /// Writes the data alone, as one JSON object.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)
    }
}
