//! Calls of the programs of a process before its last, and the decision whether they were work.

use std::collections::{BTreeMap, HashMap, HashSet};

use flowtrace_schema::{CallRow, Result, Trace, is_system_path};

use super::Places;
use super::inherited::Inherited;
use super::tally::add;
use crate::model::{Access, FileIndex, Part, ProcessId, Programs, Workflow};
use crate::paths::base;

/// Less CPU time than this is the start of a program, and no work, ns.
const LEAST_WORK_NS: i64 = 10_000_000;
/// Less CPU time than one in so many parts of the CPU time of its process is no work either.
const LEAST_SHARE: i64 = 20;

/// Accesses of images that became others by an exec, summed up as the calls are read.
pub(super) struct Parts {
    becomes_another: Vec<bool>,
    found: HashMap<(usize, FileIndex), Access>,
}

impl Parts {
    pub(super) fn of(workflow: &Workflow) -> Parts {
        let mut becomes_another = vec![true; workflow.images.len()];
        for process in &workflow.processes {
            becomes_another[process.images.end - 1] = false;
        }
        Parts {
            becomes_another,
            found: HashMap::new(),
        }
    }

    /// Adds a successful call of a known process and file.
    pub(super) fn add(
        &mut self,
        call: &CallRow,
        places: &Places,
        (process, file): (ProcessId, FileIndex),
    ) {
        let Some(image) = call.upid.and_then(|upid| places.image(upid)) else {
            return;
        };
        if !self.becomes_another[image] {
            return;
        }
        let access = self.found.entry((image, file)).or_insert_with(|| Access {
            process,
            file,
            span_ns: (call.start_ns, call.start_ns),
            ..Access::default()
        });
        add(access, call);
    }

    /// Notes which images worked before they became others, names the processes by that, and keeps the
    /// accesses of the programs before the last of each.
    pub(super) fn settle(self, workflow: &mut Workflow, trace: &Trace) -> Result<()> {
        let executed: HashSet<(ProcessId, FileIndex)> =
            workflow.executions.iter().copied().collect();
        let mut has_worked: Vec<bool> = (0..workflow.images.len())
            .map(|image| self.becomes_another[image] && has_computed(workflow, image))
            .collect();
        let mut emptied = Vec::new();
        for (&(image, file), access) in &self.found {
            let is_program = executed.contains(&(access.process, file));
            has_worked[image] |= !is_program && is_work(workflow, access);
            let is_emptied = access.creates + access.truncates > 0;
            if is_emptied
                && !has_worked[image]
                && workflow.file(file).is_regular
                && !is_used_later(workflow, access)
            {
                emptied.push((image, file));
            }
        }
        // A file that the next program has open was opened for it.
        let inherited = Inherited::by_next(workflow, trace, &emptied)?;
        for (image, file) in emptied {
            has_worked[image] |= inherited.is_closed(workflow, image, file);
        }
        for (image, has_worked) in workflow.images.iter_mut().zip(has_worked) {
            image.has_worked = has_worked;
        }
        workflow.name_processes();

        let programs = Programs::of(workflow);
        let mut parts: BTreeMap<(ProcessId, FileIndex, usize), Access> = BTreeMap::new();
        for ((image, file), access) in self.found {
            let range = programs.of_process(access.process);
            let stints = &programs.stints[range.start..range.end - 1];
            let Some(stint) = stints.iter().find(|stint| image <= stint.image) else {
                continue;
            };
            let key = (access.process, file, stint.image);
            let sum = parts.entry(key).or_insert(Access {
                process: access.process,
                file,
                span_ns: access.span_ns,
                ..Access::default()
            });
            sum.join(&access);
        }
        let part = |((_, _, image), access)| Part { image, access };
        workflow.parts = parts.into_iter().map(part).collect();
        Ok(())
    }
}

/// Returns true if an image used a CPU for longer than it takes to start, and for more than a trifle of the
/// CPU time of its process.
fn has_computed(workflow: &Workflow, image: usize) -> bool {
    let image = &workflow.images[image];
    let of_process = workflow.process(image.process).cpu_ns.unwrap_or(0);
    let cpu_ns = image.cpu_ns.unwrap_or(0);
    cpu_ns >= LEAST_WORK_NS && cpu_ns.saturating_mul(LEAST_SHARE) >= of_process
}

/// Returns true if other programs of the process moved data of the file.
fn is_used_later(workflow: &Workflow, access: &Access) -> bool {
    let key = (access.process, access.file);
    let all = &workflow.accesses;
    let at = all.binary_search_by_key(&key, |whole| (whole.process, whole.file));
    at.is_ok_and(|at| (all[at].reads, all[at].changes) != (access.reads, access.changes))
}

/// Returns true if the access moved data: bytes of a file that is neither a library nor the script of one of
/// the images of the process, which the kernel and the interpreter read to start.
fn is_work(workflow: &Workflow, access: &Access) -> bool {
    let file = workflow.file(access.file);
    if !file.is_regular || access.read_bytes + access.write_bytes == 0 {
        return false;
    }
    let path = file.path.as_deref().unwrap_or_default();
    let is_script = || {
        let mut images = workflow.images(access.process).iter();
        images.any(|image| *image.rule == *base(path))
    };
    access.write_bytes > 0 || !is_system_path(path.as_bytes()) && !is_script()
}
