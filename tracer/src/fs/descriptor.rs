//! `O_PATH` descriptors of inodes, and the numbers of these and of open files in this process.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of open descriptors of nodes, over all mounts of this process.
static PINNED: AtomicUsize = AtomicUsize::new(0);

/// Number of open descriptors of nodes in this process.
pub(crate) fn pinned() -> usize {
    PINNED.load(Ordering::Relaxed)
}

/// Number of open files and directories of the workflow, over all mounts.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// A file or directory was opened.
pub(crate) fn opened() {
    OPEN.fetch_add(1, Ordering::Relaxed);
}

/// A file or directory was released.
pub(crate) fn closed() {
    OPEN.fetch_sub(1, Ordering::Relaxed);
}

/// Number of files and directories that the workflow has open.
pub(crate) fn open() -> usize {
    OPEN.load(Ordering::Relaxed)
}

/// An `O_PATH` descriptor of an inode, counted. It pins the inode: its number is not reused, and renames and
/// removals do not affect it.
#[derive(Debug)]
pub(crate) struct Pin(OwnedFd);

impl Pin {
    pub(crate) fn new(fd: OwnedFd) -> Arc<Pin> {
        PINNED.fetch_add(1, Ordering::Relaxed);
        Arc::new(Pin(fd))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        PINNED.fetch_sub(1, Ordering::Relaxed);
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
