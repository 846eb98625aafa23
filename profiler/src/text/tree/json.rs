//! The tree for programs: a flat list in the order of the tree.

use serde::Serialize;

use crate::model::{ProcessId, Workflow};

/// A process. Times are nanoseconds since the start of the run, sizes bytes; null is unknown.
#[derive(Clone, Debug, Serialize)]
pub struct Row<'a> {
    /// Upid of its first image, by which others name it as their parent.
    pub id: i64,
    /// The parent's id; null: forked by nobody in the trace.
    pub parent: Option<i64>,
    /// Forks between it and a process without parent.
    pub depth: usize,
    /// Process id.
    pub pid: i64,
    /// Name of the workflow step.
    pub rule: &'a str,
    /// Arguments of its last image, quoted for a shell.
    pub command: Option<&'a str>,
    /// All its images in the order of execution.
    pub images: Vec<ImageRow<'a>>,
    /// Begin.
    pub start_ns: i64,
    /// End.
    pub end_ns: Option<i64>,
    /// CPU time of its own threads.
    pub cpu_ns: Option<i64>,
    /// Bytes read from files, pipes and sockets.
    pub read_bytes: Option<i64>,
    /// Bytes written to them.
    pub write_bytes: Option<i64>,
    /// Exit code.
    pub exit_code: Option<i64>,
    /// Signal that ended it.
    pub exit_signal: Option<i64>,
}

/// A process image.
#[derive(Clone, Debug, Serialize)]
pub struct ImageRow<'a> {
    pub upid: i64,
    pub rule: &'a str,
    pub command: Option<&'a str>,
    pub start_ns: i64,
}

/// Every process, parents before children, siblings in the order of their start.
pub fn rows(workflow: &Workflow) -> Vec<Row<'_>> {
    let children = workflow.children();
    let mut roots: Vec<ProcessId> = workflow
        .process_ids()
        .filter(|&id| workflow.process(id).parent.is_none())
        .collect();
    roots.sort_by_key(|&id| std::cmp::Reverse((workflow.process(id).start_ns, id)));
    let mut waiting: Vec<(ProcessId, usize)> = roots.into_iter().map(|id| (id, 0)).collect();
    let mut rows = Vec::with_capacity(workflow.processes.len());
    while let Some((id, depth)) = waiting.pop() {
        waiting.extend(
            children[id.0 as usize]
                .iter()
                .rev()
                .map(|&child| (child, depth + 1)),
        );
        rows.push(row(workflow, id, depth));
    }
    rows
}

fn row(workflow: &Workflow, id: ProcessId, depth: usize) -> Row<'_> {
    let process = workflow.process(id);
    let last = workflow.last_image(id);
    Row {
        id: workflow.images(id)[0].upid,
        parent: process.parent.map(|parent| workflow.images(parent)[0].upid),
        depth,
        pid: process.pid,
        rule: &last.rule,
        command: last.command.as_deref(),
        images: workflow
            .images(id)
            .iter()
            .map(|image| ImageRow {
                upid: image.upid,
                rule: &image.rule,
                command: image.command.as_deref(),
                start_ns: image.start_ns,
            })
            .collect(),
        start_ns: process.start_ns,
        end_ns: process.end_ns,
        cpu_ns: process.cpu_ns,
        read_bytes: process.read_bytes,
        write_bytes: process.write_bytes,
        exit_code: process.exit_code,
        exit_signal: process.exit_signal,
    }
}
