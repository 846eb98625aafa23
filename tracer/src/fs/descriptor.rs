//! `O_PATH` descriptors of inodes, and how many of them and of open files there are in this process.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
