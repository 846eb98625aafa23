//! Bytes that processes read from anything but pipes.

use std::collections::HashMap;
use std::sync::Arc;

use crate::load::end_use::EndUse;
use crate::model::{ProcessId, Workflow};
/// Bytes that processes have read from elsewhere than pipes: a copy of its parent reads none, a program reads
/// its libraries and the like, which are as much each time that it runs.
#[derive(Default)]
pub(super) struct OtherReads {
    /// For each process: true if it is nothing but a copy of its parent.
    pub(super) copies: Vec<bool>,
    /// The program of each process that ran only one.
    pub(super) program: Vec<Option<Arc<str>>>,
    /// Least number of bytes that a run of a program read, for each program that ran more than once.
    pub(super) least: HashMap<Arc<str>, i64>,
    /// Bytes that each process read from traced files, and wrote to them.
    pub(super) files: Vec<(i64, i64)>,
}

impl OtherReads {
    pub(super) fn of(workflow: &Workflow) -> OtherReads {
        let mut reads = OtherReads {
            files: vec![(0, 0); workflow.processes.len()],
            ..OtherReads::default()
        };
        for access in &workflow.accesses {
            let (read, written) = &mut reads.files[access.process.0 as usize];
            *read = read.saturating_add(access.read_bytes);
            *written = written.saturating_add(access.write_bytes);
        }
        let mut seen: HashMap<Arc<str>, (u32, i64)> = HashMap::new();
        for id in workflow.process_ids() {
            let images = workflow.images(id);
            reads.copies.push(images.iter().all(|image| image.is_fork));
            let mut programs = images.iter().filter(|image| !image.is_fork);
            let program = match (programs.next(), programs.next()) {
                (Some(only), None) if only.is_exec => only.exe.clone(),
                _ => None,
            };
            if let (Some(exe), Some(all)) = (&program, workflow.process(id).read_bytes) {
                let other = all.saturating_sub(reads.files(id).0).max(0);
                let (times, least) = seen.entry(Arc::clone(exe)).or_insert((0, other));
                *times += 1;
                *least = other.min(*least);
            }
            reads.program.push(program);
        }
        let often = seen.into_iter().filter(|&(_, (times, _))| times > 1);
        reads.least = often.map(|(exe, (_, least))| (exe, least)).collect();
        reads
    }

    /// Only the bytes that each process read from traced files, and wrote to them.
    #[cfg(test)]
    pub(super) fn of_files(files: Vec<(i64, i64)>) -> OtherReads {
        OtherReads {
            files,
            ..OtherReads::default()
        }
    }

    /// Bytes that a process read from traced files, and wrote to them.
    pub(super) fn files(&self, id: ProcessId) -> (i64, i64) {
        self.files.get(id.0 as usize).copied().unwrap_or_default()
    }

    pub(super) fn is_copy(&self, id: ProcessId) -> bool {
        self.copies.get(id.0 as usize) == Some(&true)
    }

    /// Bytes that a reader with the bound of `side` has read from pipes; `None`: not known.
    pub(super) fn piped(&self, id: ProcessId, side: &EndUse) -> Option<i64> {
        let all = side.at_most_bytes?;
        if self.is_copy(id) {
            return Some(all);
        }
        let program = self.program.get(id.0 as usize)?.as_ref()?;
        let least = self.least.get(program)?;
        Some(all.saturating_sub(*least).max(0))
    }
}
