//! The processes that eBPF programs trace.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::mapped::Mapped;
use super::object::Use;
use super::{Kind, Map};

/// Most processes that are traced at a time (`max_entries` of `traced_pids` in tracer/bpf/common.bpf.h).
pub(crate) const MOST: u32 = 1 << 16;

/// Bytes of `struct begun_call` of tracer/bpf/events.h.
const BEGUN_CALL: usize = 16;

/// State of a process in [`TracedPids`] (`enum pid_state` of tracer/bpf/events.h).
const ALIVE: u64 = 0;
/// Its last thread has begun to exit: a process that still acts under this id is another one.
const EXITED: u64 = 1;

/// The traced processes, by id, each with its state. Programs that see forks add the children themselves.
#[derive(Clone, Debug)]
pub(crate) struct TracedPids(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    processes: Map,
    /// Number of processes that are no longer traced: as long as it stays the same, a process that was need not be
    /// looked up again.
    changes: Mapped,
    /// When the last call of each thread that names a file began: one program knows that, another one reports it.
    begun_calls: Map,
}

impl TracedPids {
    /// No process.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn new() -> io::Result<TracedPids> {
        Ok(TracedPids(Arc::new(Inner {
            processes: Map::new(Kind::Hash, size_of::<u64>(), MOST)?,
            changes: Mapped::new(size_of::<u64>(), 1)?,
            begun_calls: Map::new(Kind::Hash, BEGUN_CALL, MOST)?,
        })))
    }

    /// Process `root`, and all its descendants where programs see forks.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn below(root: u32) -> io::Result<TracedPids> {
        let traced = TracedPids::new()?;
        traced.follow(root);
        Ok(traced)
    }

    /// Traces process `pid` from now on, unless the map is full.
    pub(crate) fn follow(&self, pid: u32) {
        let _ = self.0.processes.put(pid, &ALIVE);
    }

    /// Stops tracing process `pid`: its id may be used again.
    pub(crate) fn forget(&self, pid: u32) {
        self.0.processes.remove(pid);
        self.0.changes.word(0).fetch_add(1, Ordering::Release);
    }

    /// The maps of these processes in an object, by their names there.
    pub(crate) fn uses(&self) -> [(&'static str, Use<'_>); 3] {
        [
            ("begun_calls", Use::Shared(self.0.begun_calls.as_fd())),
            ("traced_pids", Use::Shared(self.0.processes.as_fd())),
            (".bss.pid_changes", Use::Shared(self.0.changes.as_fd())),
        ]
    }

    /// The map of the processes.
    pub(crate) fn map(&self) -> BorrowedFd<'_> {
        self.0.processes.as_fd()
    }

    /// True if `pid` is still the traced process. Allocates no memory.
    pub(crate) fn is_alive(&self, pid: u32) -> bool {
        self.0
            .processes
            .get(pid)
            .is_ok_and(|[state]| state != EXITED)
    }

    /// The process after `pid`, in no order, or the first one. Allocates no memory.
    pub(crate) fn next(&self, pid: Option<&u32>) -> Option<u32> {
        self.0.processes.next_key(pid)
    }
}
