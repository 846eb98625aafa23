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
    /// The root from which it does, where that is not ours.
    root: Option<OwnedFd>,
}

/// What is there.
#[derive(Debug)]
pub(crate) enum Named {
    File(Found),
    Fifo,
    Other,
}

/// A regular file.
#[derive(Debug)]
pub(crate) struct Found {
    path: PathBuf,
    attributes: Attributes,
}

impl Outside {
    /// Where a call's path leads. `elsewhere`: the process has another root than we, or other mounts.
    pub(crate) fn place(
        &self,
        tracee: Tracee,
        directory: Option<i32>,
        path: &OsStr,
        elsewhere: bool,
    ) -> Option<Place> {
        let path = named(tracee, directory, path)?;
        if !elsewhere {
            let path = self.views.real(path)?;
            return Some(Place { path, root: None });
        }
        let root = format!("/proc/{}/root", tracee.pid);
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        let root = open(root.as_str(), flags, Mode::empty()).ok();
        Some(Place { path, root })
    }

    /// What is there; links are followed.
    pub(crate) fn look(&self, place: &Place) -> Option<Named> {
        let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC);
        let file = match &place.root {
            None => openat2(AT_FDCWD, &place.path, how),
            Some(root) => openat2(root, &place.path, how.resolve(ResolveFlag::RESOLVE_IN_ROOT)),
        };
        let file = file.ok()?;
        let attributes = stat::of(file.as_fd()).ok()?;
        Some(match attributes.mode & libc::S_IFMT {
            libc::S_IFIFO => Named::Fifo,
            libc::S_IFREG => {
                let own = format!("/proc/self/fd/{}", file.as_raw_fd());
                let path = fs::read_link(own).ok()?;
                Named::File(Found { path, attributes })
            }
            _ => Named::Other,
        })
    }

    /// A process opens this file, unless it may not.
    pub(crate) fn takes(&mut self, tracee: Tracee, open: &Open, found: &Found, now: u64) {
        let Found { path, attributes } = found;
        let made = open.creates;
        if self.views.hold(path) || !(made || may_open(tracee.pid, attributes, open.flags)) {
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
