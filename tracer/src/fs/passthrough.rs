//! The passthrough itself: each operation of the filesystem as system calls on the real
//! directory. Knows node ids, handles and errnos, nothing of FUSE.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use flowtrace_schema::FileId;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::dup;

use super::attributes::Attributes;
use super::credentials::{Assumed, Credentials, Requester};
use super::handle::{Handles, OpenDirectory, OpenFile};
use super::identity::{FileTable, NameIn};
use super::inode::{InodeKey, Node, NodeTable, ROOT};
use super::sys::stat;
use super::{Config, Result};
use crate::clock::Clock;

mod data;
mod directory;
mod look;
mod make;
mod names;
mod open;
mod owner;
pub(super) mod relief;
mod remove;
mod setattr;
pub(super) mod stream;
#[cfg(test)]
mod tests;
mod xattr;

pub(super) use data::Write;
pub(super) use directory::{Listed, ListedPlus};
pub(super) use make::NewNode;
pub(super) use setattr::{Changes, SetTime};

use relief::{Place, Room};

/// A served directory.
#[derive(Debug)]
pub(super) struct View {
    nodes: NodeTable,
    files: Handles<OpenFile>,
    directories: Handles<OpenDirectory>,
    /// `/proc/self/fd`, to open again what is held by an `O_PATH` descriptor.
    descriptors: OwnedFd,
    credentials: Credentials,
    owner: Option<(u32, u32)>,
    hidden: Vec<(InodeKey, OsString)>,
    room: Room,
    trace: Option<Trace>,
}

/// Where files and names are recorded.
#[derive(Debug)]
struct Trace {
    files: Arc<FileTable>,
    host: flowtrace_schema::HostId,
    clock: Clock,
}

/// A node whose id the kernel is told, with the attributes it is told along.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) node: Arc<Node>,
    pub(super) attributes: Attributes,
}

impl View {
    /// Serves `config.root`. Files and names go to `files` unless `config.log` is off.
    pub(super) fn new(config: Config, files: Arc<FileTable>, clock: Clock) -> Result<View> {
        let attributes = stat::of(config.root.as_fd())?;
        let trace = config.log.then_some(Trace {
            files,
            host: config.host,
            clock,
        });
        let hidden = hidden(&config);
        let file = trace.as_ref().map(|trace| {
            let now = trace.clock.now();
            trace
                .files
                .root(&attributes, &config.seen_path, trace.host, now)
        });
        let root = Node {
            hides: hides(&hidden, &InodeKey::from(&attributes)),
            ..node(ROOT, config.root, &attributes, file)
        };
        let descriptors = open(
            Path::new("/proc/self/fd"),
            OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        Ok(View {
            nodes: NodeTable::new(root),
            files: Handles::default(),
            directories: Handles::default(),
            descriptors,
            credentials: Credentials::new(config.permission),
            owner: config.owner,
            hidden,
            room: Room::of_this_process(),
            trace,
        })
    }

    /// The node that the kernel calls `id`.
    pub(super) fn node(&self, id: u64) -> Result<Arc<Node>> {
        self.nodes.get(id)
    }

    /// The open file that the kernel calls `number`.
    pub(super) fn file(&self, number: u64) -> Result<Arc<OpenFile>> {
        self.files.get(number)
    }

    /// Acts as `who` until the guard is dropped, where the kernel has not checked yet what the
    /// caller may do.
    pub(super) fn act_as(&self, who: Requester) -> Result<Assumed> {
        self.credentials.act_as(who)
    }

    /// Numbers of all open files.
    pub(super) fn open_files(&self) -> Vec<u64> {
        self.files.numbers()
    }

    /// Numbers of all open directories.
    pub(super) fn open_directories(&self) -> Vec<u64> {
        self.directories.numbers()
    }

    /// The open directory that the kernel calls `number`.
    pub(super) fn directory(&self, number: u64) -> Result<Arc<OpenDirectory>> {
        self.directories.get(number)
    }

    /// Number under which an inode in `directory` is shown.
    fn shown_inode(&self, directory: &Node, ino: u64) -> u64 {
        let key = InodeKey {
            ino,
            ..directory.key
        };
        if key == self.nodes.root().key {
            return ino;
        }
        self.nodes.id_of(&key)
    }

    /// Whether there are as many descriptors as what is about to be made takes: it could not be
    /// taken back if they were found missing afterwards.
    fn spare(&self, count: usize) -> Result<()> {
        let taken = (0..count).map(|_| dup(self.descriptors.as_fd()));
        taken.collect::<Result<Vec<_>>>().map(drop)
    }

    /// Opens the inode of a node for I/O.
    fn reopen(&self, fd: BorrowedFd<'_>, flags: OFlag) -> Result<OwnedFd> {
        // Not O_NOFOLLOW: the entry in /proc/self/fd is a link.
        let flags = (flags | OFlag::O_CLOEXEC) - OFlag::O_NOFOLLOW;
        openat(
            self.descriptors.as_fd(),
            fd.as_raw_fd().to_string().as_str(),
            flags,
            Mode::empty(),
        )
    }

    /// The node of an inode that `fd` (`O_PATH`) holds, made if it is new. Counts a lookup.
    fn enter(
        &self,
        parent: &Node,
        name: &OsStr,
        fd: OwnedFd,
        attributes: &Attributes,
    ) -> Result<Arc<Node>> {
        let key = InodeKey::from(attributes);
        let file = self.record_seen(parent, name, attributes);
        let entered = self.nodes.enter(&key, |id| Node {
            hides: hides(&self.hidden, &key),
            ..node(id, fd, attributes, file)
        })?;
        self.found(parent, name, &entered);
        Ok(entered)
    }

    /// A node was found under a name.
    fn found(&self, parent: &Node, name: &OsStr, node: &Node) {
        node.parent.store(parent.id, Ordering::Relaxed);
        if let (Some(trace), Some(directory), Some(file)) = (&self.trace, parent.file, node.file) {
            let name = NameIn { directory, name };
            let hash = trace.files.hash_name(name);
            if node.last_name.swap(hash, Ordering::Relaxed) != hash {
                trace.files.named(file, node.kind, name, trace.clock.now());
            }
        }
    }

    fn record_seen(&self, parent: &Node, name: &OsStr, a: &Attributes) -> Option<FileId> {
        let trace = self.trace.as_ref()?;
        let directory = parent.file?;
        let name = NameIn { directory, name };
        Some(trace.files.seen(a, name, trace.host, trace.clock.now()))
    }

    /// The file of the trace that stands for a name that does not exist.
    fn record_missing(&self, parent: &Node, name: &OsStr) -> Option<FileId> {
        let trace = self.trace.as_ref()?;
        let directory = parent.file?;
        let name = NameIn { directory, name };
        Some(trace.files.missing(name, trace.host, trace.clock.now()))
    }

    /// The file of the trace that has a name, as far as known.
    pub(super) fn known_as(&self, parent: &Node, name: &OsStr) -> Option<FileId> {
        let trace = self.trace.as_ref()?;
        let directory = parent.file?;
        trace.files.find(NameIn { directory, name })
    }

    fn record_size(&self, file: Option<FileId>, size: u64) {
        if let (Some(trace), Some(file)) = (&self.trace, file) {
            trace.files.size(file, size);
        }
    }
}

fn node(id: u64, fd: OwnedFd, attributes: &Attributes, file: Option<FileId>) -> Node {
    Node {
        id,
        fd,
        key: InodeKey::from(attributes),
        birth: attributes.birth,
        kind: attributes.kind(),
        file,
        hides: None,
        names: RwLock::new(()),
        last_name: AtomicU64::new(0),
        unlinked: AtomicBool::new(false),
        in_own_directory: AtomicBool::new(false),
        opens: AtomicU32::new(0),
        parent: AtomicU64::new(ROOT),
        _place: Place::take(),
    }
}

/// The directories with hidden names. Those that do not exist hide nothing.
fn hidden(config: &Config) -> Vec<(InodeKey, OsString)> {
    let find = |hidden: &super::Hidden| {
        let path = hidden.directory.as_os_str();
        let attributes = if path.is_empty() {
            stat::of(config.root.as_fd())
        } else {
            stat::at(config.root.as_fd(), &super::sys::c_string(path).ok()?)
        };
        Some((InodeKey::from(&attributes.ok()?), hidden.name.clone()))
    };
    config.hidden.iter().filter_map(find).collect()
}

fn hides(hidden: &[(InodeKey, OsString)], key: &InodeKey) -> Option<Box<[OsString]>> {
    let names: Box<[OsString]> = hidden
        .iter()
        .filter(|(directory, _)| directory == key)
        .map(|(_, name)| name.clone())
        .collect();
    (!names.is_empty()).then_some(names)
}

impl Node {
    /// Whether the view shows a name in this directory.
    fn shows(&self, name: &OsStr) -> bool {
        match &self.hides {
            None => true,
            Some(hidden) => !hidden.iter().any(|hidden| hidden == name),
        }
    }
}

/// Path of the inode that a descriptor holds, for calls that only take paths.
fn path_of(fd: BorrowedFd<'_>) -> CString {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    CString::new(path).unwrap_or_default()
}
