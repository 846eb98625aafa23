//! What is found under a name and what is recorded of it must not be told apart by a change in
//! between, or the trace would keep a name that is gone, or lose one that is there.
//!
//! The kernel changes the names of a directory one after the other, but it looks at a name it has
//! seen before at any time. So the lock of a directory is waited for only where a lookup meets a
//! change, as on the real directory. It is taken before the credentials of a caller are.

use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard};

use crate::fs::node::Node;

impl Node {
    /// While names in this directory are looked at.
    pub(super) fn look_at_names(&self) -> RwLockReadGuard<'_, ()> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// While a name in this directory is made or removed.
    pub(super) fn change_names(&self) -> RwLockWriteGuard<'_, ()> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While a name moves from one directory to another, or within one.
pub(super) fn change_both<'a>(
    from: &'a Node,
    to: &'a Node,
) -> (RwLockWriteGuard<'a, ()>, Option<RwLockWriteGuard<'a, ()>>) {
    if from.id == to.id {
        return (from.change_names(), None);
    }
    // Always the same one first: two renames may go in opposite directions.
    let (first, second) = if from.id < to.id {
        (from, to)
    } else {
        (to, from)
    };
    let first = first.change_names();
    (first, Some(second.change_names()))
}
