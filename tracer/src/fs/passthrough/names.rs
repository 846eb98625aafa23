//! Locks on the names of a directory. No change may come between the use of a name and its record; otherwise
//! the trace would keep a name that is gone, or lose one that exists.
//!
//! The kernel changes the names of a directory one after the other, but it may look up a name that it has
//! seen before at any time. So a request waits for the lock of a directory only when a lookup meets a change,
//! as on the real directory. The lock is taken before the credentials of a caller.

use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard};

use crate::fs::node::Node;

impl Node {
    /// Lock for reading names in this directory.
    pub(super) fn read_names(&self) -> RwLockReadGuard<'_, ()> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lock for making or removing a name in this directory.
    pub(super) fn change_names(&self) -> RwLockWriteGuard<'_, ()> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Locks for moving a name from one directory to another, or within one.
pub(super) fn change_both<'a>(
    from: &'a Node,
    to: &'a Node,
) -> (RwLockWriteGuard<'a, ()>, Option<RwLockWriteGuard<'a, ()>>) {
    if from.id == to.id {
        return (from.change_names(), None);
    }
    // Always in the same order: two renames may go in opposite directions.
    let (first, second) = if from.id < to.id {
        (from, to)
    } else {
        (to, from)
    };
    let first = first.change_names();
    (first, Some(second.change_names()))
}
