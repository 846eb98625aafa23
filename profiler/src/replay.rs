//! The file calls and computing times of a trace as a workload that runs again, as a benchmark of a
//! filesystem or machine: same sizes, offsets, order and parallelism, other data.
//!
//! [`plan()`] makes a list of what each process did; [`play`] does it, with one thread per process.
//! A process begins when its parent has come to where it forked it, and a parent goes on after its
//! children where it went on after them then. A call on a file waits for the changes to that file that were over when it began.

mod play;

use std::collections::{BTreeMap, HashMap};

use flowtrace_schema::{NameRow, ReplayedCallRow, Result, Trace};
use serde::Serialize;

use crate::load::load;
use crate::model::Workflow;

pub use play::{Failed, Played, Used, play};

/// What is to be done, and in what order.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Directories and files that are there at the begin: path below the root, size.
    pub(crate) files: BTreeMap<String, u64>,
    pub(crate) directories: Vec<String>,
    pub(crate) actors: Vec<Actor>,
    /// How many files there are in all.
    pub(crate) counters: usize,
    /// What the recorded calls sum up to.
    pub recorded: Totals,
    /// How long the recorded run took, ns.
    pub recorded_ns: i64,
    /// Recorded calls that are not played: of kinds that have no effect on data, such as attributes
    /// and locks, and on files that cannot be placed.
    pub left_out: u64,
    /// Recorded time that is not played.
    pub held: Held,
    /// What to know before the replay is believed: a trace that is not whole.
    pub warnings: Vec<String>,
}

/// Time of the recorded processes that is not played, for it was no work; sums over all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Held {
    /// They could have run and waited for a processor, ns.
    pub run_queue_ns: i64,
    /// The tracer held them, ns.
    pub tracer_ns: i64,
    /// Their CPU time, to compare with, ns.
    pub cpu_ns: i64,
}

/// Sums over calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Calls of all kinds that are played.
    pub calls: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

/// A process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Actor {
    pub(crate) parent: Option<usize>,
    pub(crate) acts: Vec<Act>,
}

/// One thing that a process does.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Passes time, ns, of which it computes until it has used its share of the CPU time: what its
    /// calls use is part of that.
    Think { compute_ns: u64, gap_ns: u64 },
    /// Starts another process.
    Fork(usize),
    /// Waits for another process to end.
    Wait(usize),
    /// Makes a file call.
    Call(Call),
}

/// A file call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: CallKind,
    /// The file, counted over all.
    pub(crate) file: usize,
    pub(crate) path: String,
    /// Changes to the file that come first.
    pub(crate) after: u32,
    /// Whether it is one itself.
    pub(crate) is_change: bool,
}

/// What a call does.
#[derive(Clone, Debug)]
pub(crate) enum CallKind {
    Open {
        write: bool,
        truncate: bool,
        create: bool,
    },
    Close,
    Read {
        offset: u64,
        length: usize,
    },
    Write {
        offset: u64,
        length: usize,
    },
    Truncate(u64),
    Sync,
    MakeDirectory,
    RemoveDirectory,
    Remove,
    Rename(String),
    Link(String),
    List,
    Stat,
}

const O_ACCMODE: i64 = 3;
const O_TRUNC: i64 = 0o1000;

/// Makes a workload of the calls on files in the traced directories.
///
/// # Errors
/// When the file cannot be read.
pub fn plan(trace: &Trace) -> Result<Workload> {
    let workflow = load(trace)?;
    let mut names: HashMap<i64, Vec<NameRow>> = HashMap::new();
    for name in trace.file_names()? {
        names.entry(name.file_id).or_default().push(name);
    }
    let calls = trace.replayed_calls()?;
    let roots: Vec<&str> = workflow
        .directories
        .iter()
        .map(|d| d.path.as_str())
        .collect();
    let mut planner = Planner {
        names: &names,
        roots: &roots,
        place: HashMap::new(),
        changes: HashMap::new(),
        workload: Workload {
            actors: vec![Actor::default(); workflow.processes.len()],
            recorded_ns: workflow.duration_ns(),
            warnings: incomplete(&workflow),
            ..Workload::default()
        },
    };
    planner.prepare(&calls);
    let mut of_process: Vec<Vec<(&ReplayedCallRow, Call)>> =
        vec![Vec::new(); workflow.processes.len()];
    let process_of = workflow.process_of_images();
    for row in &calls {
        let Some(&process) = process_of.get(&row.upid) else {
            continue;
        };
        match planner.call(row) {
            Some(call) => of_process[process.0 as usize].push((row, call)),
            None => planner.workload.left_out += 1,
        }
    }
    let children = workflow.children();
    for id in workflow.process_ids() {
        let process = workflow.process(id);
        let images = workflow.images(id);
        let own = &of_process[id.0 as usize];
        let end = process.end_ns.unwrap_or(workflow.last_ns);
        let queued: i64 = images.iter().filter_map(|i| i.run_queue_ns).sum();
        let traced: i64 = images.iter().filter_map(|i| i.tracer_ns).sum();
        let cpu_ns = process.cpu_ns.unwrap_or(0);
        planner.workload.held.run_queue_ns += queued;
        planner.workload.held.tracer_ns += traced;
        planner.workload.held.cpu_ns += cpu_ns;
        let actor = &mut planner.workload.actors[id.0 as usize];
        actor.parent = process.parent.map(|parent| parent.0 as usize);
        // Everything that happens to the process, in order: begin, end, what.
        let mut events: Vec<(i64, i64, Act)> = own
            .iter()
            .map(|(row, call)| {
                (
                    row.start_ns,
                    row.start_ns + row.duration_ns,
                    Act::Call(call.clone()),
                )
            })
            .collect();
        for &child in &children[id.0 as usize] {
            let start = workflow.process(child).start_ns;
            events.push((start, start, Act::Fork(child.0 as usize)));
            let child_end = workflow.process(child).end_ns.unwrap_or(end);
            if child_end <= end {
                events.push((child_end, child_end, Act::Wait(child.0 as usize)));
            }
        }
        events.sort_by_key(|event| event.0);
        // A parent that does something before its child has ended does not wait for it then.
        let mut gaps = Vec::new();
        let mut at = process.start_ns;
        for (start, over, act) in events {
            gaps.push((start - at).max(0));
            at = at.max(over);
            actor.acts.push(act);
        }
        gaps.push((end - at).max(0));
        spread(&mut actor.acts, &gaps, cpu_ns, queued + traced);
    }
    planner.workload.counters = planner.place.len();
    Ok(planner.workload)
}

/// Why a trace is not all of its run.
fn incomplete(workflow: &Workflow) -> Vec<String> {
    let mut reasons = Vec::new();
    if workflow.is_live {
        reasons.push("it is still being recorded: only what is stored by now is played".to_owned());
    } else if workflow.is_cut_short() {
        reasons.push("its recording was cut short: what came last is not played".to_owned());
    }
    if workflow.is_incomplete() {
        reasons.push("rows of it are missing, and the calls in them".to_owned());
    }
    reasons
}

/// Puts thinking between what a process does. Gaps that end with the end of a child were spent
/// waiting for it. Of the others the time held by the tracer or for want of a processor is not played.
fn spread(acts: &mut Vec<Act>, gaps: &[i64], cpu_ns: i64, held_ns: i64) {
    let is_waiting = |at: usize| matches!(acts.get(at), Some(Act::Wait(_)));
    let own: Vec<i64> = gaps
        .iter()
        .enumerate()
        .map(|(at, &gap)| if is_waiting(at) { 0 } else { gap })
        .collect();
    let sum = own.iter().sum::<i64>().max(1) as f64;
    let kept = (1.0 - held_ns as f64 / sum).clamp(0.0, 1.0);
    let computing = cpu_ns as f64 / sum;
    let mut with_thoughts = Vec::with_capacity(acts.len() * 2 + 1);
    let mut acts_left = std::mem::take(acts).into_iter();
    for gap in own {
        let compute_ns = (gap as f64 * computing) as u64;
        let gap_ns = (gap as f64 * kept) as u64;
        if compute_ns + gap_ns > 0 {
            with_thoughts.push(Act::Think { compute_ns, gap_ns });
        }
        with_thoughts.extend(acts_left.next());
    }
    *acts = with_thoughts;
}

struct Planner<'a> {
    names: &'a HashMap<i64, Vec<NameRow>>,
    roots: &'a [&'a str],
    /// Number of each file.
    place: HashMap<i64, usize>,
    /// Ends of the changes to each file so far.
    changes: HashMap<i64, Vec<i64>>,
    workload: Workload,
}

impl Planner<'_> {
    /// Where a path is played: below the directory of the replay, several traced directories apart.
    fn below(&self, path: &str) -> Option<String> {
        let (at, rest) = self
            .roots
            .iter()
            .enumerate()
            .find_map(|(at, root)| Some((at, path.strip_prefix(*root)?)))?;
        if !(rest.is_empty() || rest.starts_with('/') || self.roots[at] == "/") {
            return None;
        }
        let rest = rest.trim_start_matches('/');
        let rest = if rest.is_empty() { "." } else { rest };
        // A name that leads out of it was never recorded; a damaged trace must not do so either.
        let is_safe = !rest.split('/').any(|part| part == "..");
        is_safe.then(|| match self.roots.len() {
            1 => rest.to_owned(),
            _ => format!("{at}/{rest}"),
        })
    }

    fn name_at(&self, file: i64, at: i64) -> Option<String> {
        let names = self.names.get(&file)?;
        let was = |name: &&NameRow| name.from_ns <= at && name.to_ns.is_none_or(|to| to >= at);
        let name = names.iter().find(was).or(names.last())?;
        self.below(&name.path)
    }

    /// What is there before anything is played: files that are used before anybody made them, as large
    /// as they are read, and directories.
    fn prepare(&mut self, calls: &[ReplayedCallRow]) {
        let mut made: std::collections::HashSet<i64> = std::collections::HashSet::new();
        let mut directories = std::collections::BTreeSet::new();
        let mut is_directory: std::collections::HashSet<i64> = std::collections::HashSet::new();
        for row in calls {
            match row.op.as_str() {
                "create" | "mkdir" | "mknod" | "symlink" => {
                    made.insert(row.file_id);
                }
                "readdir" | "opendir" | "rmdir" => {
                    is_directory.insert(row.file_id);
                }
                _ => {}
            }
        }
        // By every name that they ever had.
        let made_directories: std::collections::HashSet<String> = calls
            .iter()
            .filter(|row| row.op == "mkdir")
            .filter_map(|row| self.names.get(&row.file_id))
            .flatten()
            .filter_map(|name| self.below(&name.path))
            .collect();
        for row in calls {
            let Some(path) = self.name_at(row.file_id, row.start_ns) else {
                continue;
            };
            if made.contains(&row.file_id) {
                // What it lies in may have been there. Later it may lie elsewhere.
                let is_new = matches!(row.op.as_str(), "create" | "mkdir" | "mknod" | "symlink");
                let end = row.start_ns + row.duration_ns;
                let path = self.name_at(row.file_id, end).filter(|_| is_new);
                if let Some((parent, _)) = path.as_deref().and_then(|path| path.rsplit_once('/'))
                    && !made_directories.contains(parent)
                {
                    directories.insert(parent.to_owned());
                }
                continue;
            }
            if is_directory.contains(&row.file_id) {
                directories.insert(path);
                continue;
            }
            let size = self.workload.files.entry(path).or_default();
            match row.op.as_str() {
                "read" | "copy_from" => {
                    let end = row.offset.unwrap_or(0).saturating_add(row.result);
                    *size = (*size).max(u64::try_from(end).unwrap_or(0));
                }
                "open" => {}
                _ => {}
            }
        }
        // Only those that were opened, renamed or removed are files.
        let used: std::collections::HashSet<String> = calls
            .iter()
            .filter(|row| matches!(row.op.as_str(), "open" | "unlink" | "rename" | "link"))
            .filter_map(|row| self.name_at(row.file_id, row.start_ns))
            .collect();
        self.workload
            .files
            .retain(|path, _| used.contains(path) && !directories.contains(path));
        for path in self.workload.files.keys() {
            if let Some((parent, _)) = path.rsplit_once('/') {
                directories.insert(parent.to_owned());
            }
        }
        self.workload.directories = directories.into_iter().collect();
    }

    /// A recorded call as one to be played; `None`: it is left out.
    fn call(&mut self, row: &ReplayedCallRow) -> Option<Call> {
        let count = |value: Option<i64>| u64::try_from(value.unwrap_or(0)).unwrap_or(0);
        let moved = usize::try_from(row.result).unwrap_or(0);
        let after_call = || self.name_at(row.file_id, row.start_ns + row.duration_ns);
        let new_name = || {
            let names = self.names.get(&row.file_id)?;
            let end = row.start_ns + row.duration_ns;
            let made = names
                .iter()
                .rfind(|name| row.start_ns <= name.from_ns && name.from_ns <= end)?;
            self.below(&made.path)
        };
        let path = self.name_at(row.file_id, row.start_ns)?;
        let (kind, path) = match row.op.as_str() {
            "open" => {
                let flags = row.flags.unwrap_or(0);
                let kind = CallKind::Open {
                    write: flags & O_ACCMODE != 0,
                    truncate: flags & O_TRUNC != 0,
                    create: false,
                };
                (kind, path)
            }
            "create" => {
                let kind = CallKind::Open {
                    write: true,
                    truncate: false,
                    create: true,
                };
                (kind, after_call()?)
            }
            "flush" | "release" => (CallKind::Close, path),
            "read" | "copy_from" => (
                CallKind::Read {
                    offset: count(row.offset),
                    length: usize::try_from(row.length.unwrap_or(row.result)).unwrap_or(moved),
                },
                path,
            ),
            "write" | "copy_to" => (
                CallKind::Write {
                    offset: count(row.offset),
                    length: moved,
                },
                path,
            ),
            "truncate" => (CallKind::Truncate(count(row.length)), path),
            "fsync" => (CallKind::Sync, path),
            "mkdir" => (CallKind::MakeDirectory, after_call()?),
            "rmdir" => (CallKind::RemoveDirectory, path),
            "unlink" => (CallKind::Remove, path),
            "rename" => (CallKind::Rename(new_name()?), path),
            "link" => (CallKind::Link(new_name()?), path),
            "readdir" => (CallKind::List, path),
            "getattr" => (CallKind::Stat, path),
            _ => return None,
        };
        let is_change = !matches!(
            kind,
            CallKind::Read { .. }
                | CallKind::List
                | CallKind::Stat
                | CallKind::Close
                | CallKind::Sync
                | CallKind::Open {
                    truncate: false,
                    create: false,
                    ..
                }
        );
        let next = self.place.len();
        let file = *self.place.entry(row.file_id).or_insert(next);
        let changes = self.changes.entry(row.file_id).or_default();
        // Those that were over; one that was still going on did not come first.
        let after = changes.iter().filter(|&&end| end <= row.start_ns).count() as u32;
        if is_change {
            changes.push(row.start_ns + row.duration_ns);
        }
        let totals = &mut self.workload.recorded;
        totals.calls += 1;
        match kind {
            CallKind::Read { .. } => totals.read_bytes += moved as u64,
            CallKind::Write { .. } => totals.write_bytes += moved as u64,
            _ => {}
        }
        Some(Call {
            kind,
            file,
            path,
            after,
            is_change,
        })
    }
}
