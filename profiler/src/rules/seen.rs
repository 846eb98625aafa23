//! The files of a trace by their names, read on first use.

use std::collections::HashSet;

use flowtrace_schema::{Result, Trace, TracedDirectoryRow};

use super::subcommands::Files;

/// The files of the traced directories.
pub(super) struct Seen<'a> {
    trace: &'a Trace,
    directories: Vec<String>,
    /// Names of the files, once they have been read. If they cannot be read, the set is empty.
    paths: Option<HashSet<String>>,
}

impl<'a> Seen<'a> {
    pub(super) fn in_(trace: &'a Trace) -> Result<Seen<'a>> {
        let directories = trace.traced_directories()?.into_iter();
        let seen = directories.filter(TracedDirectoryRow::is_seen);
        Ok(Seen {
            trace,
            directories: seen.map(|directory| directory.path).collect(),
            paths: None,
        })
    }

    fn read(trace: &Trace) -> Result<HashSet<String>> {
        let files = trace.files()?.into_iter();
        let there = files.filter(|file| &*file.kind != "absent");
        let there: HashSet<i64> = there.map(|file| file.file_id).collect();
        let names = trace.file_names()?.into_iter();
        let names = names.filter(|name| there.contains(&name.file_id));
        Ok(names.map(|name| name.path).collect())
    }
}

impl Files for Seen<'_> {
    fn has(&mut self, path: &str) -> Option<bool> {
        let mut directories = self.directories.iter();
        directories.find(|directory| crate::paths::relative_to(path, directory) != path)?;
        let trace = self.trace;
        let paths = self
            .paths
            .get_or_insert_with(|| Seen::read(trace).unwrap_or_default());
        Some(paths.contains(path))
    }
}
