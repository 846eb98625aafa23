//! Files that processes searched or opened in vain shortly before they failed: mostly the reason.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use flowtrace_schema::{CallRow, Class, is_system_path};

use crate::model::{File, FileIndex, Process, ProcessId, Relation, Unopened, Workflow};
use crate::paths::{base, directory, relative};

/// A process that goes on for longer did not end because of it, ns.
const SOON: i64 = 1_000_000_000;

/// A call in vain.
#[derive(Clone, Copy)]
struct Attempt {
    at_ns: i64,
    file: FileIndex,
    errno: i64,
}

/// The last such call of each process that failed, collected as the calls are read.
pub(super) struct Attempts {
    last: HashMap<ProcessId, Attempt>,
    /// True for each process that ended with another exit code than 0.
    has_failed: Vec<bool>,
    /// Directory in which the run began.
    cwd: String,
}

impl Attempts {
    pub(super) fn of(workflow: &Workflow) -> Attempts {
        let has_failed = |process: &Process| {
            process.exit_signal.is_none() && process.exit_code.is_some_and(|code| code != 0)
        };
        Attempts {
            last: HashMap::new(),
            has_failed: workflow.processes.iter().map(has_failed).collect(),
            cwd: workflow
                .runs
                .first()
                .map_or_else(String::new, |run| run.cwd.clone()),
        }
    }

    /// Adds a call of a process on a file.
    pub(super) fn add(
        &mut self,
        process: ProcessId,
        file: FileIndex,
        call: &CallRow,
        files: &[File],
    ) {
        let is_one = |class| matches!(class, Class::Open | Class::Attribute);
        if !self.has_failed[process.0 as usize] || !call.op.is_some_and(|op| is_one(op.class())) {
            return;
        }
        let path = |file: FileIndex| files[file.0 as usize].path.as_deref().unwrap_or_default();
        if call.result >= 0 {
            // It may have been found elsewhere, as on a path of headers.
            let last = self.last.get(&process);
            if last.is_some_and(|last| base(path(last.file)) == base(path(file))) {
                self.last.remove(&process);
            }
        } else if Unopened::is_known(-call.result) && self.may_be_needed(path(file)) {
            let attempt = Attempt {
                at_ns: call.start_ns,
                file,
                errno: -call.result,
            };
            self.last.insert(process, attempt);
        }
    }

    /// Returns false for files that programs do without: settings, caches, files of the machine or beside programs.
    fn may_be_needed(&self, path: &str) -> bool {
        let shown = relative(path, &self.cwd);
        let is_hidden = shown.starts_with('.') || shown.contains("/.");
        let is_cache = shown.contains("__pycache__/");
        let is_program = matches!(base(directory(path)), "bin" | "sbin");
        let is_other = is_hidden || is_cache || is_program;
        !(shown.is_empty() || is_other || is_system_path(path.as_bytes()))
    }

    /// Notes the files at the processes that failed soon after, had not run another program in the meantime, and
    /// had not begun to read another file.
    pub(super) fn settle(self, workflow: &mut Workflow) {
        let mut others: HashSet<ProcessId> = HashSet::new();
        for child in &workflow.processes {
            let attempt = child.parent.and_then(|parent| self.last.get(&parent));
            if attempt.is_some_and(|last| child.has_failed() || child.start_ns > last.at_ns) {
                others.extend(child.parent);
            }
        }
        for (&id, last) in self.last.iter().filter(|(id, _)| !others.contains(id)) {
            let path = workflow.file(last.file).path.clone().unwrap_or_default();
            let is_other = |file: FileIndex, from_ns: i64, relation: Relation| {
                workflow.file(file).path.as_ref() == Some(&path)
                    || relation == Relation::Read && from_ns > last.at_ns
            };
            let mut own = workflow.accesses_of(id).iter();
            let has_gone_on =
                own.any(|access| is_other(access.file, access.span_ns.0, access.relation()));
            let began_ns = workflow.last_image(id).start_ns;
            let end_ns = workflow.process(id).end_ns.unwrap_or(i64::MAX);
            let is_soon = began_ns <= last.at_ns && end_ns - last.at_ns <= SOON;
            if is_soon && !has_gone_on {
                workflow.processes[id.0 as usize].unopened = Some(Unopened {
                    path: Arc::from(relative(&path, &self.cwd)),
                    errno: last.errno,
                });
            }
        }
    }
}
