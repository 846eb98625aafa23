//! What a run shows at an instant, as a page and a terminal draw it.

use serde::Serialize;

use crate::analysis::nodes::Nodes;

/// A run at an instant. Times are ns since the begin of the recording, sizes bytes, rates bytes a second.
#[derive(Clone, Debug, Serialize)]
pub struct Picture {
    /// The run as a whole.
    pub head: Head,
    /// Processes that run.
    pub running: Running,
    /// Steps.
    pub steps: StepRows,
    /// Files.
    pub files: Files,
    /// The machine.
    pub machine: Machines,
    /// The machines beside each other, if there are several, or agents watched some.
    pub nodes: Nodes,
    /// Processes that failed.
    pub failures: Failures,
    /// Managers of workflows.
    pub managers: Vec<ManagerRow>,
    /// The graph of the steps.
    pub graph: StepGraph,
}

/// State of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// A flowtrace writes the trace.
    Recording,
    /// The recording has its end.
    Ended,
    /// No flowtrace writes the trace, and the recording has no end.
    Killed,
}

/// The run as a whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Head {
    /// State of the recording.
    pub state: State,
    /// From when on nothing was recorded though the run went on, in words.
    pub unrecorded: Option<String>,
    /// The command.
    pub command: String,
    /// Directory in which it was started.
    pub cwd: String,
    /// Zero of the times that people see.
    pub begins_ns: i64,
    /// The instant that the picture is of.
    pub now_ns: i64,
    /// Process images that have not ended.
    pub running: usize,
    /// Processes that have ended.
    pub ended: usize,
    /// Programs that were executed.
    pub programs: usize,
    /// Processes that failed.
    pub failed: usize,
    /// Bytes that file calls read.
    pub read_bytes: i64,
    /// Bytes that file calls wrote.
    pub write_bytes: i64,
    /// Read now.
    pub read_rate: i64,
    /// Written now.
    pub write_rate: i64,
    /// Time up to which file calls are counted.
    pub calls_until_ns: i64,
    /// Seconds over which rates are means.
    pub rate_seconds: i64,
    /// Known losses.
    pub losses: Vec<Lost>,
    /// True while older rows of the trace are still to be read: the sums are too small.
    pub is_behind: bool,
    /// False if file calls were not recorded.
    pub sees_files: bool,
    /// False if processes were not recorded: agents watched machines.
    pub sees_processes: bool,
}

/// A known loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Name of the counter.
    pub counter: String,
    /// Number of losses.
    pub value: i64,
    /// Its meaning.
    pub meaning: String,
    /// True if data is missing: not a mere notice.
    pub is_of_data: bool,
}

/// Processes that run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Running {
    /// Those that work first, by their use of CPUs.
    pub rows: Vec<RunningRow>,
    /// Number of others.
    pub left_out: usize,
}

/// A process that runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunningRow {
    /// Process image.
    pub upid: i64,
    /// Process id.
    pub pid: i64,
    /// Number of its step.
    pub step: usize,
    /// Its command.
    pub command: String,
    /// Begin of the image.
    pub start_ns: i64,
    /// CPUs in use, a mean over the last seconds known; `None`: not known.
    pub cpus: Option<f64>,
    /// Time on a CPU.
    pub cpu_ns: i64,
    /// State, as the view `samples` names it with its reason; empty: not known.
    pub state: &'static str,
    /// The wait in words.
    pub waits: String,
    /// Processes that it waits for: id and step.
    pub blockers: Vec<Blocker>,
    /// Begin of the state.
    pub since_ns: i64,
    /// Time up to which the state is known.
    pub known_ns: i64,
}

/// A process that another one waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blocker {
    /// Process image.
    pub upid: i64,
    /// Process id.
    pub pid: i64,
    /// Number of its step.
    pub step: usize,
}

/// Steps, by number.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StepRows {
    /// The names of all steps, by number.
    pub name: Vec<String>,
    /// Those that run first, then those with the most CPU time.
    pub rows: Vec<StepRow>,
    /// Number of others.
    pub left_out: usize,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepRow {
    /// Its number.
    pub step: usize,
    /// True for a shell, launcher or manager.
    pub is_runner: bool,
    /// Process images that have not ended.
    pub running: usize,
    /// Processes that have.
    pub done: usize,
    /// Those of them that failed.
    pub failed: usize,
    /// Time on a CPU.
    pub cpu_ns: i64,
    /// CPUs in use.
    pub cpus: f64,
    /// Bytes read.
    pub read_bytes: i64,
    /// Bytes written.
    pub write_bytes: i64,
    /// Read now.
    pub read_rate: i64,
    /// Written now.
    pub write_rate: i64,
}

/// Files.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Files {
    /// Those in use, then the largest.
    pub rows: Vec<FileRow>,
    /// Number of others.
    pub left_out: usize,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileRow {
    /// Its path, seen from the directory of the run.
    pub path: String,
    /// Number of the step that wrote it last, or reads it.
    pub step: Option<usize>,
    /// Bytes read.
    pub read_bytes: i64,
    /// Bytes written.
    pub write_bytes: i64,
    /// Read now.
    pub read_rate: i64,
    /// Written now.
    pub write_rate: i64,
}

/// Use of the machines over the last minutes; one value a step of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machines {
    /// Length of a step of time.
    pub step_ns: i64,
    /// End of the last one.
    pub until_ns: i64,
    /// Share of the CPUs that were busy.
    pub cpu: Vec<Option<f64>>,
    /// Share of the time in which the busiest disk served requests.
    pub disk_busy: Vec<Option<f64>>,
    /// Bytes a second that disks read.
    pub disk_read: Vec<i64>,
    /// Bytes a second that disks wrote.
    pub disk_write: Vec<i64>,
    /// Bytes a second that came by network.
    pub net_in: Vec<i64>,
    /// Bytes a second that went by network.
    pub net_out: Vec<i64>,
}

/// Processes that failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Failures {
    /// The latest first.
    pub rows: Vec<FailureRow>,
    /// Number of others.
    pub left_out: usize,
}

/// Processes of one step that failed in the same way; all but `count` is of the latest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailureRow {
    /// Process id.
    pub pid: i64,
    /// Number of its step.
    pub step: usize,
    /// Its command.
    pub command: String,
    /// Time of its end.
    pub at_ns: i64,
    /// `exit 1`, or the name of a signal.
    pub ending: String,
    /// Number of these processes.
    pub count: usize,
}

/// A make or manager of workflows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ManagerRow {
    /// Its name.
    pub name: String,
    /// Process id.
    pub pid: i64,
    /// Steps that are done.
    pub done: i64,
    /// Steps in all; `None`: it does not say.
    pub total: Option<i64>,
    /// Steps that it has begun; `None`: it does not say.
    pub submitted: Option<i64>,
    /// Estimated time to its end; `None`: no estimate.
    pub left_ns: Option<i64>,
    /// Error of that, two standard deviations.
    pub error_ns: Option<i64>,
    /// Source of the numbers.
    pub note: String,
}

/// The graph of the steps, in the form of that of a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StepGraph {
    /// Steps.
    pub nodes: Vec<GraphNode>,
    /// Data from one to another.
    pub edges: Vec<GraphEdge>,
    /// Steps that are not drawn.
    pub left_out: usize,
    /// Edges of these.
    pub edges_left_out: usize,
    /// Edges that would close a cycle.
    pub cycle_edges: usize,
}

/// A step in the graph.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GraphNode {
    /// Its number.
    pub rule: usize,
    /// Its name.
    pub name: String,
    /// Processes.
    pub count: usize,
    /// Process images that have not ended.
    pub running: usize,
    /// Time on a CPU.
    pub cpu_ns: i64,
    /// Processes that failed.
    pub failed: usize,
    /// True if it limits the run now.
    pub is_critical: bool,
}

/// Data from one step to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GraphEdge {
    /// Place of the node that writes.
    pub from: usize,
    /// Place of the node that reads.
    pub to: usize,
    /// read (a file), pipe or socket.
    pub kind: &'static str,
    /// Files, pipes and sockets.
    pub count: i64,
    /// Bytes that were read from files.
    pub bytes: i64,
    /// True if the channel limits the run now.
    pub is_critical: bool,
}
