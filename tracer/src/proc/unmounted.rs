//! Files outside the traced directories: that they were opened, and how.
//!
//! An open is resolved after it succeeded, from the descriptor that it gave: then inode and path
//! are exact, whatever links and namespaces the name went through. A system file that is only
//! read is taken at its word instead and the program goes on at once, for programs open
//! such files by the hundred. What a program moves through a file that it got as an open descriptor
//! ([`inherited`]) is one row of its own.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowtrace_schema::{
    Call as CallRow, CallRing, Fidelity, FileId, HostId, Op, Recorder, Tid, is_system_path,
};

use super::links;
use super::near::{self, Found};
use super::observer::Tracee;
use super::topology::UNNAMED;
use super::views::Views;
use crate::file_table::FileTable;
use crate::kernel::Descriptions;
use crate::stat::Attributes;

mod inherited;
mod inherited_files;
mod made;
mod names;
mod paths;
mod reported;

use inherited_files::InheritedFiles;
use made::{Home, is_fresh};
pub(crate) use names::NameChange;
use paths::{full_path, has_dots, is_kernels, is_plain_read, named, stands_for_descriptor};

/// System files that are remembered; then the memory starts anew.
const REMEMBERED: usize = 1 << 16;

/// Records the files outside.
pub(crate) struct UnmountedFiles {
    host: HostId,
    files: Arc<FileTable>,
    ring: CallRing,
    /// Whoever wants to know what descriptors stand for.
    descriptions: Option<Descriptions>,
    views: Views,
    /// System files by their path; `None`: there is none.
    system: HashMap<OsString, Option<FileId>>,
    /// Other files by theirs, to keep the names right.
    names: HashMap<PathBuf, FileId>,
    /// What these are in their filesystem (device, inode), and how large they were when last seen.
    sizes: HashMap<FileId, ((u64, u64), u64)>,
    /// From where the first process looks paths up, as we do.
    home: Option<Home>,
    /// Files of which the kernel told: with the birth of a file more is known to tell it from others, but not of what is gone when it
    /// is looked at.
    inodes: HashMap<Inode, FileId>,
    /// What programs got as open descriptors, where nobody else sees what they move.
    inherited: Option<InheritedFiles>,
    /// To be told what the first program of the run has open, until it begins.
    first: Option<Descriptions>,
}

/// An inode as the kernel itself tells it apart: device, number, and generation, where its filesystem has one. Without it the next file
/// that has the number is known by being made alone.
type Inode = (u64, u64, Option<u32>);

/// Which inode the kernel told of.
fn inode(attributes: &Attributes) -> Inode {
    (attributes.dev, attributes.ino, attributes.generation)
}

/// A name that may not be looked up ([`near`]).
struct Unseen;

/// An open at its entry.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) flags: u32,
    /// It makes the file if it succeeds. `None`: that is to be seen by the file.
    pub(crate) creates: Option<bool>,
    pub(crate) start_ns: u64,
}

impl UnmountedFiles {
    /// `follows`: what programs were handed is to be looked at when they end.
    pub(crate) fn new(
        host: HostId,
        files: Arc<FileTable>,
        recorder: &Recorder,
        views: Views,
        descriptions: Option<Descriptions>,
        follows: bool,
    ) -> UnmountedFiles {
        UnmountedFiles {
            host,
            files,
            ring: recorder.call_ring(),
            inherited: (follows && descriptions.is_none()).then(InheritedFiles::default),
            first: descriptions.clone(),
            descriptions,
            views,
            system: HashMap::new(),
            names: HashMap::new(),
            sizes: HashMap::new(),
            inodes: HashMap::new(),
            home: None,
        }
    }

    /// Whether this open needs no look at its result, because it is none of ours or because it was
    /// recorded from its name alone. `result`: its descriptor, where it was made already.
    pub(crate) fn is_settled(
        &mut self,
        tracee: Tracee,
        path: &OsStr,
        flags: u32,
        result: Option<i32>,
        now: u64,
    ) -> bool {
        let bytes = path.as_bytes();
        if !bytes.starts_with(b"/") || !is_plain_read(flags) || !is_system_path(bytes) {
            return false;
        }
        if is_kernels(bytes) {
            // What stands for a descriptor may be a pipe.
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
            if let Some(descriptions) = &self.descriptions {
                match result {
                    Some(fd) => descriptions.opened(tracee.tid, fd, file, flags, now),
                    None => descriptions.opens(tracee.tid, file, flags, now),
                }
            }
            self.record(tracee, Op::Open, file, flags, (now, now));
        }
        true
    }

    /// The first process begins, which sees the views.
    pub(crate) fn begun(&mut self, pid: u32) {
        self.views.seen_by(pid);
        self.home = Home::of(pid);
    }

    /// Something is going to be mounted here: whether that hides a part of a view.
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

    /// `Err`: it cannot be looked at by its name.
    fn system_file(&mut self, path: &OsStr, now: u64) -> Result<Option<FileId>, Unseen> {
        if self.system.len() >= REMEMBERED {
            self.system.clear();
        }
        let found = match near::behind(Path::new(path)) {
            Found::Is(there) => Some(there.attributes).filter(Attributes::is_regular),
            Found::Nothing => None,
            Found::Unknown => return Err(Unseen),
        };
        let file = found.map(|attributes| self.files.opened(&attributes, path, self.host, now));
        self.system.insert(path.to_owned(), file);
        Ok(file)
    }

    /// Whether this open is for a view to tell of, so that its result is not looked at either.
    pub(crate) fn is_in_view(&self, tracee: Tracee, directory: Option<i32>, path: &OsStr) -> bool {
        named(tracee, directory, path).is_some_and(|path| self.views.settle(&path))
    }

    /// Whether an open that may make the file finds none, so that it will make it. `None`: that cannot be said before.
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

    /// An open succeeded, and this is what it gave.
    pub(crate) fn opened(
        &mut self,
        tracee: Tracee,
        fd: i32,
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
        self.record_open(tracee, fd, &open, path, attributes, now);
    }

    /// The same where it is known whether the file was made by it. Returns the file, if it is one of those outside.
    fn record_open(
        &mut self,
        tracee: Tracee,
        fd: i32,
        open: &Open,
        path: &Path,
        attributes: &Attributes,
        now: u64,
    ) -> Option<FileId> {
        let file = self.found(path, attributes, open.flags, now)?;
        if let Some(descriptions) = &self.descriptions {
            descriptions.opened(tracee.tid, fd, file, open.flags, now);
        }
        let op = if open.creates == Some(true) {
            Op::Create
        } else {
            Op::Open
        };
        self.record(tracee, op, file, open.flags, (open.start_ns, now));
        Some(file)
    }

    /// Whether an open of which nobody could say before whether it would make the file has made it.
    fn is_made_elsewhere(
        &self,
        tracee: Tracee,
        open: &Open,
        path: &Path,
        attributes: &Attributes,
        now: u64,
    ) -> bool {
        // Nor is it known where a program is that has gone too deep.
        let is_nameless = path.as_os_str().is_empty();
        let may_make = open.flags & libc::O_CREAT as u32 != 0 && attributes.size == 0;
        may_make
            && self.files.known_inode(attributes).is_none()
            && is_fresh(attributes, now.saturating_sub(open.start_ns))
            && (open.creates.is_none() || is_nameless || self.is_foreign(tracee))
    }

    /// Whether a process looks paths up in another mount namespace than the first, or below another root.
    fn is_foreign(&self, tracee: Tracee) -> bool {
        let homes = self.home.as_ref().zip(Home::of(tracee.tid));
        homes.is_some_and(|(ours, theirs)| *ours != theirs)
    }

    /// The file that is open under this path, if it is one of those outside; one that was removed, if it was
    /// seen before or is made without a name.
    fn found(
        &mut self,
        path: &Path,
        attributes: &Attributes,
        flags: u32,
        now: u64,
    ) -> Option<FileId> {
        let name = path.as_os_str();
        if !attributes.is_regular()
            || self.views.see(path, attributes)
            || is_kernels(name.as_bytes())
        {
            return None;
        }
        if flags & UNNAMED != 0 || name.is_empty() {
            return Some(self.files.opened_unnamed(attributes, self.host, now));
        }
        if !links::is_path(name) {
            return self.files.known_inode(attributes);
        }
        let file = self.files.opened(attributes, name, self.host, now);
        self.seen(file, attributes);
        let is_system = is_system_path(name.as_bytes());
        if is_system {
            self.system.insert(name.to_owned(), Some(file));
        }
        // What is made where the machine has its files may be a result, and grows.
        let is_named = !is_system || !is_plain_read(flags);
        if is_named && self.names.get(path) != Some(&file) {
            self.names.insert(path.to_owned(), file);
        }
        Some(file)
    }

    /// A file has these attributes now.
    fn seen(&mut self, file: FileId, attributes: &Attributes) {
        let now = ((attributes.dev, attributes.ino), attributes.size);
        if self.sizes.insert(file, now).is_some_and(|then| then != now) {
            self.files.size(file, attributes.size);
        }
    }

    fn record(&mut self, tracee: Tracee, op: Op, file: FileId, flags: u32, span: (u64, u64)) {
        self.ring.push(CallRow {
            start_ns: span.0,
            duration_ns: span.1.saturating_sub(span.0),
            upid: Some(tracee.upid),
            tid: (tracee.tid != tracee.pid).then_some(Tid(tracee.tid)),
            op,
            file: Some(file),
            offset: None,
            length: None,
            flags: Some(flags),
            result: 0,
            fidelity: Fidelity::Open,
        });
    }
}

/// Files have grown since they were opened.
impl Drop for UnmountedFiles {
    fn drop(&mut self) {
        for (path, file) in std::mem::take(&mut self.names) {
            let same = |found: &Attributes| {
                let then = self.sizes.get(&file);
                then.is_some_and(|(inode, _)| *inode == (found.dev, found.ino))
            };
            if let Found::Is(there) = near::behind(&path)
                && same(&there.attributes)
            {
                self.seen(file, &there.attributes);
            }
        }
    }
}
