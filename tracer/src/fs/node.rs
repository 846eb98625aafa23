//! An inode that the kernel knows, and its descriptor, which may be given up while it is not needed.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use flowtrace_schema::{FileId, FileKind};

use super::descriptor::Pin;
use crate::stat::{Attributes, Time};

/// Identity of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InodeKey {
    /// Id of the mount. The same directory reached through two mounts is two nodes, because the kernel allows
    /// a directory only one place.
    pub(crate) mount: u64,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

impl From<&Attributes> for InodeKey {
    fn from(attributes: &Attributes) -> InodeKey {
        InodeKey {
            mount: attributes.mount,
            dev: attributes.dev,
            ino: attributes.ino,
        }
    }
}

/// An inode that the kernel knows.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) descriptor: Descriptor,
    pub(crate) key: InodeKey,
    pub(crate) birth: Option<Time>,
    pub(crate) kind: FileKind,
    /// Its id in the trace; `None` without recording.
    pub(crate) file: Option<FileId>,
    /// True if calls on it are left out of the trace.
    pub(crate) is_excluded: bool,
    /// Names in this directory that the mount does not show.
    pub(crate) hides: Option<Box<[OsString]>>,
    /// Locked while names in this directory are read or changed, and recorded.
    pub(crate) names: RwLock<()>,
    /// Hash of the name under which it was last recorded.
    pub(crate) last_name: AtomicU64,
    /// True if a name of it was removed: it may be gone when the kernel forgets it.
    pub(crate) unlinked: AtomicBool,
    /// True if it is in a directory that the user may change (see [`crate::fs::Config::owner`]).
    pub(crate) in_own_directory: AtomicBool,
    /// Hash of size and time of change at the time when its pages were last known to be valid; 0: never.
    pub(crate) contents: AtomicU64,
    /// Time when the kernel was last allowed to keep a name in this directory, ns; 0: never.
    pub(crate) name_kept_ns: AtomicU64,
    /// Number of its open files and directories.
    pub(crate) opens: AtomicU32,
    /// Number of its open files through which a mapping may be made that stores to the file.
    pub(crate) writable_maps: AtomicU32,
    /// Number of its open files that may change it, through the page cache that all of this mount share.
    pub(crate) writers: AtomicU32,
    /// Node id of the directory in which it was last found.
    pub(crate) parent: AtomicU64,
}

impl Node {
    /// Its id in the trace, for a call on it.
    pub(crate) fn recorded(&self) -> Option<FileId> {
        self.file.filter(|_| !self.is_excluded)
    }
}

/// The directory and name at which a node is found again.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) directory: Arc<Node>,
    pub(crate) name: OsString,
}

/// A descriptor, or a place to get one.
#[derive(Clone, Debug)]
pub(crate) enum Hold {
    Pinned(Arc<Pin>),
    /// An open file of the inode, which is used instead.
    Open(Arc<OwnedFd>),
    GivenUp(Box<Place>),
}

/// Descriptor of a node, or a place to get one.
#[derive(Debug)]
pub(crate) struct Descriptor(Mutex<State>);

#[derive(Debug)]
struct State {
    hold: Hold,
    /// The file or directory of the inode that was opened last, until it is released.
    open: Weak<OwnedFd>,
}

impl Descriptor {
    pub(crate) fn new(fd: OwnedFd) -> Descriptor {
        Descriptor(Mutex::new(State {
            hold: Hold::Pinned(Pin::new(fd)),
            open: Weak::new(),
        }))
    }

    /// Its present state.
    pub(crate) fn hold(&self) -> Hold {
        self.state().hold.clone()
    }

    /// The descriptor, if it was not given up.
    pub(crate) fn pin(&self) -> Option<Arc<Pin>> {
        match &self.state().hold {
            Hold::Pinned(pin) => Some(Arc::clone(pin)),
            Hold::Open(_) | Hold::GivenUp(_) => None,
        }
    }

    /// Stores a new descriptor; returns the one to use, which another thread may have got first.
    pub(crate) fn found(&self, new: Arc<Pin>) -> Arc<Pin> {
        let hold = &mut self.state().hold;
        if let Hold::Pinned(pin) = hold {
            return Arc::clone(pin);
        }
        *hold = Hold::Pinned(Arc::clone(&new));
        new
    }

    /// Gives the descriptor up.
    pub(crate) fn give_up(&self, place: Place) {
        self.state().hold = Hold::GivenUp(Box::new(place));
    }

    /// Gives the descriptor up if an open file can be used instead.
    pub(crate) fn give_up_to_open(&self) -> bool {
        let mut state = self.state();
        let Some(open) = state.open.upgrade() else {
            return false;
        };
        state.hold = Hold::Open(open);
        true
    }

    /// The inode was opened.
    pub(crate) fn opened(&self, fd: &Arc<OwnedFd>) {
        self.state().open = Arc::downgrade(fd);
    }

    /// An open file of the inode is about to be closed. Returns true if it is used in place of the
    /// descriptor.
    pub(crate) fn closes(&self, fd: &Arc<OwnedFd>) -> bool {
        let mut state = self.state();
        if std::ptr::eq(state.open.as_ptr(), Arc::as_ptr(fd)) {
            state.open = Weak::new();
        }
        matches!(&state.hold, Hold::Open(open) if Arc::ptr_eq(open, fd))
    }

    /// Sets the place at which to find the node again, if its descriptor was given up.
    pub(crate) fn is_at(&self, place: Place) {
        if let Hold::GivenUp(old) = &mut self.state().hold {
            **old = place;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
