//! The tree for programs: a flat list in the order of the tree.

use serde::Serialize;

use super::branch::{branches, longest_chain, roots};
use crate::model::{ProcessId, Workflow};

/// A process. Times are nanoseconds since the start of the recording, sizes bytes; null is unknown.
#[derive(Clone, Debug, Serialize)]
pub struct Row<'a> {
    /// Upid of its first image, by which others name it as their parent.
    pub id: i64,
    /// Id of the parent; null: no process in the trace forked it.
    pub parent: Option<i64>,
    /// Forks between it and a process without parent.
    pub depth: usize,
    /// Number of the line that stands for it in the folded tree, from 0: processes alike have one.
    pub group: usize,
    /// True if it is on the longest chain.
    pub on_longest_chain: bool,
    /// Machine.
    pub host: Option<&'a str>,
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
    /// Bytes read from files, pipes and sockets; the kernel does not count those of `recv`.
    pub read_bytes: Option<i64>,
    /// Bytes written to them, without those of `send`.
    pub write_bytes: Option<i64>,
    /// Bytes received through sockets from other processes of the run, by any call; none: not counted, or it
    /// had no socket.
    pub socket_received_bytes: Option<i64>,
    /// Bytes sent through them.
    pub socket_sent_bytes: Option<i64>,
    /// Time in which job control had stopped it.
    pub stopped_ns: i64,
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
    let chain = longest_chain(workflow);
    let mut group = vec![0; workflow.processes.len()];
    for (number, branch) in branches(workflow, false, &chain).iter().enumerate() {
        for id in &branch.members {
            group[id.0 as usize] = number;
        }
    }
    let sockets = workflow.socket_bytes();
    let mut is_on_chain = vec![false; workflow.processes.len()];
    for id in chain {
        is_on_chain[id.0 as usize] = true;
    }
    let mut waiting: Vec<(ProcessId, usize)> = roots(workflow)
        .into_iter()
        .rev()
        .map(|id| (id, 0))
        .collect();
    let mut rows = Vec::with_capacity(workflow.processes.len());
    while let Some((id, depth)) = waiting.pop() {
        waiting.extend(
            children[id.0 as usize]
                .iter()
                .rev()
                .map(|&child| (child, depth + 1)),
        );
        let place = id.0 as usize;
        let moved = sockets.get(&id).copied().flatten();
        rows.push(Row {
            group: group[place],
            on_longest_chain: is_on_chain[place],
            socket_received_bytes: moved.map(|moved| moved.0),
            socket_sent_bytes: moved.map(|moved| moved.1),
            ..row(workflow, id, depth)
        });
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
        group: 0,
        on_longest_chain: false,
        host: last.host.as_deref(),
        pid: process.pid,
        rule: workflow.rule(id),
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
        socket_received_bytes: None,
        socket_sent_bytes: None,
        stopped_ns: process.stopped_within(0, i64::MAX),
        exit_code: process.exit_code,
        exit_signal: process.exit_signal,
    }
}
