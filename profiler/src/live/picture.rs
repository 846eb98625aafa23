//! What a run shows at an instant, as a page and a terminal draw it.

use std::cmp::Reverse;

use flowtrace_render::units::{plain, shorten};
use flowtrace_schema::{Activity, Result};
use serde::Serialize;

use super::images::Image;
use super::rates;
use super::threads::Thread;
use super::{Direction, Follower, Limiting};
use crate::signals::signal_name;

/// Most rows of each list; the others are counted.
const MOST_RUNNING: usize = 100;
const MOST_STEPS: usize = 60;
const MOST_FILES: usize = 15;
const MOST_FAILURES: usize = 50;
const MOST_NODES: usize = 120;
/// Longest command, in characters.
const COMMAND: usize = 300;

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
    /// info, notice, data_loss or error.
    pub severity: String,
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

/// A process that failed.
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

impl Follower {
    /// The run as it is known by now. `limiting` is highlighted in the graph.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn picture(&mut self, limiting: &Limiting) -> Result<Picture> {
        let head = self.head()?;
        Ok(Picture {
            running: self.running_rows()?,
            steps: self.step_rows(),
            files: self.file_rows(&head.cwd)?,
            machine: self.machine.picture(),
            failures: self.failure_rows(),
            managers: self
                .managers
                .rows(&self.trace, &self.images, &self.steps, self.latest_ns),
            graph: self.step_graph(limiting),
            head,
        })
    }

    fn head(&self) -> Result<Head> {
        let runs = self.trace.runs()?;
        let losses = self.trace.losses()?;
        let state = match (
            self.is_being_recorded(),
            !runs.is_empty() && runs.iter().all(|run| run.end_ns.is_some()),
        ) {
            (true, _) => State::Recording,
            (false, true) => State::Ended,
            (false, false) => State::Killed,
        };
        let first = runs.first();
        let directories = self.trace.traced_directories()?;
        Ok(Head {
            state,
            command: first
                .and_then(|run| run.command.as_deref())
                .map(command)
                .unwrap_or_default(),
            cwd: first.map(|run| plain(&run.cwd)).unwrap_or_default(),
            begins_ns: self.images.begins_ns(),
            now_ns: self.latest_ns,
            running: self.images.running(),
            ended: self.images.ended,
            programs: self.images.programs,
            failed: self.images.failed.len(),
            read_bytes: self.traffic.read_bytes,
            write_bytes: self.traffic.write_bytes,
            read_rate: self.traffic.reading.per_second(self.read.call_ns),
            write_rate: self.traffic.writing.per_second(self.read.call_ns),
            calls_until_ns: self.read.call_ns,
            rate_seconds: rates::SECONDS,
            losses: losses
                .into_iter()
                .filter(|loss| loss.value > 0)
                .map(|loss| Lost {
                    counter: plain(&loss.counter),
                    value: loss.value,
                    meaning: plain(&loss.meaning),
                    severity: plain(&loss.severity),
                })
                .collect(),
            is_behind: self.is_behind,
            sees_files: directories.iter().any(|one| one.is_seen()),
        })
    }

    fn running_rows(&self) -> Result<Running> {
        let mut order: Vec<(bool, Reverse<i64>, usize)> = Vec::new();
        for place in self.images.living() {
            let image = self.images.get(place);
            let cpus = image.threads.cpus(image.start_ns);
            let is_runner = self.steps.rows[image.step].is_runner;
            order.push((is_runner, Reverse((cpus * 100.0) as i64), place));
        }
        order.sort_unstable();
        let left_out = order.len().saturating_sub(MOST_RUNNING);
        let shown = order.into_iter().take(MOST_RUNNING);
        let rows = shown.map(|(_, _, place)| self.running_row(self.images.get(place)));
        Ok(Running {
            rows: rows.collect::<Result<_>>()?,
            left_out,
        })
    }

    fn running_row(&self, image: &Image) -> Result<RunningRow> {
        let thread = image.threads.main();
        let (waits, blockers) = match thread {
            Some(thread) => self.wait(image, thread)?,
            None => (String::new(), Vec::new()),
        };
        let state = thread.map_or("", |one| {
            one.activity.reason().unwrap_or(one.activity.state())
        });
        Ok(RunningRow {
            upid: image.upid,
            pid: image.pid,
            step: image.step,
            command: image.command.as_deref().map(command).unwrap_or_default(),
            start_ns: image.start_ns,
            cpus: thread.map(|_| (image.threads.cpus(image.start_ns) * 100.0).round() / 100.0),
            cpu_ns: image.threads.cpu_ns,
            state,
            waits,
            blockers,
            since_ns: thread.map_or(image.start_ns, |one| one.since_ns),
            known_ns: image.threads.known_ns,
        })
    }

    /// A wait in words, and the processes that can end it.
    fn wait(&self, image: &Image, thread: &Thread) -> Result<(String, Vec<Blocker>)> {
        let file = || -> Result<Option<String>> {
            let Some(file_id) = thread.file_id else {
                return Ok(None);
            };
            let file = self.trace.file(file_id)?;
            Ok(file.and_then(|file| file.path).map(|path| plain(&path)))
        };
        let in_call = || thread.op.as_deref().map(plain).unwrap_or_default();
        Ok(match thread.activity {
            Activity::Running | Activity::Runnable | Activity::Tracer => {
                (String::new(), Vec::new())
            }
            Activity::Channel => {
                let inode = thread
                    .object
                    .and_then(|inode| self.channels.of_inode.get(&inode));
                let channel = thread.channel_id.or(inode.copied());
                let is_write = thread.side.as_deref() == Some("write");
                if channel.is_some_and(|channel| self.has_both_sides(image, channel)) {
                    let what = "waits at a pipe of its own, for a free place or for itself";
                    return Ok((what.into(), self.children(image)));
                }
                let kind = channel.and_then(|channel| self.channels.kinds.get(&channel));
                let kind = kind.map_or("a pipe or socket", |kind| kind);
                let what = match is_write {
                    true => format!("writes into {kind} that is full"),
                    false => format!("reads from {kind} that is empty"),
                };
                (what, self.others(image, channel, is_write))
            }
            Activity::Child => {
                let child = thread.object.and_then(|pid| self.images.of_pid(pid));
                let blockers = match child {
                    Some(child) => vec![blocker(child)],
                    None => self.children(image),
                };
                ("waits for a child".into(), blockers)
            }
            Activity::File | Activity::Fault => match file()? {
                Some(path) => (format!("storage: {path}"), Vec::new()),
                None => (format!("storage: {}", in_call()), Vec::new()),
            },
            Activity::Lock => match file()? {
                Some(path) => (format!("lock of {path}"), Vec::new()),
                None => (format!("lock: {}", in_call()), Vec::new()),
            },
            Activity::Sleep => ("sleeps".into(), Vec::new()),
            Activity::Stopped => ("stopped by job control".into(), Vec::new()),
            other => {
                let reason = other.reason().unwrap_or(other.state());
                (format!("{reason}: {}", in_call()), Vec::new())
            }
        })
    }

    /// True if an image has both sides of a pipe open, as make those of its jobserver.
    fn has_both_sides(&self, own: &Image, channel: i64) -> bool {
        let holders = self.channels.holders.get(&channel);
        let has = |side| holders.is_some_and(|all| all.contains(&(own.upid, side)));
        has(Direction::Read) && has(Direction::Write)
    }

    /// The living processes at the other side of a channel, without shells that only have it open.
    fn others(&self, own: &Image, channel: Option<i64>, is_write: bool) -> Vec<Blocker> {
        let holders = channel.and_then(|channel| self.channels.holders.get(&channel));
        let wanted = match is_write {
            true => Direction::Read,
            false => Direction::Write,
        };
        let mut found: Vec<&Image> = Vec::new();
        for &(upid, direction) in holders.into_iter().flatten() {
            let place = self.images.place(upid).map(|place| self.images.get(place));
            let living = place.filter(|image| image.end.is_none() && image.pid != own.pid);
            found.extend(living.filter(|_| direction == wanted || direction == Direction::Both));
        }
        if found
            .iter()
            .any(|image| !self.steps.rows[image.step].is_runner)
        {
            found.retain(|image| !self.steps.rows[image.step].is_runner);
        }
        found.dedup_by_key(|image| image.upid);
        found.into_iter().take(4).map(blocker).collect()
    }

    fn children(&self, image: &Image) -> Vec<Blocker> {
        let living = self.images.living().into_iter();
        let children = living.map(|place| self.images.get(place));
        let own = children.filter(|child| self.images.is_child(child, image));
        own.take(4).map(blocker).collect()
    }

    fn step_rows(&self) -> StepRows {
        let mut cpus = vec![0.0; self.steps.rows.len()];
        let mut cpu_ns: Vec<i64> = self.steps.rows.iter().map(|step| step.cpu_ns).collect();
        for place in self.images.living() {
            let image = self.images.get(place);
            cpus[image.step] += image.threads.cpus(image.start_ns);
            cpu_ns[image.step] = cpu_ns[image.step].saturating_add(image.threads.cpu_ns);
        }
        let mut order: Vec<usize> = (0..self.steps.rows.len()).collect();
        order.sort_by_key(|&step| {
            let row = &self.steps.rows[step];
            (row.is_runner, row.running == 0, Reverse(cpu_ns[step]), step)
        });
        let left_out = order.len().saturating_sub(MOST_STEPS);
        order.truncate(MOST_STEPS);
        let now = self.read.call_ns;
        let row = |step: usize| {
            let row = &self.steps.rows[step];
            StepRow {
                step,
                is_runner: row.is_runner,
                running: row.running,
                done: row.done,
                failed: row.failed,
                cpu_ns: cpu_ns[step],
                cpus: (cpus[step] * 100.0_f64).round() / 100.0,
                read_bytes: row.read_bytes,
                write_bytes: row.write_bytes,
                read_rate: row.reading.per_second(now),
                write_rate: row.writing.per_second(now),
            }
        };
        StepRows {
            name: self
                .steps
                .rows
                .iter()
                .map(|step| plain(&step.name))
                .collect(),
            rows: order.into_iter().map(row).collect(),
            left_out,
        }
    }

    fn file_rows(&self, cwd: &str) -> Result<Files> {
        let now = self.read.call_ns;
        let of_file = |(&id, file): (&i64, &super::traffic::File)| {
            let rate = file.reading.per_second(now) + file.writing.per_second(now);
            let bytes = file.read_bytes.saturating_add(file.write_bytes);
            (rate, bytes, file.last_ns, id)
        };
        let mut order: Vec<_> = self.traffic.files.iter().map(of_file).collect();
        order.retain(|&(_, bytes, ..)| bytes > 0);
        let left_out = order.len().saturating_sub(MOST_FILES) + self.traffic.left_out;
        if order.len() > MOST_FILES {
            order.select_nth_unstable_by_key(MOST_FILES, |&one| Reverse(one));
            order.truncate(MOST_FILES);
        }
        order.sort_unstable_by_key(|&one| Reverse(one));
        let mut rows = Vec::new();
        for (_, _, _, id) in order {
            let file = &self.traffic.files[&id];
            let path = self.trace.file(id)?.and_then(|row| row.path);
            let path = path.unwrap_or_else(|| format!("file {id}"));
            rows.push(FileRow {
                path: plain(crate::paths::relative_to(&path, cwd)),
                step: file.step(),
                read_bytes: file.read_bytes,
                write_bytes: file.write_bytes,
                read_rate: file.reading.per_second(now),
                write_rate: file.writing.per_second(now),
            });
        }
        Ok(Files { rows, left_out })
    }

    fn failure_rows(&self) -> Failures {
        let failed = &self.images.failed;
        let row = |&place: &usize| {
            let image = self.images.get(place);
            let end = image.end.clone().unwrap_or_default();
            FailureRow {
                pid: image.pid,
                step: image.step,
                command: image.command.as_deref().map(command).unwrap_or_default(),
                at_ns: end.end_ns,
                ending: match (end.exit_signal, end.exit_code) {
                    (Some(signal), _) => signal_name(signal),
                    (None, code) => format!("exit {}", code.unwrap_or(0)),
                },
            }
        };
        Failures {
            rows: failed.iter().rev().take(MOST_FAILURES).map(row).collect(),
            left_out: failed.len().saturating_sub(MOST_FAILURES),
        }
    }

    fn step_graph(&self, limiting: &Limiting) -> StepGraph {
        let rows = &self.steps.rows;
        let mut drawn: Vec<usize> = (0..rows.len())
            .filter(|&step| !rows[step].is_runner)
            .collect();
        let left_out = drawn.len().saturating_sub(MOST_NODES);
        if left_out > 0 {
            drawn.sort_by_key(|&step| (rows[step].running == 0, Reverse(rows[step].cpu_ns), step));
            drawn.truncate(MOST_NODES);
            drawn.sort_unstable();
        }
        let place = |step: usize| drawn.binary_search(&step).ok();
        let node = |&step: &usize| GraphNode {
            rule: step,
            name: plain(&rows[step].name),
            count: rows[step].done + rows[step].running,
            running: rows[step].running,
            cpu_ns: rows[step].cpu_ns,
            failed: rows[step].failed,
            is_critical: limiting.steps.contains(&step),
        };
        let edges: Vec<GraphEdge> = self
            .steps
            .edges
            .iter()
            .filter_map(|(&(from, to), edge)| {
                Some(GraphEdge {
                    from: place(from)?,
                    to: place(to)?,
                    kind: match (edge.files > 0, edge.is_socket) {
                        (true, _) => "read",
                        (_, true) => "socket",
                        _ => "pipe",
                    },
                    count: edge.files + edge.channels,
                    bytes: edge.bytes,
                    is_critical: limiting.edges.contains(&(from, to)),
                })
            })
            .collect();
        StepGraph {
            nodes: drawn.iter().map(node).collect(),
            edges_left_out: self.steps.edges.len() - edges.len(),
            edges,
            left_out,
            cycle_edges: self.steps.dropped.len(),
        }
    }
}

fn command(text: &str) -> String {
    shorten(&plain(text), COMMAND)
}

fn blocker(image: &Image) -> Blocker {
    Blocker {
        upid: image.upid,
        pid: image.pid,
        step: image.step,
    }
}
