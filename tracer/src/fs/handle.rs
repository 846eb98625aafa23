//! Open files and directories: what a file handle of the kernel stands for.

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
    /// Its position, if that is shared with others outside of the view.
    pub(crate) position: Option<Arc<Position>>,
    /// Its opener: the kernel does not say which thread releases it.
    pub(crate) opener: Opener,
    /// Writes through it go to the end of the file (`O_APPEND`), as fcntl(2) may change.
    pub(crate) appends: AtomicBool,
    /// It was opened with `O_DIRECT`.
    pub(crate) is_direct: bool,
    /// The kernel opened it to run it, and reads from it by itself.
    pub(crate) is_program: bool,
    /// A shared mapping of it may store to the file, until it is released.
    pub(crate) may_store: bool,
    /// Writes through it come through the page cache that others of this mount read from, if there is one.
    pub(crate) may_write: bool,
    /// Something was written through it.
    pub(crate) wrote: AtomicBool,
    /// A call on it that arrives in pieces.
    pub(crate) split: Split,
    /// Ranges that the kernel has read through it, and may ask for again.
    pub(crate) again: Again,
}

impl OpenFile {
    /// Pages of a mapping can be written back through it: to where they belong, which is not the
    /// end of the file, and of any size, which `O_DIRECT` does not take.
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
    /// Keeps `open` and returns its number.
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

    /// Takes `number` out.
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
