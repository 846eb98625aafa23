//! Files by the names under which processes open them, for who is not told of the descriptors.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flowtrace_schema::Op;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;

use super::super::descriptors;
use super::paths::named;
use super::{NameChange, Open, Outside, Tracee};
use crate::fs::{Attributes, stat};

/// Where a process's path leads.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    /// From where it does, and whether the process has a root of its own there; `None`: from where we are.
    from: Option<(OwnedFd, ResolveFlag)>,
}

/// What is there.
#[derive(Debug)]
pub(crate) enum Named {
    File(Found),
    Fifo(Found),
    Other,
}

/// A regular file, or a pipe with a name.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) attributes: Attributes,
    /// It was found from where we are, which is below the views.
    below_views: bool,
}

impl Outside {
    /// Where a call's path leads. `is_elsewhere`: the process has another root than we, or other mounts.
    pub(crate) fn place(
        &self,
        tracee: Tracee,
        directory: Option<i32>,
        path: &OsStr,
        is_elsewhere: bool,
    ) -> Option<Place> {
        let is_absolute = path.as_bytes().starts_with(b"/");
        let is_elsewhere = is_elsewhere || self.views.are_altered();
        if !is_elsewhere && let Some(path) = named(tracee, directory, path) {
            let path = self.views.real(path)?;
            return Some(Place { path, from: None });
        }
        let process = format!("/proc/{}/task/{}", tracee.pid, tracee.tid);
        let (from, resolve) = match directory {
            _ if is_absolute => (format!("{process}/root"), ResolveFlag::RESOLVE_IN_ROOT),
            None | Some(libc::AT_FDCWD) => (format!("{process}/cwd"), ResolveFlag::empty()),
            Some(fd) => (format!("{process}/fd/{fd}"), ResolveFlag::empty()),
        };
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        let from = open(from.as_str(), flags, Mode::empty()).ok()?;
        Some(Place {
            path: path.into(),
            from: Some((from, resolve)),
        })
    }

    /// What is there; links are followed. Elsewhere that may ask our own views, which leave out what we ask.
    pub(crate) fn look(&self, place: &Place) -> Option<Named> {
        let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC);
        let file = match &place.from {
            None => openat2(AT_FDCWD, &place.path, how),
            Some((from, resolve)) => openat2(from, &place.path, how.resolve(*resolve)),
        };
        let file = file.ok()?;
        let attributes = stat::of(file.as_fd()).ok()?;
        Some(match attributes.mode & libc::S_IFMT {
            kind @ (libc::S_IFIFO | libc::S_IFREG) => {
                let own = format!("/proc/self/fd/{}", file.as_raw_fd());
                // Empty: it is too long to tell.
                let path = fs::read_link(own).unwrap_or_default();
                let found = Found {
                    path,
                    attributes,
                    below_views: place.from.is_none(),
                };
                match kind {
                    libc::S_IFIFO => Named::Fifo(found),
                    _ => Named::File(found),
                }
            }
            _ => Named::Other,
        })
    }

    /// A process opens this file, unless it may not.
    pub(crate) fn takes(&mut self, tracee: Tracee, open: &Open, found: &Found, now: u64) {
        let Found {
            path, attributes, ..
        } = found;
        let made = open.creates;
        let is_in_view = found.below_views && self.views.hold(path);
        if is_in_view || !(made || may_open(tracee.pid, attributes, open.flags)) {
            return;
        }
        if let Some(file) = self.found(path, attributes, open.flags, now) {
            let op = if made { Op::Create } else { Op::Open };
            let span = (open.start_ns, open.start_ns);
            self.record(tracee, op, file, open.flags, span);
        }
    }

    /// The files without a name that a process has open and that are not known yet: it has made one.
    /// Whether there is one.
    pub(crate) fn find_unnamed(&mut self, tracee: Tracee, open: &Open) -> bool {
        let mut is_found = false;
        for fd in descriptors::numbers_of(tracee.pid) {
            let Some(attributes) = descriptors::attributes(tracee.pid, fd) else {
                continue;
            };
            let is_new = attributes.is_regular()
                && attributes.links == 0
                && self.files.known_inode(&attributes).is_none();
            if is_new && let Some(path) = descriptors::target(tracee.pid, fd) {
                self.opened(tracee, fd, open, &path, &attributes, open.start_ns);
                is_found = true;
            }
        }
        is_found
    }

    /// Whether a change of names, which was asked for, was made.
    pub(crate) fn has_changed(&self, change: &NameChange) -> bool {
        match change {
            NameChange::Removed(path) => !self.is_still(path),
            NameChange::Renamed { exchange: true, .. } => true,
            NameChange::Renamed { from, to, .. } => {
                from == to || !self.is_still(from) && fs::symlink_metadata(to).is_ok()
            }
        }
    }

    /// Whether a name leads to the file to which it did.
    fn is_still(&self, path: &Path) -> bool {
        let name = CString::new(path.as_os_str().as_bytes()).ok();
        let Some(found) = name.and_then(|name| stat::at(AT_FDCWD, &name).ok()) else {
            return false;
        };
        let known = self.names.get(path).and_then(|file| self.sizes.get(file));
        known.is_none_or(|(inode, _)| *inode == (found.dev, found.ino))
    }
}

/// Whether a process's user may open a file so, by its mode alone.
fn may_open(pid: u32, attributes: &Attributes, flags: u32) -> bool {
    let Ok(process) = fs::metadata(format!("/proc/{pid}")) else {
        return true;
    };
    if process.uid() == 0 {
        return true;
    }
    let shift = match (process.uid(), process.gid()) {
        (uid, _) if uid == attributes.uid => 6,
        (_, gid) if gid == attributes.gid => 3,
        _ => 0,
    };
    let wanted = match flags as i32 & libc::O_ACCMODE {
        libc::O_RDONLY => 0o4,
        libc::O_WRONLY => 0o2,
        _ => 0o6,
    };
    attributes.mode >> shift & wanted == wanted
}
