//! The calls of each process on each file, summed up as they are read.

use std::collections::HashMap;

use flowtrace_schema::open_flags::{O_ACCMODE, O_TRUNC, O_WRONLY};
use flowtrace_schema::{CallRow, Class, Op, Result, Trace, may_be_made};

use super::Places;
use super::answers::Answers;
use super::locks::Refused;
use super::parts::Parts;
use super::polls::Lookups;
use super::read_once::ReadOnce;
use super::returns::Returns;
use super::unopened::Attempts;
use crate::load::tally::{add, add_unseen};
use crate::model::{Access, File, FileIndex, ProcessId, Workflow};

/// Adds the accesses, ordered by process, then file. System files are left out until the workflow makes or
/// overwrites them: then they are its own. Every call is also passed to `each`. Returns the failed lookups,
/// the locks that were refused, and the accesses of programs before an exec.
pub(super) fn add_accesses(
    workflow: &mut Workflow,
    trace: &Trace,
    mut each: impl FnMut(&CallRow),
) -> Result<(Lookups, Refused, Parts)> {
    let places = Places::of(workflow);
    let mut lookups = Lookups::of(workflow, trace)?;
    let mut refused = Refused::default();
    let mut parts = Parts::of(workflow);
    let mut returns = Returns::of(workflow.files.len());
    let mut answers = Answers::of(workflow);
    let mut read_once = ReadOnce::of(workflow.files.len());
    let mut attempts = Attempts::of(workflow);
    let mut files = std::mem::take(&mut workflow.files);
    let mut found: Vec<Access> = Vec::new();
    let mut place_of: HashMap<(ProcessId, FileIndex), u32> = HashMap::new();
    // Most calls are of the same process and file as the one before.
    let mut last = (ProcessId::default(), FileIndex::default(), 0);
    let calls = trace.for_each_call(|call| {
        each(call);
        refused.add(call);
        let file = call.file_id.and_then(|id| places.file(id));
        if file.is_some_and(|file| !files[file.0 as usize].only_opens) {
            answers.add(call, &places);
        }
        let process = call.upid.and_then(|upid| places.process(upid));
        if let Some((process, file)) = process.zip(file) {
            attempts.add(process, file, call, &files);
        }
        if call.result < 0 && !Lookups::is_one(call) {
            return;
        }
        if call.result >= 0 {
            lookups.note_maker(call);
        }
        let (Some(process), Some(file)) = (process, file) else {
            return;
        };
        if call.result < 0 {
            return lookups.add(process, file, call.start_ns);
        }
        if files[file.0 as usize].is_system {
            if !makes(call, &files[file.0 as usize]) {
                return;
            }
            files[file.0 as usize].is_system = false;
        }
        if (last.0, last.1) != (process, file) {
            let place = *place_of.entry((process, file)).or_insert_with(|| {
                found.push(Access {
                    process,
                    file,
                    span_ns: (call.start_ns, call.start_ns),
                    ..Access::default()
                });
                found.len() as u32 - 1
            });
            last = (process, file, place as usize);
        }
        let access = &mut found[last.2];
        returns.add(access, call);
        add(access, call);
        read_once.add(file, call);
        parts.add(call, &places, (process, file));
        if call.op.is_some_and(|op| op.class() == Class::Open) {
            let known = &files[file.0 as usize];
            add_unseen(access, call, known.only_opens, known.size_bytes != Some(0));
        }
    });
    read_once.settle(&mut files);
    workflow.files = files;
    calls?;
    drop(place_of);
    found.sort_unstable_by_key(|access| (access.process, access.file));
    found.shrink_to_fit();
    workflow.accesses = found;
    workflow.returns = returns.found();
    workflow.mount = answers.found();
    attempts.settle(workflow);
    Ok((lookups, refused, parts))
}

/// Returns true if a successful call makes a file, or overwrites it. An open for both may only read.
fn makes(call: &CallRow, file: &File) -> bool {
    let flags = call.flags.unwrap_or(0);
    let is_change = match call.op {
        Some(Op::Create) => true,
        Some(op) if op.class() == Class::Open => {
            flags & O_ACCMODE == O_WRONLY || flags & O_TRUNC != 0
        }
        Some(op) => op.class() == Class::Write,
        None => false,
    };
    is_change
        && file
            .path
            .as_deref()
            .is_some_and(|path| may_be_made(path.as_bytes()))
}
