//! The passthrough itself: each operation of the filesystem as system calls on the real directory. It knows
//! node ids, handles and errnos, nothing of FUSE.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use flowtrace_schema::{FileId, FileKind};
use nix::fcntl::{OFlag, open, openat, readlink};
use nix::sys::stat::Mode;

use super::credentials::{Assumed, Credentials, Requester};
use super::handle::{Handles, OpenDirectory, OpenFile};
use super::node::{Descriptor, InodeKey, Node};
use super::node_table::{NodeTable, ROOT};
use super::offers::Offers;
use super::sys::path_of;
use super::{Config, Filter};
use crate::clock::Clock;
use crate::file_table::{FileTable, NameIn};
use crate::stat;
use crate::stat::Attributes;
use nix::Result;

mod data;
mod descriptor_limit;
mod directory;
pub(super) mod eviction;
mod lookup;
mod make;
mod names;
mod open;
mod owner;
mod remove;
mod setattr;
pub(super) mod stream;
#[cfg(test)]
mod tests;
mod xattr;

pub(super) use data::Write;
pub(super) use directory::Listed;
pub(super) use make::NewNode;
pub(super) use open::{NewFile, Opened};
pub(super) use setattr::{Changes, SetTime};

use descriptor_limit::DescriptorLimit;

/// A served directory.
#[derive(Debug)]
pub(super) struct Passthrough {
    nodes: NodeTable,
    files: Handles<OpenFile>,
    directories: Handles<OpenDirectory>,
    /// `/proc/self/fd`, by which an inode with an `O_PATH` descriptor is opened again.
    descriptors: OwnedFd,
    credentials: Credentials,
    owner: Option<(u32, u32)>,
    hidden: Vec<(InodeKey, OsString)>,
    offers: Arc<Offers>,
    limit: DescriptorLimit,
    /// Ids of nodes that have a descriptor, and of some that had one; the oldest first.
    holders: Mutex<VecDeque<u64>>,
    has_given_up: AtomicBool,
    is_evicting: AtomicBool,
    trace: Option<Trace>,
}

/// Destination of the records of files and names.
#[derive(Debug)]
struct Trace {
    files: Arc<FileTable>,
    host: flowtrace_schema::HostId,
    clock: Clock,
    filter: Filter,
    /// The real path of the directory, and the path under which the workflow sees it.
    real_path: PathBuf,
    seen_path: PathBuf,
}

/// A node whose id the kernel gets, with the attributes that it gets at the same time.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) node: Arc<Node>,
    pub(super) attributes: Attributes,
}

impl Trace {
    /// True if calls on the file at `below` in the directory are recorded.
    fn admits(&self, below: &Path) -> bool {
        self.filter.admits(&self.seen_path, below)
    }
}

impl Passthrough {
    /// Serves `config.root`. Files and names go to `files` unless `config.log` is off.
    pub(super) fn new(config: Config, files: Arc<FileTable>, clock: Clock) -> Result<Passthrough> {
        let attributes = stat::of(config.root.as_fd())?;
        let trace = config.log.then(|| Trace {
            files,
            host: config.host,
            clock,
            filter: config.filter.clone(),
            real_path: real_path(config.root.as_fd()),
            seen_path: config.seen_path.clone(),
        });
        let hidden = hidden(&config);
        let file = trace.as_ref().map(|trace| {
            let now = trace.clock.now();
            trace
                .files
                .root(&attributes, &config.seen_path, trace.host, now)
        });
        let excludes = |trace: &Trace| !trace.admits(Path::new(""));
        let root = Node {
            is_excluded: trace.as_ref().is_some_and(excludes),
            hides: hides(&hidden, &InodeKey::from(&attributes)),
            ..node(ROOT, config.root, &attributes, file)
        };
        let descriptors = open(
            Path::new("/proc/self/fd"),
            OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Passthrough {
            nodes: NodeTable::new(root),
            files: Handles::default(),
            directories: Handles::default(),
            descriptors,
            credentials: Credentials::new(config.permission),
            owner: config.owner,
            hidden,
            offers: config.offers,
            limit: DescriptorLimit::of_this_process(),
            holders: Mutex::default(),
            has_given_up: AtomicBool::new(false),
            is_evicting: AtomicBool::new(false),
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

    /// Acts as `who` until the guard is dropped, if the kernel has not checked the caller's permission yet.
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

    /// Number under which an inode is shown.
    pub(super) fn number(&self, key: &InodeKey) -> u64 {
        self.nodes.number_of(key)
    }

    /// Number under which an entry of `directory` is shown.
    fn number_in(&self, directory: &Node, ino: u64) -> u64 {
        self.number(&InodeKey {
            ino,
            ..directory.key
        })
    }

    /// Opens the inode of a node for I/O.
    fn reopen(&self, node: &Node, flags: OFlag) -> Result<OwnedFd> {
        self.reopen_fd(self.pin(node)?.as_fd(), flags)
    }

    /// Opens the inode of a descriptor again, with other flags.
    fn reopen_fd(&self, fd: BorrowedFd<'_>, flags: OFlag) -> Result<OwnedFd> {
        // Not O_NOFOLLOW: the entry in /proc/self/fd is a link.
        let flags = (flags | OFlag::O_CLOEXEC) - OFlag::O_NOFOLLOW;
        let number = fd.as_raw_fd().to_string();
        let directory = self.descriptors.as_fd();
        self.or_evict(|| openat(directory, number.as_str(), flags, Mode::empty()))
    }

    /// The node of the inode of `fd` (`O_PATH`), made if it is new. Counts a lookup.
    fn enter(
        &self,
        parent: &Node,
        name: Option<&OsStr>,
        fd: OwnedFd,
        attributes: &Attributes,
    ) -> Arc<Node> {
        let key = InodeKey::from(attributes);
        let is_excluded = self.excludes(fd.as_fd(), None);
        let file = if is_excluded && attributes.kind() != FileKind::Directory {
            None
        } else {
            self.record_seen(parent, name, attributes)
        };
        let entered = self.nodes.enter(attributes, |id| Node {
            is_excluded,
            hides: hides(&self.hidden, &key),
            ..node(id, fd, attributes, file)
        });
        if let Some(name) = name {
            self.found(parent, name, &entered);
        }
        self.holds(&entered);
        entered
    }

    /// Records that a node was found under a name.
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

    /// The file of the trace for an inode that was found in a directory under `name`; `None` as the name
    /// means that it has none yet.
    fn record_seen(&self, parent: &Node, name: Option<&OsStr>, a: &Attributes) -> Option<FileId> {
        let trace = self.trace.as_ref()?;
        let directory = parent.file?;
        let now = trace.clock.now();
        Some(match name {
            Some(name) => {
                let name = NameIn { directory, name };
                trace.files.seen(a, name, trace.host, now)
            }
            None => trace.files.unnamed(a, trace.host, now),
        })
    }

    /// The file of the trace for a name that does not exist.
    fn record_missing(&self, parent: &Node, name: &OsStr) -> Option<FileId> {
        let trace = self.trace.as_ref()?;
        let directory = parent.file?;
        if self.excludes_in(parent, name) {
            return None;
        }
        let name = NameIn { directory, name };
        Some(trace.files.missing(name, trace.host, trace.clock.now()))
    }

    /// The file of the trace that has a name, if known.
    pub(super) fn known_as(&self, parent: &Node, name: &OsStr) -> Option<FileId> {
        let trace = self.trace.as_ref()?;
        let directory = parent.file?;
        if self.excludes_in(parent, name) {
            return None;
        }
        trace.files.find(NameIn { directory, name })
    }

    /// True if the trace leaves out calls on an inode or, for a directory, on a name in it.
    fn excludes(&self, fd: BorrowedFd<'_>, name: Option<&OsStr>) -> bool {
        let Some(trace) = self.trace.as_ref().filter(|trace| !trace.filter.is_empty()) else {
            return false;
        };
        let mut path = real_path(fd);
        path.extend(name);
        // A file that was moved out of the directory has only a whole path.
        !trace.admits(path.strip_prefix(&trace.real_path).unwrap_or(&path))
    }

    fn excludes_in(&self, parent: &Node, name: &OsStr) -> bool {
        match self.pin(parent) {
            Ok(pin) => self.excludes(pin.as_fd(), Some(name)),
            Err(_) => false,
        }
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
        descriptor: Descriptor::new(fd),
        key: InodeKey::from(attributes),
        birth: attributes.birth,
        kind: attributes.kind(),
        file,
        is_excluded: false,
        hides: None,
        names: RwLock::new(()),
        last_name: AtomicU64::new(0),
        unlinked: AtomicBool::new(false),
        in_own_directory: AtomicBool::new(false),
        contents: AtomicU64::new(0),
        name_kept_ns: AtomicU64::new(0),
        opens: AtomicU32::new(0),
        writable_maps: AtomicU32::new(0),
        writers: AtomicU32::new(0),
        parent: AtomicU64::new(ROOT),
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
    /// True if the mount shows a name in this directory.
    fn shows(&self, name: &OsStr) -> bool {
        match &self.hides {
            None => true,
            Some(hidden) => !hidden.iter().any(|hidden| hidden == name),
        }
    }
}

/// Path of an inode, as the kernel reports it; empty if it does not.
fn real_path(fd: BorrowedFd<'_>) -> PathBuf {
    readlink(path_of(fd).as_c_str()).map_or_else(|_| PathBuf::new(), PathBuf::from)
}
