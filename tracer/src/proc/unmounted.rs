//! Unmounted files: the opens of files outside the traced directories.
//!
//! An open is resolved after it succeeded, from its descriptor: then inode and path are exact, whatever links
//! and namespaces the name went through. An open of a system file that is only read is recorded by its name
//! instead, and the program goes on at once, because programs open such files by the hundred. The bytes that
//! a program moves through a file that it inherited open ([`inherited`]) are one row.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use flowtrace_schema::{
    Call as CallRow, Coverage, Fidelity, FileId, FileKind, HostId, Op, Recorder, Tid,
    is_system_path,
};

use super::links;
use super::near::{self, Found};
use super::observer::Tracee;
use super::topology::UNNAMED;
use super::views::Views;
use crate::file_table::FileTable;
use crate::kernel::FoundFiles;
use crate::stat::{self, Attributes};

mod inherited;
mod inherited_files;
mod known;
mod made;
mod names;
mod on_names;
mod paths;
mod reported;

use inherited_files::InheritedFiles;
use known::Known;
use made::{Home, is_fresh};
pub(crate) use names::NameChange;
use paths::{full_path, has_dots, is_kernels, is_plain_read, named, stands_for_descriptor};

/// Most system files that are remembered; then the table is emptied.
const REMEMBERED: usize = 1 << 16;

/// Records unmounted files.
pub(crate) struct UnmountedFiles {
    host: HostId,
    files: Arc<FileTable>,
    recorder: Recorder,
    /// Receiver of the files that are found.
    found_files: Option<FoundFiles>,
    views: Views,
    /// System files by path; `None`: there is none.
    system: HashMap<OsString, Option<FileId>>,
    /// Other files.
    known: Known,
    /// Root and mount namespace of the first process, which are ours.
    home: Option<Home>,
    /// Files that programs inherited open, where nothing else records their calls.
    inherited: Option<InheritedFiles>,
    /// True once the first program of the run has begun.
    has_begun: bool,
}

/// A name that may not be looked up ([`near`]).
struct Unseen;

/// An open at its entry.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) flags: u32,
    /// True if the open makes the file if it succeeds. `None`: only the file will show it.
    pub(crate) creates: Option<bool>,
    pub(crate) start_ns: u64,
}

impl UnmountedFiles {
    /// `follows`: the files that programs inherit open are checked when they end.
    pub(crate) fn new(
        host: HostId,
        files: Arc<FileTable>,
        recorder: &Recorder,
        views: Views,
        found_files: Option<FoundFiles>,
        follows: bool,
    ) -> UnmountedFiles {
        UnmountedFiles {
            host,
            files,
            recorder: recorder.clone(),
            inherited: (follows && found_files.is_none()).then(InheritedFiles::default),
            has_begun: false,
            found_files,
            views,
            system: HashMap::new(),
            known: Known::default(),
            home: None,
        }
    }

    /// True if this open needs no check of its result, because it concerns no unmounted file or was recorded
    /// by its name alone. `reported`: the inode that it gave, where the kernel reported it.
    pub(crate) fn is_settled(
        &mut self,
        tracee: Tracee,
        path: &OsStr,
        flags: u32,
        reported: Option<stat::Inode>,
        now: u64,
    ) -> bool {
        let bytes = path.as_bytes();
        if !bytes.starts_with(b"/") || !is_plain_read(flags) || !is_system_path(bytes) {
            return false;
        }
        if is_kernels(bytes) {
            // The name that stands for a descriptor may lead to a pipe.
            return !stands_for_descriptor(bytes);
        }
        if has_dots(bytes) {
            return false;
        }
        if self.views.cover(Path::new(path)) {
            return true;
        }
        let file = match self.system.get(path) {
            Some(&file) => file,
            None => match self.system_file(path, now) {
                Ok(file) => file,
                Err(Unseen) => return false,
            },
        };
        if let Some(file) = file {
            if let Some(inode) = reported {
                self.report(inode, file, now);
            }
            self.record(tracee, Op::Open, file, flags, (now, now));
        }
        true
    }

    /// The first process begins, which sees the mounts.
    pub(crate) fn begun(&mut self, pid: u32) {
        self.views.seen_by(pid);
        self.home = Home::of(pid);
    }

    /// Returns true if a mount that is going to be made hides a part of a mount of flowtrace.
    pub(crate) fn mounting(
        &mut self,
        tracee: Tracee,
        directory: Option<i32>,
        path: &OsStr,
    ) -> bool {
        self.views.alter();
        near::workflow_mounts();
        full_path(tracee, directory, path).is_some_and(|path| self.views.cover(&path))
    }

    /// `Err`: the name may not be looked up.
    fn system_file(&mut self, path: &OsStr, now: u64) -> Result<Option<FileId>, Unseen> {
        if self.system.len() >= REMEMBERED {
            self.system.clear();
        }
        let found = match near::behind(Path::new(path)) {
            Found::Is(there) => Some(there.attributes).filter(Attributes::is_regular),
            Found::Nothing => None,
            Found::Unknown => return Err(Unseen),
        };
        let enter = |attributes| {
            let coverage = Coverage::Open;
            self.files
                .opened(&attributes, path, coverage, self.host, now)
        };
        let file = found.map(enter);
        self.system.insert(path.to_owned(), file);
        Ok(file)
    }

    /// True if this open is recorded by a mount, so that its result is not checked either.
    pub(crate) fn is_in_view(&self, tracee: Tracee, directory: Option<i32>, path: &OsStr) -> bool {
        named(tracee, directory, path).is_some_and(|path| self.views.settle(&path))
    }

    /// True if an open that may make the file finds none, so that it will make it. `None`: this cannot be
    /// known before.
    pub(crate) fn is_absent(
        &self,
        tracee: Tracee,
        directory: Option<i32>,
        path: &OsStr,
    ) -> Option<bool> {
        let path = self.views.real(named(tracee, directory, path)?)?;
        match near::behind(&path) {
            Found::Is(_) => Some(false),
            Found::Nothing => Some(true),
            Found::Unknown => None,
        }
    }

    /// An open succeeded and gave this file.
    pub(crate) fn opened(
        &mut self,
        tracee: Tracee,
        open: &Open,
        path: &Path,
        attributes: &Attributes,
        now: u64,
    ) {
        let creates = open.creates == Some(true)
            || self.is_made_elsewhere(tracee, open, path, attributes, now);
        let open = Open {
            creates: Some(creates),
            ..*open
        };
        self.record_open(tracee, &open, path, attributes, now);
    }

    /// Reports that an inode is this file from now on.
    fn report(&self, inode: stat::Inode, file: FileId, now: u64) {
        if let Some(found_files) = &self.found_files {
            found_files.found(inode, file, now);
        }
    }

    /// Records an open of which is known whether it made the file. Returns the file, if it is unmounted.
    fn record_open(
        &mut self,
        tracee: Tracee,
        open: &Open,
        path: &Path,
        attributes: &Attributes,
        now: u64,
    ) -> Option<FileId> {
        let file = self.found(path, attributes, open.flags, now)?;
        let op = match attributes.kind() {
            _ if open.creates == Some(true) => Op::Create,
            // It can only serve to name the file.
            _ if open.flags & libc::O_PATH as u32 != 0 => Op::Lookup,
            FileKind::Directory => Op::Opendir,
            _ => Op::Open,
        };
        self.record(tracee, op, file, open.flags, (open.start_ns, now));
        Some(file)
    }

    /// True if an open made its file, of which this could not be known at its entry.
    fn is_made_elsewhere(
        &self,
        tracee: Tracee,
        open: &Open,
        path: &Path,
        attributes: &Attributes,
        now: u64,
    ) -> bool {
        // A process in a directory with too long a path has an unknown path, too.
        let is_nameless = path.as_os_str().is_empty();
        let may_make = open.flags & libc::O_CREAT as u32 != 0 && attributes.size == 0;
        may_make
            && self.files.known_inode(attributes).is_none()
            && is_fresh(attributes, now.saturating_sub(open.start_ns))
            && (open.creates.is_none() || is_nameless || self.is_foreign(tracee))
    }

    /// True if a process looks up paths in another mount namespace than the first process, or below another
    /// root.
    fn is_foreign(&self, tracee: Tracee) -> bool {
        let homes = self.home.as_ref().zip(Home::of(tracee.tid));
        homes.is_some_and(|(ours, theirs)| *ours != theirs)
    }

    /// The file that is open under this path, if it is unmounted. A file without a name counts if it was seen
    /// before, or is made without a name.
    fn found(
        &mut self,
        path: &Path,
        attributes: &Attributes,
        flags: u32,
        now: u64,
    ) -> Option<FileId> {
        let name = path.as_os_str();
        let is_other = matches!(attributes.kind(), FileKind::Directory | FileKind::Symlink);
        if !(attributes.is_regular() || is_other && self.records_all())
            || self.views.see(path, attributes)
            || is_kernels(name.as_bytes())
        {
            return None;
        }
        if flags & UNNAMED != 0 || name.is_empty() {
            let coverage = self.coverage(name);
            return Some(
                self.files
                    .opened_unnamed(attributes, coverage, self.host, now),
            );
        }
        if !links::is_path(name) {
            return self.files.known_inode(attributes);
        }
        if flags & libc::O_CREAT as u32 == 0 {
            self.recognise(path, attributes);
        }
        let coverage = self.coverage(name);
        let file = self
            .files
            .opened(attributes, name, coverage, self.host, now);
        self.seen(file, attributes);
        let is_system = is_system_path(name.as_bytes());
        if is_system {
            self.system.insert(name.to_owned(), Some(file));
        }
        // A file made where the machine has its system files may be a result, and grows.
        if (!is_system || !is_plain_read(flags)) && self.known.named(path) != Some(file) {
            self.known.name(path.to_owned(), file);
        }
        Some(file)
    }

    /// A file is seen under this name. If that is one of which only the name was known, because it was gone from
    /// there before flowtrace could look, it is this file.
    fn recognise(&self, path: &Path, attributes: &Attributes) {
        if let Some(file) = self.known.named(path)
            && self.known.kind(file).is_none()
        {
            self.files.is_also(attributes, file);
        }
    }

    /// Of a file that is part of the machine only the calls on its descriptors are recorded.
    fn coverage(&self, path: &OsStr) -> Coverage {
        match self.records_all() && !is_system_path(path.as_bytes()) {
            true => Coverage::Exact,
            false => Coverage::Open,
        }
    }

    /// Records the present attributes of a file.
    fn seen(&mut self, file: FileId, attributes: &Attributes) {
        if self.known.seen(file, attributes) {
            self.files.size(file, attributes.size);
        }
    }

    fn record(&mut self, tracee: Tracee, op: Op, file: FileId, flags: u32, span: (u64, u64)) {
        let row = self.row(tracee, op, file, span);
        self.recorder.call(&CallRow {
            flags: Some(flags),
            ..row
        });
    }

    /// A row of a call that began and returned at these times, with result 0.
    fn row(&self, tracee: Tracee, op: Op, file: FileId, (from, to): (u64, u64)) -> CallRow {
        CallRow {
            start_ns: from,
            duration_ns: to.saturating_sub(from),
            upid: Some(tracee.upid),
            tid: (tracee.tid != tracee.pid).then_some(Tid(tracee.tid)),
            op,
            file: Some(file),
            offset: None,
            length: None,
            flags: None,
            result: 0,
            fidelity: match self.records_all() {
                true => Fidelity::Exact,
                false => Fidelity::Open,
            },
        }
    }

    /// True with the kernel layer: all calls on files have rows, not their opens alone.
    fn records_all(&self) -> bool {
        self.found_files.is_some()
    }
}

/// Records the sizes of files at the end: they have grown since they were opened.
impl Drop for UnmountedFiles {
    fn drop(&mut self) {
        for (path, file) in self.known.names() {
            let Some((inode, size)) = self.known.last_seen(file) else {
                continue;
            };
            if self.known.kind(file) == Some(FileKind::File)
                && let Found::Is(there) = near::behind(path)
                && there.attributes.inode() == inode
                && there.attributes.size != size
            {
                self.files.size(file, there.attributes.size);
            }
        }
        if let Some(found_files) = &self.found_files {
            let unnamed = self.known.unnamed();
            unnamed.for_each(|file| found_files.removed(file));
        }
    }
}
