//! Keeps the page cache of the mount from going stale in direct-passthrough.
//!
//! `sendfile` and `splice` read through that cache, while mappings go to the real file. What
//! such a read leaves behind must not be served again after a store through a mapping, so it is
//! dropped at once. Not by the thread that answers: the kernel holds the page locked until the
//! answer is there.

use std::sync::mpsc::Receiver;

use fuser::{INodeNo, Notifier};

/// Part of a file that the page cache of the mount should not keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stale {
    pub(super) ino: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Drops what arrives until nothing can arrive any more.
pub(super) fn run(notifier: &Notifier, stale: &Receiver<Stale>) {
    while let Ok(first) = stale.recv() {
        let mut last = first;
        // A large sendfile arrives in pieces; drop adjoining ones together.
        while let Ok(next) = stale.try_recv() {
            if next.ino == last.ino && next.offset == last.offset + last.length {
                last.length += next.length;
            } else {
                drop_pages(notifier, last);
                last = next;
            }
        }
        drop_pages(notifier, last);
    }
}

fn drop_pages(notifier: &Notifier, stale: Stale) {
    let offset = i64::try_from(stale.offset).unwrap_or(0);
    let length = i64::try_from(stale.length).unwrap_or(0);
    // Fails only when the kernel has dropped the inode, and its pages, already.
    let _ = notifier.inval_inode(INodeNo(stale.ino), offset, length);
}
