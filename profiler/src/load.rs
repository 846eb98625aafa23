//! Reads a trace once into a [`Workflow`].
//!
//! `load_from` calls the passes in this order. Each needs what those above it have set, and none changes it but for
//! what is named here.
//!
//! | pass | sets, from |
//! |---|---|
//! | `rules::fill_in` | rules that the recording did not store; from commands and, at the end of a run, from records of managers |
//! | `add_processes` | `processes`, `images`; from the view `processes` |
//! | `add_files` | `files`; from the view `files` |
//! | `add_stops` | `Process::stops`; from stops by job control |
//! | `last_event`, `complete::until` | `last_ns`, `complete_ns`: until when the trace holds everything |
//! | `add_accesses` | `accesses`, `returns`, `mount`, `File::read_once_bytes`, `Process::unopened`; in one pass over all calls, which also go to the caller of [`load_and`] |
//! | `polls` | `polls`: waits for a file or a lock by trying again and again; from failed lookups and refused locks in that pass |
//! | `redirections::pass_on` | moves accesses of files that a shell opened for the program it started to that program |
//! | `unseen::settle` | times of writes into files of which only the open is seen |
//! | `returns::settle` | `returns`: processes that read what others wrote into a file after their own change; without those whose reads were moved above |
//! | `add_channels`, `add_flows` | `streams`: data from process to process; from channel ends, tokens and flows, with evidence of who moved data |
//! | `add_executions` | `names`, `executions`: which file each image ran |
//! | `parts.settle` | `Image::has_worked`, names of processes, and `parts`: accesses of programs before the last of a process |

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use flowtrace_schema::{
    CallRow, FileRow, NameRow, ProcessRow, Result, StopRow, Trace, is_system_path,
};

use crate::intervals::union;
use crate::jobs::Records;
use crate::model::{File, FileIndex, Image, Moved, Names, Poll, Process, ProcessId, Workflow};
use crate::rules;

mod accesses;
mod activity;
mod answers;
mod bounds;
mod complete;
mod end_use;
mod ends;
mod file_index;
mod grant;
mod grants;
mod inherited;
mod lock_peers;
mod locks;
mod other_reads;
mod parts;
mod places;
mod polls;
mod ranked;
mod read_once;
mod readers;
mod redirections;
mod returns;
mod streams;
mod tally;
mod unopened;
mod unrecorded;
mod unseen;
mod ways;
mod writers;

use accesses::add_accesses;
pub use activity::load_activity;
pub(crate) use activity::load_activity_with_grants;
use file_index::file_index;
pub(crate) use grant::Grant;
pub(crate) use grants::Grants;
pub(crate) use lock_peers::is_single;
pub(crate) use places::Places;
use streams::{add_channels, add_flows};
pub use unrecorded::unrecorded;
use ways::Evidence;

/// Reads everything that the analyses need. Rules that the recording did not store, because it
/// was cut short, are inferred.
///
/// # Errors
/// When the file cannot be read.
pub fn load(trace: &Trace) -> Result<Workflow> {
    Ok(load_and(trace, |_| (), |(), _| ())?.0)
}

/// Like [`load`], for a run that has just ended: rules are inferred with the records that workflow managers
/// left beside it.
///
/// # Errors
/// When the file cannot be read.
pub fn load_at_end(trace: &Trace) -> Result<Workflow> {
    let records = &mut Records::default();
    Ok(load_from(trace, Some(records), |_| (), |(), _| ())?.0)
}

/// Like [`load`], and passes on every file call as it is read, so that a large trace is read once: `begin`
/// gets the workflow with its processes, files and end, `each` gets the result of `begin` and the calls in
/// the order of time.
///
/// # Errors
/// When the file cannot be read.
pub fn load_and<S>(
    trace: &Trace,
    begin: impl FnOnce(&Workflow) -> S,
    each: impl FnMut(&mut S, &CallRow),
) -> Result<(Workflow, S)> {
    load_from(trace, None, begin, each)
}

fn load_from<S>(
    trace: &Trace,
    records: Option<&mut Records>,
    begin: impl FnOnce(&Workflow) -> S,
    mut each: impl FnMut(&mut S, &CallRow),
) -> Result<(Workflow, S)> {
    let mut workflow = Workflow {
        runs: trace.runs()?,
        directories: trace.traced_directories()?,
        losses: trace.losses()?,
        is_live: trace.is_being_recorded(),
        unrecorded: unrecorded(trace)?,
        ..Workflow::default()
    };
    let mut rows = trace.processes()?;
    rules::fill_in(trace, &mut rows, records)?;
    add_processes(&mut workflow, rows);
    add_files(&mut workflow, trace.files()?);
    add_stops(&mut workflow, trace.stops()?);
    workflow.last_ns = last_event(&workflow, trace)?;
    workflow.complete_ns = complete::until(&workflow, trace)?;
    let mut other = begin(&workflow);
    let (lookups, refused, parts) =
        add_accesses(&mut workflow, trace, |call| each(&mut other, call))?;
    workflow.polls = lookups.polls(&workflow);
    workflow.polls.extend(refused.polls(&workflow, trace)?);
    let order = |poll: &Poll| (poll.poller, poll.from_ns, poll.made_ns);
    workflow.polls.sort_unstable_by_key(order);
    redirections::pass_on(&mut workflow);
    unseen::settle(&mut workflow);
    returns::settle(&mut workflow);
    workflow.network = trace.network_totals()?;
    let flows = match workflow.network {
        Some(_) => trace.flows_between()?,
        None => Vec::new(),
    };
    let evidence = Evidence::read(trace, &flows)?;
    add_channels(
        &mut workflow,
        trace.channel_ends()?,
        trace.token_pipes()?,
        &evidence,
    );
    add_flows(&mut workflow, &flows);
    let names = trace.file_names()?;
    workflow.names = Names::of(&workflow.files, &names);
    add_executions(&mut workflow, names);
    parts.settle(&mut workflow, trace)?;
    Ok((workflow, other))
}

/// A signal stops all threads of a process at once.
fn add_stops(workflow: &mut Workflow, rows: Vec<StopRow>) {
    let places = Places::of(workflow);
    let mut stops: Vec<(ProcessId, i64, i64)> = rows
        .into_iter()
        .filter_map(|row| Some((places.process(row.upid)?, row.t_ns, row.end_ns)))
        .collect();
    stops.sort_unstable();
    for of_one in stops.chunk_by(|a, b| a.0 == b.0) {
        let intervals = of_one.iter().map(|&(_, from, to)| (from, to)).collect();
        workflow.processes[of_one[0].0.0 as usize].stops = union(intervals);
    }
}

fn last_event(workflow: &Workflow, trace: &Trace) -> Result<i64> {
    let run_end = workflow.runs.iter().filter_map(|run| run.end_ns).max();
    let image_end = |image: &Image| image.end_ns.unwrap_or(image.start_ns);
    let last_image = workflow.images.iter().map(image_end).max();
    Ok(match run_end {
        Some(end) if !workflow.is_cut_short() => end,
        _ => run_end
            .max(last_image)
            .max(trace.last_call_ns()?)
            .max(trace.last_sample_ns()?)
            .max(trace.last_packet_ns()?)
            .unwrap_or(0),
    })
}

fn add_processes(workflow: &mut Workflow, rows: Vec<ProcessRow>) {
    let at: HashMap<i64, usize> = rows.iter().enumerate().map(|(i, r)| (r.upid, i)).collect();

    // An exec comes after the image it ends, so `prev_upid` is a smaller id in every sound trace.
    let mut first: Vec<usize> = (0..rows.len()).collect();
    for (i, row) in rows.iter().enumerate() {
        if let Some(&prev) = row.prev_upid.and_then(|upid| at.get(&upid))
            && prev < i
        {
            first[i] = first[prev];
        }
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&i| (first[i], i));

    let mut process_of_row = vec![ProcessId::default(); rows.len()];
    let mut rows: Vec<Option<ProcessRow>> = rows.into_iter().map(Some).collect();
    let mut parents: Vec<Option<i64>> = Vec::new();
    let unknown: Arc<str> = rules::UNKNOWN.into();
    for i in order {
        let Some(row) = rows[i].take() else { continue };
        if first[i] == i {
            parents.push(row.parent_upid);
            let next = workflow.images.len();
            workflow.processes.push(Process {
                images: next..next,
                pid: row.pid,
                start_ns: row.start_ns,
                ..Process::default()
            });
        }
        process_of_row[i] = ProcessId(workflow.processes.len() as u32 - 1);
        let cpu_ns = row
            .on_cpu_ns
            .or_else(|| Some(row.user_ns?.saturating_add(row.sys_ns?)));
        if let Some(process) = workflow.processes.last_mut() {
            process.images.end += 1;
            // The last image decides: an exec ends an image, but the process goes on.
            process.end_ns = row.end_ns;
            process.exit_code = row.exit_code;
            process.exit_signal = row.exit_signal;
            process.cpu_ns = sum(process.cpu_ns, cpu_ns);
            process.read_bytes = sum(process.read_bytes, row.read_bytes);
            process.write_bytes = sum(process.write_bytes, row.write_bytes);
        }
        workflow.images.push(Image {
            upid: row.upid,
            process: process_of_row[i],
            is_fork: &*row.origin == "fork",
            is_exec: &*row.origin == "exec",
            exe: row.exe,
            command: row.command,
            rule: row.rule.unwrap_or_else(|| Arc::clone(&unknown)),
            start_ns: row.start_ns,
            end_ns: row.end_ns,
            cpu_ns,
            run_queue_ns: row.run_queue_ns,
            storage_ns: row.storage_ns,
            wait_ns: row.wait_ns,
            max_rss_bytes: row.max_rss_bytes,
            threads: row.threads,
            cwd: row.cwd,
            host: row.host,
            tracer_ns: row.tracer_ns,
            has_worked: false,
            reads: moved(row.read_calls, row.read_bytes),
            writes: moved(row.write_calls, row.write_bytes),
            kernel_share: row
                .user_ns
                .zip(row.sys_ns)
                .filter(|(user, sys)| user + sys > 0)
                .map(|(user, sys)| sys as f64 / (user + sys) as f64),
        });
    }
    for (i, parent) in parents.into_iter().enumerate() {
        let parent = parent
            .and_then(|upid| at.get(&upid))
            .map(|&row| process_of_row[row]);
        workflow.processes[i].parent = parent.filter(|parent| parent.0 as usize != i);
    }
    cut_parent_cycles(&mut workflow.processes);
}

/// A sound trace has no cycle; a damaged one must not make an analysis loop for ever.
fn cut_parent_cycles(processes: &mut [Process]) {
    const UNSEEN: u32 = u32::MAX;
    let mut seen_by = vec![UNSEEN; processes.len()];
    for start in 0..processes.len() {
        let mut at = start;
        while seen_by[at] == UNSEEN {
            seen_by[at] = start as u32;
            match processes[at].parent {
                Some(parent) if seen_by[parent.0 as usize] == start as u32 => {
                    processes[at].parent = None;
                }
                Some(parent) => at = parent.0 as usize,
                None => {}
            }
        }
    }
}

fn moved(calls: Option<i64>, bytes: Option<i64>) -> Moved {
    let (calls, bytes) = calls.zip(bytes).unwrap_or_default();
    Moved { calls, bytes }
}

fn sum(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    }
}

fn add_files(workflow: &mut Workflow, rows: Vec<FileRow>) {
    let file = |row: FileRow| File {
        file_id: row.file_id,
        is_regular: &*row.kind == "file",
        size_bytes: row.size_bytes,
        only_opens: &*row.coverage == "open",
        is_system: &*row.coverage == "open" && is_system(row.path.as_deref()),
        path: row.path.map(Arc::from),
        read_once_bytes: None,
    };
    workflow.files = rows.into_iter().map(file).collect();
}

/// True for a file that is only known by its opens and belongs to the machine: the workflow's own files would
/// be lost among these.
fn is_system(path: Option<&str>) -> bool {
    path.is_some_and(|path| is_system_path(path.as_bytes()))
}

/// Finds the programs among the files by the name that they had when they were executed.
fn add_executions(workflow: &mut Workflow, rows: Vec<NameRow>) {
    let executed: HashSet<&str> = workflow
        .images
        .iter()
        .filter(|image| !image.is_fork)
        .filter_map(|image| image.exe.as_deref())
        .collect();
    if executed.is_empty() || workflow.files.is_empty() {
        return;
    }
    let mut names: HashMap<String, Vec<(i64, Option<i64>, FileIndex)>> = HashMap::new();
    for name in rows {
        if executed.contains(name.path.as_str())
            && let Some(file) = file_index(&workflow.files, name.file_id)
            && workflow.file(file).is_regular
        {
            names
                .entry(name.path)
                .or_default()
                .push((name.from_ns, name.to_ns, file));
        }
    }
    let mut executions = Vec::new();
    for image in workflow.images.iter().filter(|image| !image.is_fork) {
        let candidates = image.exe.as_deref().and_then(|exe| names.get(exe));
        // The lookup of a program comes before its exec is complete.
        let at_exec = candidates.into_iter().flatten().filter(|(from, to, _)| {
            *from <= image.start_ns && to.is_none_or(|to| image.start_ns <= to)
        });
        executions.extend(at_exec.max().map(|&(_, _, file)| (image.process, file)));
    }
    executions.sort_unstable();
    executions.dedup();
    workflow.executions = executions;
}
