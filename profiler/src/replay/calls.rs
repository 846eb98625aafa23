//! Turns recorded calls into calls to be played, and finds the files that must exist first.

use std::collections::{BTreeSet, HashMap, HashSet};

use flowtrace_schema::open_flags::{O_ACCMODE, O_TRUNC};
use flowtrace_schema::{NameRow, ReplayedCallRow};

use super::order::{Order, Recorded};
use super::{Call, CallKind, Workload, place};
use crate::model::ProcessId;

/// The bit of O_TMPFILE that no other flag has.
const UNNAMED: i64 = 0o20_000_000;
const S_IFMT: i64 = 0o170_000;
const S_IFREG: i64 = 0o100_000;
/// Most bytes that one call can move (read(2)). A trace from an unknown source may have larger numbers.
const MOST_MOVED: i64 = 0x7fff_f000;

/// Turns recorded calls into calls to be played.
pub(super) struct Planner<'a> {
    /// All names of each file.
    pub(super) names: &'a HashMap<i64, Vec<NameRow>>,
    /// The traced directories.
    pub(super) roots: &'a [&'a str],
    /// Number of each file in the workload.
    pub(super) place: HashMap<i64, usize>,
    /// Files that were made without a name.
    pub(super) unnamed: HashSet<i64>,
    pub(super) order: Order,
    pub(super) workload: Workload,
}

/// Earlier names of renamed directories by the new name: the time of the rename, and the name before
/// it.
type Renamed = HashMap<String, Vec<(i64, String)>>;

/// Returns true if a file had this name at the instant `at`.
fn was(name: &NameRow, at: i64) -> bool {
    name.from_ns <= at && name.to_ns.is_none_or(|to| to >= at)
}

/// Returns true if a call makes its file.
fn makes(row: &ReplayedCallRow) -> bool {
    matches!(&*row.op, "create" | "mkdir" | "mknod" | "symlink")
}

impl Planner<'_> {
    fn below(&self, path: &str) -> Option<String> {
        place(self.roots, path)
    }

    fn name_at(&self, file: i64, at: i64) -> Option<String> {
        let names = self.names.get(&file)?;
        let name = names.iter().find(|name| was(name, at)).or(names.last())?;
        self.below(&name.path)
    }

    /// The first name of a file.
    fn first_name(&self, file: i64) -> Option<String> {
        let names = self.names.get(&file)?.iter();
        let first = names.min_by_key(|name| name.from_ns)?;
        self.below(&first.path)
    }

    /// The name that a file had when the run began, if it existed then. The file may have been seen
    /// first after a directory above it had been renamed.
    fn name_before(&self, file: i64, renamed: &Renamed) -> Option<String> {
        let names = self.names.get(&file)?.iter();
        let first = names.min_by_key(|name| name.from_ns)?;
        let mut until = first.from_ns;
        let mut path = self.below(&first.path)?;
        loop {
            let above = path.match_indices('/').map(|(at, _)| at);
            let last = above.filter_map(|at| {
                let of_directory = renamed.get(&path[..at])?;
                let earlier = of_directory.partition_point(|(end_ns, _)| *end_ns <= until);
                let (end_ns, from) = of_directory[..earlier].last()?;
                Some((*end_ns, format!("{from}{}", &path[at..])))
            });
            match last.max() {
                Some((end_ns, before)) => (until, path) = (end_ns - 1, before),
                None => return Some(path),
            }
        }
    }

    /// The name that a call gave to its file.
    fn new_name(&self, row: &ReplayedCallRow) -> Option<String> {
        let names = self.names.get(&row.file_id)?;
        let end = row.start_ns + row.duration_ns;
        let made = names
            .iter()
            .rfind(|name| row.start_ns <= name.from_ns && name.from_ns <= end)?;
        self.below(&made.path)
    }

    /// Returns true if a file had no name at the instant `at`.
    fn is_nameless(&self, file: i64, at: i64) -> bool {
        let names = self.names.get(&file);
        !names.into_iter().flatten().any(|name| was(name, at))
    }

    /// The directory in which a file without a name was made: that of its first name, or the root if it
    /// never got one.
    fn beside(&self, file: i64) -> String {
        let first = self.first_name(file);
        let parent = first.as_deref().and_then(|path| path.rsplit_once('/'));
        parent.map_or(".", |(parent, _)| parent).to_owned()
    }

    /// Collects what must exist before the first call is played: files that are used before any call
    /// makes them, of the size to which they are read, and directories.
    pub(super) fn prepare(&mut self, calls: &[ReplayedCallRow]) {
        let mut made: HashSet<i64> = HashSet::new();
        let mut directories = BTreeSet::new();
        let mut renamed = Renamed::new();
        for row in calls {
            if &*row.op == "rename"
                && &*row.kind == "directory"
                && let Some(from) = self.name_at(row.file_id, row.start_ns)
                && let Some(to) = self.new_name(row)
            {
                let end_ns = row.start_ns + row.duration_ns;
                renamed.entry(to).or_default().push((end_ns, from));
            }
        }
        renamed.values_mut().for_each(|all| all.sort_unstable());
        for row in calls {
            if makes(row) {
                made.insert(row.file_id);
            }
        }
        // Directories made in the run, by every name that they ever had.
        let made_directories: HashSet<String> = calls
            .iter()
            .filter(|row| &*row.op == "mkdir")
            .filter_map(|row| self.names.get(&row.file_id))
            .flatten()
            .filter_map(|name| self.below(&name.path))
            .collect();
        for row in calls {
            // The name at the begin, for the call may use a later one.
            let Some(path) = self.name_before(row.file_id, &renamed) else {
                continue;
            };
            if made.contains(&row.file_id) {
                // The directory around the file may have existed before. The file may be elsewhere
                // later.
                let end = row.start_ns + row.duration_ns;
                let path = self.name_at(row.file_id, end).filter(|_| makes(row));
                if let Some((parent, _)) = path.as_deref().and_then(|path| path.rsplit_once('/'))
                    && !made_directories.contains(parent)
                {
                    directories.insert(parent.to_owned());
                }
                continue;
            }
            if &*row.kind == "directory" {
                directories.insert(path);
                continue;
            }
            let size = self.workload.files.entry(path).or_default();
            match &*row.op {
                "read" | "copy_from" if row.result <= MOST_MOVED => {
                    let end = row.offset.unwrap_or(0).saturating_add(row.result);
                    *size = (*size).max(u64::try_from(end).unwrap_or(0));
                }
                _ => {}
            }
        }
        // Names for which no file was found stay without one. A link or FIFO that existed is played as
        // a file, for the calls may rename or remove it.
        let used: HashSet<String> = calls
            .iter()
            .filter(|row| &*row.kind != "absent")
            .filter(|row| matches!(&*row.op, "open" | "unlink" | "rename" | "link" | "getattr"))
            .filter_map(|row| self.name_before(row.file_id, &renamed))
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

    /// The call to be played for a recorded one; `None` if it is left out.
    pub(super) fn call(&mut self, row: &ReplayedCallRow, process: ProcessId) -> Option<Call> {
        let flags = row.flags.unwrap_or(0);
        let is_unnamed = &*row.op == "create" && flags & UNNAMED != 0;
        if is_unnamed {
            self.unnamed.insert(row.file_id);
        }
        let count = |value: Option<i64>| u64::try_from(value.unwrap_or(0)).unwrap_or(0);
        let moved = usize::try_from(row.result).unwrap_or(0);
        let asked = row.length.unwrap_or(row.result).min(MOST_MOVED);
        let after_call = || self.name_at(row.file_id, row.start_ns + row.duration_ns);
        let new_name = || self.new_name(row);
        let path = match self.name_at(row.file_id, row.start_ns) {
            Some(path) => path,
            None if self.unnamed.contains(&row.file_id) => self.beside(row.file_id),
            None => return None,
        };
        let (kind, path) = match &*row.op {
            "read" | "copy_from" | "write" | "copy_to" if row.result > MOST_MOVED => return None,
            "open" => {
                let kind = CallKind::Open {
                    write: flags & O_ACCMODE != 0,
                    truncate: flags & O_TRUNC != 0,
                    create: false,
                };
                (kind, path)
            }
            "create" if is_unnamed => (CallKind::MakeUnnamed, self.beside(row.file_id)),
            "create" => {
                let kind = CallKind::Open {
                    write: true,
                    truncate: false,
                    create: true,
                };
                (kind, after_call()?)
            }
            "flush" => (CallKind::Flush, path),
            "release" => (CallKind::Close, path),
            "read" | "copy_from" => (
                CallKind::Read {
                    offset: count(row.offset),
                    length: usize::try_from(asked).unwrap_or(moved),
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
            "link" if self.is_nameless(row.file_id, row.start_ns) => (CallKind::Name, new_name()?),
            "link" => (CallKind::Link(new_name()?), path),
            "symlink" => (CallKind::MakeLink, after_call()?),
            "mknod" if flags & S_IFMT == S_IFREG => (CallKind::MakeFile, after_call()?),
            "mknod" => (CallKind::MakeFifo, after_call()?),
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
