//! Rows of the calls on names of files, with the kernel layer: attributes, new directories and links, renames and
//! removals, and what failed. Opens have their own ([`super::reported`]).

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use flowtrace_schema::{Call, Coverage, FileId, FileKind, Op, is_system_path};

use super::super::near::{self, Found};
use super::super::tracepoints::Called;
use super::paths::{is_kernels, without_dots};
use super::{Tracee, UnmountedFiles};
use crate::file_calls::{ByName, result_of};
use crate::file_table::NameIn;
use crate::stat::Attributes;

/// A call on names that returned.
struct Named<'a> {
    called: &'a Called,
    by: &'a ByName,
    op: Op,
    path: Option<Cow<'a, Path>>,
}

impl UnmountedFiles {
    /// A call on a name returned; the changes of names that it made are not applied yet. `is_foreign`: its process
    /// looks up paths elsewhere.
    pub(crate) fn on_name(&mut self, tracee: Tracee, called: &Called, is_foreign: bool, now: u64) {
        let Some(by) = called.on_name.filter(|_| self.records_all()) else {
            return;
        };
        let path = called.names[0].as_deref().filter(|_| !is_foreign);
        let named = Named {
            called,
            by,
            op: op_of(called, by),
            path: path.map(without_dots),
        };
        if named.is_of_machine(self) {
            return;
        }
        let Some(file) = self.subject(&named, now) else {
            return;
        };
        let length = by.argument(by.length, &called.call.arguments);
        let span = (called.began_ns.unwrap_or(now), now);
        let row = self.row(tracee, named.op, file, span);
        self.recorder.call(&Call {
            length,
            flags: named.flags(),
            result: result_of(named.op, length, called.result),
            ..row
        });
    }

    /// Records the links that led from a name to a file with this path.
    pub(super) fn follow_links(&mut self, tracee: Tracee, named: &Path, path: &Path, now: u64) {
        if named == path {
            return;
        }
        let mut through: Vec<&Path> = named.ancestors().collect();
        // The root is no link.
        through.pop();
        for name in through.into_iter().rev() {
            let Some(link) = self.link(name, now) else {
                continue;
            };
            let length = self.known.last_seen(link).map_or(0, |(_, size)| size);
            let row = self.row(tracee, Op::Readlink, link, (now, now));
            self.recorder.call(&Call {
                result: length.cast_signed(),
                ..row
            });
        }
    }

    /// The symbolic link of this name, if it is one of the run.
    fn link(&mut self, name: &Path, now: u64) -> Option<FileId> {
        if let Some(file) = self.known.named(name) {
            return (self.known.kind(file) == Some(FileKind::Symlink)).then_some(file);
        }
        if is_system_path(name.as_os_str().as_bytes()) {
            return None;
        }
        match near::at(name) {
            Found::Is(there) if there.attributes.kind() == FileKind::Symlink => {
                Some(self.enter(&there.attributes, name, now))
            }
            _ => None,
        }
    }

    /// The file that a call was about.
    fn subject(&mut self, named: &Named<'_>, now: u64) -> Option<FileId> {
        let Named { called, op, .. } = named;
        let Some(path) = &named.path else {
            let found = called.found.as_ref()?;
            return self.known.of(found);
        };
        let missing = [libc::ENOENT, libc::ENOTDIR].map(|errno| -i64::from(errno));
        if missing.contains(&called.result) {
            self.known.unname(path);
            let name = NameIn::full_path(path.as_os_str());
            return Some(self.files.missing(name, self.host, now));
        }
        if let Some(found) = &called.found {
            let known = self.known.of(found);
            return Some(known.unwrap_or_else(|| self.enter_found(found, path, now)));
        }
        if called.result >= 0 {
            match op {
                Op::Mkdir | Op::Mknod | Op::Symlink => {
                    return Some(self.enter_made(named, path, now));
                }
                // It is there under its new name.
                Op::Rename if self.known.named(path).is_none() => {
                    let to = &*without_dots(called.names[1].as_deref()?);
                    return Some(match near::at(to) {
                        Found::Is(there) => self.enter(&there.attributes, path, now),
                        Found::Nothing | Found::Unknown => {
                            self.enter_unseen(path, FileKind::File, now)
                        }
                    });
                }
                _ => {}
            }
        }
        let follows = named.follows();
        let known = self.known.named(path);
        if let Some(file) = known
            && !(follows && self.known.kind(file) == Some(FileKind::Symlink))
        {
            return Some(file);
        }
        let found = match follows {
            true => near::behind(path),
            false => near::at(path),
        };
        match (found, op) {
            (Found::Is(there), _) => {
                let known = self.known.of(&as_reported(&there.attributes));
                Some(known.unwrap_or_else(|| {
                    let real = there.path();
                    self.enter(&there.attributes, real.as_deref().unwrap_or(path), now)
                }))
            }
            (_, Op::Rmdir) => Some(self.enter_unseen(path, FileKind::Directory, now)),
            (_, Op::Unlink) => Some(self.enter_unseen(path, FileKind::File, now)),
            _ => known,
        }
    }

    /// Enters a file whose attributes a call has reported, under its path without links.
    fn enter_found(&mut self, found: &Attributes, path: &Path, now: u64) -> FileId {
        let is_link = found.kind() == FileKind::Symlink;
        let there = match is_link {
            true => near::at(path),
            false => near::behind(path),
        };
        let real = match there {
            Found::Is(there) if there.attributes.ino == found.ino => there.path(),
            _ => None,
        };
        self.enter(found, real.as_deref().unwrap_or(path), now)
    }

    /// Enters what a call has made.
    fn enter_made(&mut self, named: &Named<'_>, path: &Path, now: u64) -> FileId {
        let kind = match named.op {
            Op::Mkdir => FileKind::Directory,
            Op::Symlink => FileKind::Symlink,
            _ => FileKind::File,
        };
        match near::at(path) {
            Found::Is(there) => {
                let made = as_reported(&there.attributes);
                self.known.forget(made.inode());
                self.known.unname(path);
                self.files.forget_inode(&made);
                self.enter(&made, path, now)
            }
            Found::Nothing | Found::Unknown => self.enter_unseen(path, kind, now),
        }
    }

    pub(super) fn enter(&mut self, attributes: &Attributes, path: &Path, now: u64) -> FileId {
        let attributes = as_reported(attributes);
        self.recognise(path, &attributes);
        let name = path.as_os_str();
        let coverage = self.coverage(name);
        let file = self
            .files
            .opened(&attributes, name, coverage, self.host, now);
        self.known.seen(file, &attributes);
        self.known.is(&attributes, file);
        self.known.name(path.to_owned(), file);
        file
    }

    /// Enters a file of which only the name is known.
    fn enter_unseen(&mut self, path: &Path, kind: FileKind, now: u64) -> FileId {
        let name = NameIn::full_path(path.as_os_str());
        let file = self
            .files
            .unseen(name, kind, Coverage::Exact, self.host, now);
        self.known.name(path.to_owned(), file);
        file
    }
}

impl Named<'_> {
    /// True if the trace leaves its file out: it is one of the machine, which the run has not made.
    fn is_of_machine(&self, files: &UnmountedFiles) -> bool {
        self.path.as_deref().is_some_and(|path| {
            let name = path.as_os_str().as_bytes();
            is_kernels(name) || is_system_path(name) && files.known.named(path).is_none()
        })
    }

    /// True if the call is about what a link at the end of its path leads to.
    fn follows(&self) -> bool {
        self.by.follows(&self.called.call.arguments)
    }

    fn flags(&self) -> Option<u32> {
        let flags = self.by.argument(self.by.flags, &self.called.call.arguments);
        let flags = flags.map(|flags| flags as u32);
        match self.op {
            Op::Chmod => flags.map(|mode| mode & 0o7777),
            // chdir(2) needs the permission to search.
            Op::Access => Some(flags.unwrap_or(libc::X_OK as u32)),
            Op::Rename => Some(flags.unwrap_or(0)),
            _ => flags,
        }
    }
}

fn op_of(called: &Called, by: &ByName) -> Op {
    let arguments = &called.call.arguments;
    let flags = by.argument(by.flags, arguments).unwrap_or(0) as i32;
    match by.op {
        Op::Unlink
            if by.number == libc::SYS_unlinkat && arguments[2] as i32 & libc::AT_REMOVEDIR != 0 =>
        {
            Op::Rmdir
        }
        // It can only serve to name the file.
        Op::Open if flags & libc::O_PATH != 0 => Op::Lookup,
        op => op,
    }
}

/// The attributes that the kernel reports, too: without the birth time.
fn as_reported(attributes: &Attributes) -> Attributes {
    let inode = (attributes.dev, attributes.ino);
    Attributes::reported(inode, attributes.mode, attributes.size)
}
