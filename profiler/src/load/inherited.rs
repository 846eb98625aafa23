//! Files that a program made or emptied and had closed before it became another: these are its own work.
//! Files that the next program inherited were redirections for it.

use std::collections::{HashMap, HashSet};

use flowtrace_schema::{Result, Trace};

use crate::model::{FileIndex, Workflow};

/// Files that programs inherited at their exec.
#[derive(Default)]
pub(super) struct Inherited {
    /// Paths by the image that inherited them; `None`: not recorded.
    paths: Option<HashMap<i64, HashSet<String>>>,
    /// All names that each file in question ever had, where it had others than its last.
    names: HashMap<i64, Vec<String>>,
}

impl Inherited {
    /// The files that the programs after these images inherited. `asked` has the images, each with a file.
    pub(super) fn by_next(
        workflow: &Workflow,
        trace: &Trace,
        asked: &[(usize, FileIndex)],
    ) -> Result<Inherited> {
        if asked.is_empty() || workflow.runs.iter().any(|run| !run.sees_descriptors()) {
            return Ok(Inherited::default());
        }
        let next = |&(image, _): &(usize, FileIndex)| workflow.images[image + 1].upid;
        let next: HashSet<i64> = asked.iter().map(next).collect();
        let mut paths: HashMap<i64, HashSet<String>> = HashMap::new();
        for row in trace.descriptors()? {
            if row.target.starts_with('/') && next.contains(&row.upid) {
                let of_image = paths.entry(row.upid).or_default();
                let there = row.target.strip_suffix(" (deleted)");
                of_image.extend(there.map(str::to_owned));
                of_image.insert(row.target);
            }
        }
        let mut inherited = Inherited {
            paths: Some(paths),
            names: HashMap::new(),
        };
        let files = asked
            .iter()
            .filter(|&&(image, file)| inherited.is_closed(workflow, image, file));
        let files: HashSet<i64> = files
            .map(|&(_, file)| workflow.file(file).file_id)
            .collect();
        if !files.is_empty() {
            for row in trace.file_names()? {
                if files.contains(&row.file_id) {
                    inherited
                        .names
                        .entry(row.file_id)
                        .or_default()
                        .push(row.path);
                }
            }
        }
        Ok(inherited)
    }

    /// Returns true if an image, which became another, certainly did not pass a file on to it.
    pub(super) fn is_closed(&self, workflow: &Workflow, image: usize, file: FileIndex) -> bool {
        let Some(paths) = &self.paths else {
            return false;
        };
        let Some(paths) = paths.get(&workflow.images[image + 1].upid) else {
            return true;
        };
        let file = workflow.file(file);
        let last = file.path.as_deref().map(|path| paths.contains(path));
        let mut others = self.names.get(&file.file_id).into_iter().flatten();
        last == Some(false) && !others.any(|path| paths.contains(path))
    }
}
