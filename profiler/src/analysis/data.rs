//! The data that the run moved, and the part of it that was never used. Counts successful calls of known
//! processes on files under the traced directories, and opens of files outside. Of data read through a
//! mapping only the open is seen.

use std::collections::{BTreeMap, HashSet};

use crate::model::{Access, File, FileIndex, Relation, Workflow};

/// Sums over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes read by calls.
    pub read_bytes: i64,
    /// Read calls.
    pub reads: i64,
    /// Bytes written by calls.
    pub write_bytes: i64,
    /// Write calls.
    pub writes: i64,
    /// Regular files that a process read, or opened for reading only.
    pub files_read: i64,
    /// Regular files that a process changed, or may have changed unseen, including created ones.
    pub files_written: i64,
    /// Regular files that a process created.
    pub files_created: i64,
    /// Regular files of which only opens were seen, without system files.
    pub files_by_open: i64,
    /// Regular files with data that were opened on the traced mount, and of which no call moved a byte.
    /// They were mapped into memory where that is not seen, or not used.
    pub files_not_moved: i64,
    /// Sizes of these files, bytes.
    pub not_moved_bytes: i64,
    /// Number of these files that are known to be mapped or executed.
    pub files_not_moved_mapped: i64,
    /// Regular files that were only read, and of which calls moved less than half. The rest was read
    /// through a mapping where that is not seen, or not at all.
    pub files_read_in_part: i64,
    /// The part of these files that no call moved, bytes.
    pub unread_part_bytes: i64,
    /// Number of these files that are known to be mapped or executed.
    pub files_in_part_mapped: i64,
}

/// The directory with most of the data of which only opens were seen, and the sizes of all these files,
/// bytes; `None`: there is no such data.
pub fn by_open_alone(workflow: &Workflow) -> Option<(String, i64)> {
    let mut of: BTreeMap<&str, i64> = BTreeMap::new();
    for (_, file) in opened_alone(workflow) {
        let size = file.size_bytes.unwrap_or(0);
        let directory = file.path.as_deref().and_then(|path| path.rsplit_once('/'));
        if let Some((directory, _)) = directory.filter(|_| size > 0) {
            *of.entry(directory).or_default() += size;
        }
    }
    let all = of.values().sum();
    let most = of.into_iter().max_by_key(|&(_, size)| size);
    most.map(|(directory, _)| match directory {
        "" => ("/".into(), all),
        directory => (directory.to_owned(), all),
    })
}

/// The regular files of which only opens were seen, without system files. Files that no process of the run
/// opened are left out: who started flowtrace opened them, as for `flowtrace run -- make > log`.
fn opened_alone(workflow: &Workflow) -> impl Iterator<Item = (FileIndex, &File)> {
    let with = |has: fn(&Access) -> bool| -> HashSet<FileIndex> {
        let accesses = workflow.accesses.iter().filter(|access| has(access));
        accesses.map(|access| access.file).collect()
    };
    // The kernel layer also sees data moved outside of the traced directories.
    let moved = with(|access| access.reads + access.writes > 0);
    let opened = with(|access| access.creates + access.read_opens + access.write_opens > 0);
    (0..)
        .map(FileIndex)
        .zip(&workflow.files)
        .filter(move |(index, file)| {
            let is_opened_alone = file.is_regular && file.only_opens && !file.is_system;
            is_opened_alone && opened.contains(index) && !moved.contains(index)
        })
}

/// The use of one file by all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileUse {
    /// The file.
    pub file: FileIndex,
    /// Bytes read by calls.
    pub read_bytes: i64,
    /// Bytes written by calls.
    pub write_bytes: i64,
    /// Calls of any kind.
    pub calls: i64,
    /// True if a process read the file.
    pub is_read: bool,
    /// True if a process opened the file so that it could be read.
    pub is_open_to_read: bool,
    /// True if a process changed the file.
    pub is_written: bool,
    /// True if a process created the file.
    pub is_created: bool,
    /// True if a process is known to have mapped the file into memory, or executed it.
    pub is_mapped: bool,
}

impl FileUse {
    /// Bytes moved in either direction.
    pub fn moved(&self) -> i64 {
        self.read_bytes.saturating_add(self.write_bytes)
    }

    fn add(&mut self, access: &Access, only_opens: bool) {
        self.read_bytes = self.read_bytes.saturating_add(access.read_bytes);
        self.write_bytes = self.write_bytes.saturating_add(access.write_bytes);
        self.calls += access.calls;
        let relation = access.relation();
        // A file opened for both and never read was not read: a linker opens its output so.
        self.is_read |= access.reads > 0 || relation == Relation::Read;
        // If a process created a file and opened it again to read, it read the file, though no call shows
        // it.
        self.is_read |= only_opens && access.plain_read_opens > 0;
        self.is_open_to_read |= access.is_reader();
        self.is_written |= relation >= Relation::Write;
        self.is_created |= relation == Relation::Create;
        self.is_mapped |= access.mapped_bytes > 0;
    }
}

/// The use of every regular file that was used, in the order of files.
pub fn file_uses(workflow: &Workflow) -> Vec<FileUse> {
    let mut uses = vec![FileUse::default(); workflow.files.len()];
    for access in &workflow.accesses {
        let used = &mut uses[access.file.0 as usize];
        used.file = access.file;
        used.add(access, workflow.file(access.file).only_opens);
    }
    for (_, file) in &workflow.executions {
        uses[file.0 as usize].is_mapped = true;
    }
    uses.retain(|used| used.calls > 0 && workflow.file(used.file).is_regular);
    uses
}

/// Sums over all files and processes.
pub fn totals(workflow: &Workflow, uses: &[FileUse]) -> Totals {
    let mut totals = Totals::default();
    for access in &workflow.accesses {
        totals.read_bytes = totals.read_bytes.saturating_add(access.read_bytes);
        totals.reads += access.reads;
        totals.write_bytes = totals.write_bytes.saturating_add(access.write_bytes);
        totals.writes += access.writes;
    }
    for used in uses {
        totals.files_read += i64::from(used.is_read);
        totals.files_written += i64::from(used.is_written);
        totals.files_created += i64::from(used.is_created);
        if let Some(size) = not_moved(workflow, used) {
            totals.files_not_moved += 1;
            totals.not_moved_bytes = totals.not_moved_bytes.saturating_add(size);
            totals.files_not_moved_mapped += i64::from(used.is_mapped);
        }
        if let Some(rest) = not_read(workflow, used) {
            totals.files_read_in_part += 1;
            totals.unread_part_bytes = totals.unread_part_bytes.saturating_add(rest);
            totals.files_in_part_mapped += i64::from(used.is_mapped);
        }
    }
    totals.files_by_open = opened_alone(workflow).count() as i64;
    totals
}

/// The size of a file that was opened for its data, although no call moved any, bytes.
fn not_moved(workflow: &Workflow, used: &FileUse) -> Option<i64> {
    let file = workflow.file(used.file);
    let is_opened = used.is_read || used.is_written;
    let is_mapped = is_opened && used.moved() == 0 && !file.only_opens;
    file.size_bytes.filter(|&size| is_mapped && size > 0)
}

/// The part of a file that no call moved, bytes, if the file was only read and this is more than half of
/// it. `None` as well if it is not known.
fn not_read(workflow: &Workflow, used: &FileUse) -> Option<i64> {
    /// A smaller part is an end that no process needed.
    const LEAST: i64 = 1_000_000;
    let file = workflow.file(used.file);
    let is_part = used.read_bytes > 0 && !used.is_written && !file.only_opens;
    let read = file.read_once_bytes?;
    let rest = file.size_bytes.filter(|_| is_part)? - read;
    (rest >= LEAST && rest > read).then_some(rest)
}

/// A file that was written and never read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The file.
    pub file: FileIndex,
    /// Bytes written; if only opens were seen, the size of the file at the end.
    pub bytes: i64,
}

/// Files written during the run that no process read before it ended, the most bytes first. Final results
/// are among them. If only opens were seen, a file opened for both may have been read.
pub fn never_read(workflow: &Workflow, uses: &[FileUse]) -> Vec<Unread> {
    let unread = |used: &FileUse| {
        let file = workflow.file(used.file);
        let (bytes, is_read) = match file.only_opens && used.moved() == 0 {
            true if used.is_written => (file.size_bytes.unwrap_or(0), used.is_open_to_read),
            _ => (used.write_bytes, used.is_read),
        };
        let file = used.file;
        (bytes > 0 && !is_read).then_some(Unread { file, bytes })
    };
    let mut found: Vec<Unread> = uses.iter().filter_map(unread).collect();
    found.sort_by_key(|used| (-used.bytes, used.file));
    found
}

/// The `most` files with the largest value of `of`.
pub fn hottest(uses: &[FileUse], most: usize, of: impl Fn(&FileUse) -> i64) -> Vec<FileUse> {
    let mut found: Vec<FileUse> = uses.iter().filter(|used| of(used) > 0).copied().collect();
    found.sort_by_key(|used| (std::cmp::Reverse(of(used)), used.file));
    found.truncate(most);
    found
}
