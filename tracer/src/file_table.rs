//! Identity of files over a run: the file of the trace that each inode is, and its names over time.
//!
//! Each file takes little memory, two hashes of 64 bits, because a workflow may walk through millions. Two
//! files or names of a run share a hash with a probability below 10⁻⁷ at a million of them; they would then
//! count as one.

use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use flowtrace_schema::{
    Coverage, FileId, FileKind, FileRecord, HostId, NameRecord, Record, Recorder, Text,
};

use crate::hashed::Hashed;
use crate::stat::Attributes;

mod tree;

use tree::Tree;
#[cfg(any(test, fuzzing))]
pub use tree::fuzzing::directory_tree;

/// Number of missing names that are remembered; then the memory starts anew.
const ABSENT: usize = 1 << 16;

/// The files of a run, shared by all its mounts: assigns their ids and records their names.
#[derive(Debug)]
pub struct FileTable {
    recorder: Recorder,
    hashes: RandomState,
    next: AtomicU32,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Inodes by hash.
    files: Hashed<FileId>,
    /// Names in force, by hash of directory and name. Names of directories are in the tree only.
    names: Hashed<FileId>,
    /// Names that were looked up and do not exist, by the same hash.
    absent: Hashed<FileId>,
    directories: Tree,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameIn<'a> {
    pub(crate) directory: FileId,
    pub(crate) name: &'a OsStr,
}

impl<'a> NameIn<'a> {
    /// A full path, for a file whose directory is not known.
    pub(crate) fn full_path(path: &'a OsStr) -> NameIn<'a> {
        NameIn {
            directory: FileId(0),
            name: path,
        }
    }
}

/// Target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    File(FileId),
    Directory(FileId),
}

impl Target {
    fn file(self) -> FileId {
        match self {
            Target::File(file) | Target::Directory(file) => file,
        }
    }
}

impl FileTable {
    /// A table that assigns ids from 1 on.
    pub fn new(recorder: Recorder) -> FileTable {
        FileTable {
            recorder,
            hashes: RandomState::new(),
            next: AtomicU32::new(1),
            known: Mutex::default(),
        }
    }

    /// An id that no other file of the run has.
    pub fn new_id(&self) -> FileId {
        FileId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Enters a traced directory, which the workflow sees at `path`.
    pub(crate) fn root(
        &self,
        attributes: &Attributes,
        path: &Path,
        host: HostId,
        now: u64,
    ) -> FileId {
        let mut known = self.known();
        let file = self.identify(&mut known, attributes, host, now);
        for change in known.directories.plant(file, path.as_os_str()) {
            self.recorder.record(change.at(now));
        }
        file
    }

    /// A file was seen under a name.
    pub(crate) fn seen(
        &self,
        attributes: &Attributes,
        name: NameIn<'_>,
        host: HostId,
        now: u64,
    ) -> FileId {
        let mut known = self.known();
        let file = self.identify(&mut known, attributes, host, now);
        self.name(&mut known, file, attributes.kind(), name, now);
        file
    }

    /// Enters a file that has no name.
    pub(crate) fn unnamed(&self, attributes: &Attributes, host: HostId, now: u64) -> FileId {
        self.identify(&mut self.known(), attributes, host, now)
    }

    /// A file outside of all mounts is opened under this full path.
    pub(crate) fn opened(
        &self,
        attributes: &Attributes,
        path: &OsStr,
        coverage: Coverage,
        host: HostId,
        now: u64,
    ) -> FileId {
        let mut known = self.known();
        let file = self.identify_as(&mut known, attributes, coverage, host, now);
        self.name(
            &mut known,
            file,
            FileKind::File,
            NameIn::full_path(path),
            now,
        );
        file
    }

    /// A file without a name is made outside of all mounts.
    pub(crate) fn opened_unnamed(
        &self,
        attributes: &Attributes,
        coverage: Coverage,
        host: HostId,
        now: u64,
    ) -> FileId {
        self.identify_as(&mut self.known(), attributes, coverage, host, now)
    }

    /// An inode belongs to a file that is known in another way.
    pub(crate) fn is_also(&self, attributes: &Attributes, file: FileId) {
        let hash = self.hash_inode(attributes);
        self.known().files.entry(hash).or_insert(file);
    }

    /// From now on the inode belongs to a new file.
    pub(crate) fn forget_inode(&self, attributes: &Attributes) {
        let hash = self.hash_inode(attributes);
        self.known().files.remove(&hash);
    }

    /// The file of an inode, if it was seen before.
    pub(crate) fn known_inode(&self, attributes: &Attributes) -> Option<FileId> {
        let hash = self.hash_inode(attributes);
        self.known().files.get(&hash).copied()
    }

    /// A known file was seen under a name, which may be new.
    pub(crate) fn named(&self, file: FileId, kind: FileKind, name: NameIn<'_>, now: u64) {
        self.name(&mut self.known(), file, kind, name, now);
    }

    /// A name was looked up and does not exist.
    pub(crate) fn missing(&self, name: NameIn<'_>, host: HostId, now: u64) -> FileId {
        let mut known = self.known();
        let hash = self.hash_name(name);
        if let Some(&file) = known.absent.get(&hash) {
            return file;
        }
        // The name may have existed before and been removed outside of the mount.
        self.end(&mut known, name, now);
        if known.absent.len() >= ABSENT {
            known.absent = Hashed::default();
        }
        let file = self.without_inode(FileKind::Absent, Coverage::Exact, host, now);
        known.absent.insert(hash, file);
        self.record_name(file, name, now);
        file
    }

    /// A file of this name was there, of which nothing else is known.
    pub(crate) fn unseen(
        &self,
        name: NameIn<'_>,
        kind: FileKind,
        coverage: Coverage,
        host: HostId,
        now: u64,
    ) -> FileId {
        let mut known = self.known();
        if let Some(Target::File(file)) = self.target(&known, name) {
            return file;
        }
        let file = self.without_inode(kind, coverage, host, now);
        self.name(&mut known, file, FileKind::File, name, now);
        file
    }

    fn without_inode(
        &self,
        kind: FileKind,
        coverage: Coverage,
        host: HostId,
        first_ns: u64,
    ) -> FileId {
        let id = self.new_id();
        self.recorder.record(Record::File(FileRecord {
            id,
            host,
            inode: None,
            kind,
            size_bytes: None,
            first_ns,
            coverage,
        }));
        id
    }

    /// The file that has a name now, if known.
    pub(crate) fn find(&self, name: NameIn<'_>) -> Option<FileId> {
        let known = self.known();
        self.target(&known, name).map(Target::file)
    }

    /// A name was removed.
    pub(crate) fn removed(&self, name: NameIn<'_>, now: u64) {
        self.end(&mut self.known(), name, now);
    }

    /// A name was replaced by another; with `exchange` the two were exchanged.
    pub(crate) fn renamed(&self, from: NameIn<'_>, to: NameIn<'_>, exchange: bool, now: u64) {
        let mut known = self.known();
        let same = from.directory == to.directory && from.name == to.name;
        let (moved, replaced) = (self.target(&known, from), self.target(&known, to));
        if same || (moved.is_some() && moved == replaced) {
            return;
        }
        // A directory keeps its place in the tree, so that the directories below move with it.
        if let Some(Target::File(_)) | None = moved {
            self.end(&mut known, from, now);
        }
        match replaced {
            Some(Target::Directory(_)) if exchange => {}
            _ => self.end(&mut known, to, now),
        }
        if let (Some(Target::Directory(one)), Some(Target::Directory(other)), true) =
            (moved, replaced, exchange)
        {
            for change in known.directories.exchange(one, other) {
                self.recorder.record(change.at(now));
            }
            return;
        }
        self.place(&mut known, moved, to, now);
        if exchange {
            self.place(&mut known, replaced, from, now);
        }
    }

    /// The inode is gone for good: a new inode with the same number is another file.
    pub(crate) fn gone(&self, attributes: &Attributes) {
        let hash = self.hash_inode(attributes);
        self.known().files.remove(&hash);
    }

    /// The size of a file has changed.
    pub(crate) fn size(&self, file: FileId, size_bytes: u64) {
        self.recorder.record(Record::FileSize { file, size_bytes });
    }

    /// A hash of a name that is the same each time in this run.
    pub(crate) fn hash_name(&self, name: NameIn<'_>) -> u64 {
        self.hashes
            .hash_one((name.directory.0, name.name.as_bytes()))
    }

    fn hash_inode(&self, a: &Attributes) -> u64 {
        // A directory that is mounted twice has two places; a file only has more names.
        let mount = match a.kind() {
            FileKind::Directory => a.mount,
            _ => 0,
        };
        let once = (a.birth, a.generation);
        self.hashes.hash_one((a.dev, a.ino, once, mount))
    }

    fn identify(&self, known: &mut Known, a: &Attributes, host: HostId, now: u64) -> FileId {
        self.identify_as(known, a, Coverage::Exact, host, now)
    }

    fn identify_as(
        &self,
        known: &mut Known,
        a: &Attributes,
        coverage: Coverage,
        host: HostId,
        now: u64,
    ) -> FileId {
        *known.files.entry(self.hash_inode(a)).or_insert_with(|| {
            let id = self.new_id();
            self.recorder.record(Record::File(FileRecord {
                id,
                host,
                inode: Some((a.dev, a.ino)),
                kind: a.kind(),
                size_bytes: Some(a.size),
                first_ns: now,
                coverage,
            }));
            id
        })
    }

    fn name(&self, known: &mut Known, file: FileId, kind: FileKind, name: NameIn<'_>, now: u64) {
        let target = self.target(known, name);
        if target.map(Target::file) == Some(file) {
            return;
        }
        self.end(known, name, now);
        let new = match kind {
            FileKind::Directory => Target::Directory(file),
            _ => Target::File(file),
        };
        self.place(known, Some(new), name, now);
    }

    /// Gives a free name to a file.
    fn place(&self, known: &mut Known, target: Option<Target>, name: NameIn<'_>, now: u64) {
        match target {
            Some(Target::Directory(directory)) => {
                let changes = known.directories.place(
                    directory,
                    name.directory,
                    name.name,
                    self.hash_name(name),
                );
                for change in changes {
                    self.recorder.record(change.at(now));
                }
            }
            Some(Target::File(file)) => {
                known.names.insert(self.hash_name(name), file);
                self.record_name(file, name, now);
            }
            None => {}
        }
    }

    fn target(&self, known: &Known, name: NameIn<'_>) -> Option<Target> {
        let hash = self.hash_name(name);
        if let Some(&file) = known.names.get(&hash) {
            return Some(Target::File(file));
        }
        known.directories.child(hash).map(Target::Directory)
    }

    /// Ends the target of a name, or its known absence.
    fn end(&self, known: &mut Known, name: NameIn<'_>, now: u64) {
        let hash = self.hash_name(name);
        let files = [known.names.remove(&hash), known.absent.remove(&hash)];
        for file in files.into_iter().flatten() {
            self.recorder.record(Record::NameEnd {
                file,
                directory: name.directory,
                name: Text::from(name.name),
                at_ns: now,
            });
        }
        if let Some(directory) = known.directories.child(hash) {
            for change in known.directories.remove(directory) {
                self.recorder.record(change.at(now));
            }
        }
    }

    fn record_name(&self, file: FileId, name: NameIn<'_>, now: u64) {
        self.recorder.record(Record::Name(Box::new(NameRecord {
            file,
            directory: Some(name.directory),
            name: Text::from(name.name),
            from_ns: now,
        })));
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
