//! The descriptor of a node, which may be given up while nobody needs it.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::inode::Node;

/// Descriptors of nodes that this process holds, over all its mounts.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Descriptors of nodes that this process holds.
pub(crate) fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Open files and directories of the workflow, over all mounts.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// A file or directory was opened.
pub(crate) fn opened() {
    OPEN.fetch_add(1, Ordering::Relaxed);
}

/// A file or directory was released.
pub(crate) fn closed() {
    OPEN.fetch_sub(1, Ordering::Relaxed);
}

/// Files and directories that the workflow has open.
pub(crate) fn open() -> usize {
    OPEN.load(Ordering::Relaxed)
}

/// An `O_PATH` descriptor of an inode, counted. It pins the inode: its number is not used again,
/// and renames and removals do not disturb it.
#[derive(Debug)]
pub(crate) struct Pin(OwnedFd);

impl Pin {
    pub(crate) fn new(fd: OwnedFd) -> Arc<Pin> {
        HELD.fetch_add(1, Ordering::Relaxed);
        Arc::new(Pin(fd))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsFd for Pin {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Pin {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Where a node is found again.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) directory: Arc<Node>,
    pub(crate) name: OsString,
}

/// A descriptor, or where to get one.
#[derive(Clone, Debug)]
pub(crate) enum Hold {
    Held(Arc<Pin>),
    /// An open file of the inode stands for it.
    Open(Arc<OwnedFd>),
    GivenUp(Box<Place>),
}

/// What a node has of its inode.
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
            hold: Hold::Held(Pin::new(fd)),
            open: Weak::new(),
        }))
    }

    /// What is there now.
    pub(crate) fn hold(&self) -> Hold {
        self.state().hold.clone()
    }

    /// The descriptor, if it was not given up.
    pub(crate) fn pin(&self) -> Option<Arc<Pin>> {
        match &self.state().hold {
            Hold::Held(pin) => Some(Arc::clone(pin)),
            Hold::Open(_) | Hold::GivenUp(_) => None,
        }
    }

    /// There is a descriptor again; the one to use, which another thread may have got first.
    pub(crate) fn found(&self, new: Arc<Pin>) -> Arc<Pin> {
        let hold = &mut self.state().hold;
        if let Hold::Held(pin) = hold {
            return Arc::clone(pin);
        }
        *hold = Hold::Held(Arc::clone(&new));
        new
    }

    /// Gives the descriptor up.
    pub(crate) fn give_up(&self, place: Place) {
        self.state().hold = Hold::GivenUp(Box::new(place));
    }

    /// Gives the descriptor up if an open file can stand for it.
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

    /// An open file of the inode is about to be closed. Whether it stands for the descriptor.
    pub(crate) fn closes(&self, fd: &Arc<OwnedFd>) -> bool {
        let mut state = self.state();
        if std::ptr::eq(state.open.as_ptr(), Arc::as_ptr(fd)) {
            state.open = Weak::new();
        }
        matches!(&state.hold, Hold::Open(open) if Arc::ptr_eq(open, fd))
    }

    /// Where to find the node again, if its descriptor was given up.
    pub(crate) fn is_at(&self, place: Place) {
        if let Hold::GivenUp(old) = &mut self.state().hold {
            **old = place;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
