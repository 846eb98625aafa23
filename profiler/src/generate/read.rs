//! Reads a trace for the generator.

use flowtrace_schema::{LossRow, Result, RunRow, Trace};

use super::compiled::as_sources;
use super::effects::changes;
use super::source::{Source, Unfit};
use super::substituted::find;
use crate::model::Workflow;

impl Source {
    /// Reads a trace.
    ///
    /// # Errors
    /// The outer error means that the file cannot be read; the inner one, that the trace lacks what is
    /// needed.
    pub(super) fn read(
        trace: &Trace,
        workflow: Workflow,
    ) -> Result<std::result::Result<Source, Unfit>> {
        if let Some(unfit) = unfit(&workflow) {
            return Ok(Err(unfit));
        }
        let mut source = Source {
            root: workflow.runs[0].cwd.clone(),
            children: workflow.children(),
            ..Source::default()
        };
        for image in &workflow.images {
            source.process_of.insert(image.upid, image.process);
        }
        for row in trace.processes()? {
            source.rows.insert(row.upid, row);
        }
        for row in trace.descriptors()? {
            source.descriptors.entry(row.upid).or_default().push(row);
        }
        for row in trace.here_documents()? {
            let key = (row.upid, row.fd);
            source.here_documents.insert(key, row.content);
        }
        for row in trace.settings()? {
            source.umask.insert(row.upid, row.umask);
            source.environment.insert(row.upid, row.environment);
        }
        for row in trace.variables()? {
            let of_image = source.variables.entry(row.upid).or_default();
            of_image.insert(row.name, row.value);
        }
        for row in trace.file_names()? {
            let named = source.files_named.entry(row.path.clone()).or_default();
            if named.last() != Some(&row.file_id) {
                named.push(row.file_id);
            }
            source.names.entry(row.file_id).or_default().push(row);
        }
        let files = trace.files()?;
        let directories = files.iter().filter(|file| &*file.kind == "directory");
        source.directories = directories.map(|file| file.file_id).collect();
        let links = files.iter().filter(|file| &*file.kind == "symlink");
        source.links = links.map(|file| file.file_id).collect();
        let named_fifos = files.iter().filter(|file| &*file.kind == "fifo");
        source.named_fifos = named_fifos.map(|file| file.file_id).collect();
        for row in trace.pipes()? {
            if &*row.kind == "fifo" {
                source
                    .fifos
                    .entry(row.channel_id)
                    .or_default()
                    .push(row.upid);
            } else if let Some(inode) = row.inode {
                if let Some(fd) = row.fd.filter(|&fd| fd > 2) {
                    let others = source.other_pipes.entry(row.upid).or_default();
                    others.push((fd, inode, row.direction == "read"));
                }
                let sides = match row.direction.as_str() {
                    "read" => &mut source.pipe_reads,
                    _ => &mut source.pipe_writes,
                };
                sides.entry(row.upid).or_default().insert(inode);
            }
        }
        let Some(root) = workflow.root() else {
            return Ok(Err(Unfit {
                reason: "no process was seen".into(),
                hint: "record it again with flowtrace run",
            }));
        };
        source.first_upid = workflow.images(root)[0].upid;
        if !source.environment.contains_key(&source.first_upid) {
            return Ok(Err(Unfit {
                reason: "it does not say what the programs began with: redirections, environment"
                    .into(),
                hint: "record it again with flowtrace run of this version, without --no-ptrace",
            }));
        }
        source.workflow = workflow;
        source.actions = as_sources(&source, trace.actions()?);
        for (at, action) in source.actions.iter().enumerate() {
            if &*action.class == "read" {
                source.read_files.insert((action.upid, action.file_id));
            }
            let file = source.workflow.file_with(action.file_id);
            let is_own = file.is_some_and(|file| file.is_regular && !file.is_system);
            if is_own && changes(action) {
                source.changes.entry(action.upid).or_default().push(at);
            }
        }
        source.substitutions = find(&source);
        Ok(Ok(source))
    }
}

fn unfit(workflow: &Workflow) -> Option<Unfit> {
    let unfit = |reason: &str, hint| {
        Some(Unfit {
            reason: reason.into(),
            hint,
        })
    };
    let again = "record it again with flowtrace run";
    match &workflow.runs[..] {
        [] => return unfit("it holds no run", again),
        [run] => {
            if workflow.is_live {
                return unfit("it is still being recorded", "wait for its end");
            }
            if run.end_ns.is_none() {
                let why = workflow.unrecorded.as_deref();
                return unfit(why.unwrap_or("its recording was cut short"), again);
            }
            if !run.sees_descriptors() {
                let reason = "the processes were not read at their begin, so that redirections are not known";
                return unfit(reason, without(run));
            }
            if !run.sees_file_calls() {
                let reason = "it holds opens and names of files, no reads and writes";
                return unfit(reason, mounted(workflow));
            }
            if workflow.directories.is_empty() {
                let reason = "nothing was mounted, so that the making of directories, modes and links are not known";
                return unfit(reason, "record it again without --no-mount");
            }
        }
        _ => return unfit("it holds several runs", "give the trace of one run"),
    }
    let is_excluded = |loss: &LossRow| loss.counter == "excluded_calls" && loss.value > 0;
    if workflow.losses.iter().any(is_excluded) {
        let reason =
            "files were left out of it (--include, --exclude), so that dependencies are missing";
        return unfit(reason, "record it again without --include and --exclude");
    }
    let lost = workflow.losses.iter().find(|loss| loss.has_lost_data());
    lost.and_then(|loss| {
        unfit(
            &format!(
                "rows are missing ({}: {} × {})",
                loss.counter, loss.value, loss.meaning
            ),
            again,
        )
    })
}

/// Advice how to record a run by a mount.
fn mounted(workflow: &Workflow) -> &'static str {
    let was_refused = |loss: &LossRow| loss.counter == "not_traced" && loss.value > 0;
    match workflow.losses.iter().any(was_refused) {
        true => {
            "nothing could be mounted there: flowtrace doctor says what /dev/fuse and mounts take; then record it again"
        }
        false => "record it again without --no-mount",
    }
}

/// Advice how to record a run so that the trace has the initial state of processes.
fn without(run: &RunRow) -> &'static str {
    match (&run.command, &*run.process_layer) {
        (None, _) => "record the command itself: flowtrace run -- COMMAND",
        // Tracepoints record calls as root, unless `--no-topology` is given.
        (_, "tracepoints") => "record it again with flowtrace run, without --no-topology",
        _ => {
            "record it again with flowtrace run, without --no-ptrace; flowtrace doctor says what else it takes"
        }
    }
}
