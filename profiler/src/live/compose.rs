//! Makes a picture of what was read so far.

use std::cmp::Reverse;

use flowtrace_render::units::{plain, shorten};
use flowtrace_schema::{Activity, Result, RunRow, TracedDirectoryRow};
use nix::time::{ClockId, clock_gettime};

use super::follower::{Direction, Follower};
use super::images::{Failing, Failure, Image};
use super::limit::Limiting;
use super::picture::{
    Blocker, FailureRow, Failures, FileRow, Files, GraphEdge, GraphNode, Head, Lost, Picture,
    Running, RunningRow, State, StepGraph, StepRow, StepRows,
};
use super::rates;
use super::threads::Thread;
use super::traffic::File;
use crate::analysis::nodes::Nodes;
use crate::load::unrecorded;
use crate::paths::relative_to;
use crate::signals::signal_name;

/// Most rows of each list; the others are counted.
const MOST_RUNNING: usize = 100;
const MOST_STEPS: usize = 60;
const MOST_FILES: usize = 15;
const MOST_FAILURES: usize = 50;
const MOST_NODES: usize = 120;
/// Longest command, in characters.
const COMMAND: usize = 300;

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
            nodes: self.nodes()?,
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
            unrecorded: unrecorded(&self.trace)?,
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
            failed: self.images.failed,
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
                    is_of_data: loss.has_lost_data(),
                    counter: plain(&loss.counter),
                    value: loss.value,
                    meaning: plain(&loss.meaning),
                })
                .collect(),
            is_behind: self.is_behind,
            sees_files: directories.iter().any(TracedDirectoryRow::is_seen),
            sees_processes: runs.iter().any(RunRow::sees_processes),
        })
    }

    /// The present on the clock of the recording; `None`: not known here.
    fn now_ns(&self) -> Result<Option<i64>> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let zero = self.trace.zero_in_boot(boot.trim())?;
        let clock = clock_gettime(ClockId::CLOCK_MONOTONIC).map(std::time::Duration::from);
        let now = clock
            .ok()
            .and_then(|now| i64::try_from(now.as_nanos()).ok());
        Ok(now.zip(zero).map(|(now, zero)| now - zero))
    }

    fn nodes(&mut self) -> Result<Nodes> {
        let now_ns = match self.is_being_recorded() {
            true => Some(self.now_ns()?.unwrap_or(0).max(self.latest_ns)),
            false => None,
        };
        let (hosts, watched) = (self.trace.hosts()?, self.trace.nodes()?);
        Ok(self.machine.nodes(&hosts, &watched, now_ns))
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
            upid: image.program.upid,
            pid: image.pid,
            step: image.step,
            command: image
                .program
                .command
                .as_deref()
                .map(command)
                .unwrap_or_default(),
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
        let has = |side| holders.is_some_and(|all| all.contains(&(own.program.upid, side)));
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
        found.dedup_by_key(|image| image.program.upid);
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
        let of_file = |(&id, file): (&i64, &File)| {
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
                path: plain(relative_to(&path, cwd)),
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
        // The programs by which a script asks something may fail many times.
        let mut failures: Vec<_> = self.images.failures.iter().collect();
        failures.sort_unstable_by_key(|(_, failure)| Reverse(failure.number));
        let rest = failures.iter().skip(MOST_FAILURES);
        let left_out = rest.map(|(_, failure)| failure.count).sum();
        failures.truncate(MOST_FAILURES);
        let row = |(&(step, exit_signal, exit_code), failure): (&Failing, &Failure)| {
            let image = self.images.get(failure.latest);
            FailureRow {
                pid: image.pid,
                step,
                command: image
                    .program
                    .command
                    .as_deref()
                    .map(command)
                    .unwrap_or_default(),
                at_ns: image.end.as_ref().map_or(0, |end| end.end_ns),
                ending: match (exit_signal, exit_code) {
                    (Some(signal), _) => signal_name(signal),
                    (None, code) => format!("exit {}", code.unwrap_or(0)),
                },
                count: failure.count,
            }
        };
        Failures {
            rows: failures.into_iter().map(row).collect(),
            left_out,
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
        upid: image.program.upid,
        pid: image.pid,
        step: image.step,
    }
}
