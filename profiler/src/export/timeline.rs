//! Processes over time, as both timeline formats show them.

use std::collections::HashMap;

use flowtrace_render::units;

use crate::graph::{Dag, Node};
use crate::model::{FileIndex, ProcessId, Workflow};

/// Most arrows that are drawn, since more would hide each other. Those with the most bytes stay.
const MOST_ARROWS: usize = 20_000;

/// A timeline.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Title of the timeline.
    pub title: String,
    /// Wall clock at time 0, ns since 1970.
    pub started_unix_ns: Option<i64>,
    /// A track for every process, in the order of begin.
    pub tracks: Vec<Track>,
    /// Data that moved from one process to another.
    pub arrows: Vec<Arrow>,
    /// Number of arrows left out.
    pub arrows_cut: usize,
    /// Number of processes whose end was not recorded. They are drawn to the last instant of the trace.
    pub open_ends: usize,
}

/// The life of one process.
#[derive(Clone, Debug)]
pub struct Track {
    /// The process.
    pub process: ProcessId,
    /// Name of the rule.
    pub rule: String,
    /// Process id.
    pub pid: i64,
    /// Upid of its first image.
    pub upid: i64,
    /// Begin, ns.
    pub start_ns: i64,
    /// End, ns.
    pub end_ns: i64,
    /// CPU time, ns.
    pub cpu_ns: Option<i64>,
    /// Bytes read from and written to files, pipes and sockets.
    pub moved: [Option<i64>; 2],
    /// Exit code.
    pub exit_code: Option<i64>,
    /// The programs that the process executed: name, arguments, begin and end.
    pub images: Vec<(String, String, i64, i64)>,
}

/// Data from one process to another, through a file or channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// Place of the writer's track.
    pub from: usize,
    /// Place of the reader's track.
    pub to: usize,
    /// End of the write, ns, within the writer's life.
    pub from_ns: i64,
    /// First read, ns, not before `from_ns`.
    pub to_ns: i64,
    /// Bytes read.
    pub bytes: i64,
    /// The file; `None` for a channel.
    pub file: Option<FileIndex>,
}

/// The timeline of a workflow.
pub fn timeline(workflow: &Workflow, dag: &Dag) -> Timeline {
    let mut order: Vec<ProcessId> = workflow.process_ids().collect();
    order.sort_by_key(|&id| (workflow.process(id).start_ns, id));
    let mut place = vec![0; order.len()];
    for (at, &id) in order.iter().enumerate() {
        place[id.0 as usize] = at;
    }
    let tracks: Vec<Track> = order.iter().map(|&id| track(workflow, id)).collect();
    let mut arrows = arrows(dag, &place, &tracks);
    let cut = arrows.len().saturating_sub(MOST_ARROWS);
    if cut > 0 {
        arrows.sort_by_key(|a| (std::cmp::Reverse(a.bytes), a.from, a.to));
        arrows.truncate(MOST_ARROWS);
    }
    arrows.sort_by_key(|a| (a.from_ns, a.from, a.to, a.file));
    let run = workflow.runs.first();
    Timeline {
        title: units::plain(
            run.and_then(|run| run.command.as_deref())
                .unwrap_or("recording"),
        ),
        started_unix_ns: run.and_then(|run| run.started_unix_ns),
        open_ends: workflow
            .processes
            .iter()
            .filter(|p| p.end_ns.is_none())
            .count(),
        tracks,
        arrows,
        arrows_cut: cut,
    }
}

fn track(workflow: &Workflow, id: ProcessId) -> Track {
    let process = workflow.process(id);
    let end_ns = process
        .end_ns
        .unwrap_or(workflow.last_ns)
        .max(process.start_ns);
    let images = workflow
        .images(id)
        .iter()
        .filter(|image| !image.is_fork)
        .map(|image| {
            let start = image.start_ns.clamp(process.start_ns, end_ns);
            let end = image.end_ns.unwrap_or(end_ns).clamp(start, end_ns);
            let command = image.command.as_deref().unwrap_or_default();
            let command = units::shorten(&units::plain(command), 1000);
            (units::plain(&image.rule), command, start, end)
        })
        .collect();
    Track {
        process: id,
        rule: units::plain(workflow.rule(id)),
        pid: process.pid,
        upid: workflow.images(id)[0].upid,
        start_ns: process.start_ns,
        end_ns,
        cpu_ns: process.cpu_ns,
        moved: [process.read_bytes, process.write_bytes],
        exit_code: process.exit_code,
        images,
    }
}

fn arrows(dag: &Dag, place: &[usize], tracks: &[Track]) -> Vec<Arrow> {
    // Writers of each version of a file, with the time of their last write.
    let mut writers: HashMap<petgraph::graph::NodeIndex, Vec<(ProcessId, i64)>> = HashMap::new();
    for edge in dag.graph.edge_indices() {
        let Some((from, to)) = dag.graph.edge_endpoints(edge) else {
            continue;
        };
        if let (Node::Process { id: writer, .. }, Node::File { .. }) =
            (dag.graph[from], dag.graph[to])
        {
            writers
                .entry(to)
                .or_default()
                .push((writer, dag.graph[edge].last_ns));
        }
    }
    let mut found = Vec::new();
    let mut push = |from: ProcessId, to: ProcessId, written: i64, read: i64, bytes, file| {
        if from == to {
            return;
        }
        let (from, to) = (place[from.0 as usize], place[to.0 as usize]);
        let from_ns = written.clamp(tracks[from].start_ns, tracks[from].end_ns);
        // An arrow cannot lead back in time: both processes used the file at the same time.
        let to_ns = read.clamp(tracks[to].start_ns, tracks[to].end_ns);
        found.push(Arrow {
            from,
            to,
            from_ns: from_ns.min(to_ns).max(tracks[from].start_ns),
            to_ns: to_ns.max(from_ns.min(to_ns)),
            bytes,
            file,
        });
    };
    for edge in dag.graph.edge_indices() {
        let Some((from, to)) = dag.graph.edge_endpoints(edge) else {
            continue;
        };
        let e = &dag.graph[edge];
        match (dag.graph[from], dag.graph[to]) {
            (Node::File { file, .. }, Node::Process { id: reader, .. }) => {
                for &(writer, written) in writers.get(&from).into_iter().flatten() {
                    push(
                        writer,
                        reader,
                        written,
                        e.first_ns,
                        e.read_bytes,
                        Some(file),
                    );
                }
            }
            (Node::Process { id: writer, .. }, Node::Process { id: reader, .. })
                if e.kind.is_data() =>
            {
                push(writer, reader, e.first_ns, e.first_ns, e.write_bytes, None);
            }
            _ => {}
        }
    }
    found
}
