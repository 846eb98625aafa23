//! Open files and directories: the objects behind the kernel's file handles.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;

use super::again::Again;
use super::node::Node;
use super::offers::Position;
use super::passthrough::stream::Stream;
use super::split::Split;
use crate::callers::Caller;
use nix::Result;

/// Thread that opened something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opener {
    pub(crate) caller: Option<Caller>,
    /// The thread, which may be one of this process.
    pub(crate) tid: u32,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The real file, opened with the access mode of the application.
    pub(crate) fd: Arc<OwnedFd>,
    /// Its node.
    pub(crate) node: Arc<Node>,
    /// Its position, if that is shared with processes outside of the mount.
    pub(crate) position: Option<Arc<Position>>,
    /// Its opener: the kernel does not say which thread releases it.
    pub(crate) opener: Opener,
    /// True if writes through it go to the end of the file (`O_APPEND`), which fcntl(2) may change.
    pub(crate) appends: AtomicBool,
    /// True if it was opened with `O_DIRECT`.
    pub(crate) is_direct: bool,
    /// True if the kernel opened it to execute it, and reads from it by itself.
    pub(crate) is_program: bool,
    /// True if a shared mapping of it may store to the file, until it is released.
    pub(crate) may_store: bool,
    /// True if writes through it go through the page cache that other processes of this mount read, if there
    /// is one.
    pub(crate) may_write: bool,
    /// True if something was written through it.
    pub(crate) wrote: AtomicBool,
    /// A call on it that arrives in pieces.
    pub(crate) split: Split,
    /// Ranges that the kernel has read through it, and may request again.
    pub(crate) again: Again,
}

impl OpenFile {
    /// True if pages of a mapping can be written back through it. They go to their own place, which is not
    /// the end of the file, and are of any size, which `O_DIRECT` does not accept.
    pub(crate) fn takes_pages(&self) -> bool {
        !self.is_direct && !self.appends.load(Ordering::Relaxed)
    }
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    /// The real directory and the position in it.
    pub(crate) stream: Mutex<Stream>,
    /// Its node.
    pub(crate) node: Arc<Node>,
    /// Its opener.
    pub(crate) opener: Opener,
}

const SHARDS: usize = 16;

/// Handles by number. Numbers are never reused.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    shards: [Mutex<HashMap<u64, Arc<T>>>; SHARDS],
    next: AtomicU64,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Handles {
            shards: std::array::from_fn(|_| Mutex::default()),
            next: AtomicU64::new(1),
        }
    }
}

impl<T> Handles<T> {
    /// Stores `open` and returns its number.
    pub(crate) fn insert(&self, open: Arc<T>) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(number).insert(number, open);
        number
    }

    /// The open file or directory with this number.
    pub(crate) fn get(&self, number: u64) -> Result<Arc<T>> {
        let found = self.shard(number).get(&number).map(Arc::clone);
        found.ok_or(Errno::EBADF)
    }

    /// Removes `number`.
    pub(crate) fn remove(&self, number: u64) -> Result<Arc<T>> {
        self.shard(number).remove(&number).ok_or(Errno::EBADF)
    }

    /// All numbers in use.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let numbers = |shard: &Mutex<HashMap<u64, _>>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.keys().copied().collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(numbers).collect()
    }

    fn shard(&self, number: u64) -> MutexGuard<'_, HashMap<u64, Arc<T>>> {
        let shard = &self.shards[number as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_not_reused() {
        let handles = Handles::default();
        let first = handles.insert(Arc::new('a'));
        assert_eq!(handles.get(first).as_deref(), Ok(&'a'));
        assert_eq!(handles.remove(first).as_deref(), Ok(&'a'));
        assert_eq!(handles.get(first), Err(Errno::EBADF));
        assert_ne!(handles.insert(Arc::new('b')), first);
    }
}
