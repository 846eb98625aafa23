//! The process image that makes a file request: from the thread id in the request to a [`Upid`].

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use flowtrace_schema::{Tid, Upid};

/// Caller of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Process image.
    pub upid: Upid,
    /// Thread; `None` for the first thread of the process.
    pub tid: Option<Tid>,
}

/// Finds the caller for the thread id of a request. Called on the path of a waiting application.
pub trait Callers: Send + Sync {
    /// The process image that runs thread `tid` now, searched as far as `effort` allows; `None` if it is not
    /// known.
    fn resolve(&self, tid: u32, effort: Effort) -> Option<Caller>;
}

/// Sources that may be used to find the caller of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Tables alone. For requests that a process may make within an exec, which are those that close a file:
    /// the process then has a lock that most of its files in /proc need (`exec_update_lock` of the kernel),
    /// and releases it only after our answer.
    Tables,
    /// The tables, and /proc for a caller that is not known.
    Proc,
    /// As `Proc`; also notices an exec or a reused thread id that was not announced. For opens, not for reads
    /// and writes.
    Fresh,
}

/// A set of process images, empty in most runs, in which an image is searched on the path of a waiting
/// application.
#[derive(Debug, Default)]
pub(crate) struct Images {
    all: RwLock<HashSet<Upid>>,
    any: AtomicBool,
}

impl Images {
    /// Returns true if image `upid` is in the set.
    pub(crate) fn has(&self, upid: Upid) -> bool {
        let all = || self.all.read().unwrap_or_else(PoisonError::into_inner);
        self.any.load(Ordering::Acquire) && all().contains(&upid)
    }

    /// Adds an image; returns true if it is new.
    pub(crate) fn insert(&self, upid: Upid) -> bool {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = all.insert(upid);
        self.any.store(true, Ordering::Release);
        is_new
    }

    /// A process whose image is `of` has forked one whose image is `heir`, which then has the same property.
    pub(crate) fn inherit(&self, of: Upid, heir: Upid) {
        if self.has(of) {
            self.insert(heir);
        }
    }
}

/// Live threads by thread id, written by the process tracer and read by the file tracer without a lock: the
/// tracer changes an entry only while its thread is stopped.
#[derive(Debug)]
pub struct TaskTable {
    /// Indexed by tid: upid in the low half, 1 in the high half for a process's first thread.
    slots: Box<[AtomicU64]>,
}

/// Largest thread id of 64-bit Linux plus one (`PID_MAX_LIMIT` in include/linux/threads.h).
const SLOTS: usize = 4 * 1024 * 1024;
const FIRST_THREAD: u64 = 1 << 32;

impl TaskTable {
    /// An empty table. Only the pages of tids in use ever take memory.
    pub fn new() -> Self {
        // Zeroed allocation: the kernel provides the pages on first use.
        let slots = std::iter::repeat_with(|| AtomicU64::new(0))
            .take(SLOTS)
            .collect();
        TaskTable { slots }
    }

    /// Thread `tid` runs image `upid` from now on.
    pub fn set(&self, tid: u32, upid: Upid, first_thread: bool) {
        if let Some(slot) = self.slots.get(tid as usize) {
            let first = if first_thread { FIRST_THREAD } else { 0 };
            slot.store(u64::from(upid.0) | first, Ordering::Release);
        }
    }

    /// Thread `tid` has ended.
    pub fn clear(&self, tid: u32) {
        if let Some(slot) = self.slots.get(tid as usize) {
            slot.store(0, Ordering::Release);
        }
    }
}

impl Default for TaskTable {
    fn default() -> Self {
        TaskTable::new()
    }
}

impl Callers for TaskTable {
    #[inline]
    fn resolve(&self, tid: u32, _effort: Effort) -> Option<Caller> {
        let value = self.slots.get(tid as usize)?.load(Ordering::Acquire);
        let upid = value as u32;
        let tid = (value & FIRST_THREAD == 0).then_some(Tid(tid));
        (upid != 0).then_some(Caller {
            upid: Upid(upid),
            tid,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_first_threads_and_forgets_ended_ones() {
        let table = TaskTable::new();
        table.set(10, Upid(1), true);
        table.set(11, Upid(1), false);
        assert_eq!(
            table.resolve(10, Effort::Proc),
            Some(Caller {
                upid: Upid(1),
                tid: None
            })
        );
        assert_eq!(
            table.resolve(11, Effort::Proc),
            Some(Caller {
                upid: Upid(1),
                tid: Some(Tid(11))
            })
        );
        table.clear(11);
        assert_eq!(table.resolve(11, Effort::Proc), None);
        assert_eq!(table.resolve(u32::MAX, Effort::Proc), None);
    }
}
