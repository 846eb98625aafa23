//! Recorded calls as calls to be played, and the files that have to be there first.

use std::collections::{BTreeSet, HashMap, HashSet};

use flowtrace_schema::{NameRow, ReplayedCallRow};

use super::order::{Order, Recorded};
use super::{Call, CallKind, Workload, place};
use crate::model::ProcessId;

const O_ACCMODE: i64 = 3;
const O_TRUNC: i64 = 0o1000;

/// Makes calls to be played of recorded ones.
pub(super) struct Planner<'a> {
    /// Every name of each file.
    pub(super) names: &'a HashMap<i64, Vec<NameRow>>,
    /// The traced directories.
    pub(super) roots: &'a [&'a str],
    /// Number of each file.
    pub(super) place: HashMap<i64, usize>,
    pub(super) order: Order,
    pub(super) workload: Workload,
}

impl Planner<'_> {
    fn below(&self, path: &str) -> Option<String> {
        place(self.roots, path)
    }

    fn name_at(&self, file: i64, at: i64) -> Option<String> {
        let names = self.names.get(&file)?;
        let was = |name: &&NameRow| name.from_ns <= at && name.to_ns.is_none_or(|to| to >= at);
        let name = names.iter().find(was).or(names.last())?;
        self.below(&name.path)
    }

    /// What is there before anything is played: files that are used before anybody made them, as large
    /// as they are read, and directories.
    pub(super) fn prepare(&mut self, calls: &[ReplayedCallRow]) {
        let mut made: HashSet<i64> = HashSet::new();
        let mut directories = BTreeSet::new();
        let mut is_directory: HashSet<i64> = HashSet::new();
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
        let made_directories: HashSet<String> = calls
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
        let used: HashSet<String> = calls
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
    pub(super) fn call(&mut self, row: &ReplayedCallRow, process: ProcessId) -> Option<Call> {
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
        let next = self.place.len();
        let file = *self.place.entry(row.file_id).or_insert(next);
        let at = Recorded {
            process,
            start_ns: row.start_ns,
            end_ns: row.start_ns + row.duration_ns,
        };
        let (after, advances) = self.order.of(&kind, file, &path, at);
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
            advances,
        })
    }
}
