//! Which processes programs tell of.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::code::{ATOMIC_64, Code, MEMORY_OF_MAP, R1, R2};
use super::mapped::Mapped;
use super::{Kind, Map};

/// Processes that may be followed at a time.
pub(crate) const MOST: u32 = 1 << 16;

/// Of a process in [`Followed`]: its calls have the numbers of this architecture.
pub(crate) const NATIVE: u64 = 0;
/// Those of another one.
pub(crate) const FOREIGN: u64 = 1;
/// Its last thread has begun to end it, and forks no more: who still does anything has got its id.
pub(crate) const OVER: u64 = 2;

/// The processes that programs tell of, by id, each with [`NATIVE`], [`FOREIGN`] or [`OVER`]. Whoever has it
/// may add to it, the programs as well: those that are told of forks need nobody to name the children.
#[derive(Clone, Debug)]
pub(crate) struct Followed(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    processes: Map,
    /// How often one stopped to be [`NATIVE`]: who was before need not be looked up again as long as this is the same.
    changes: Mapped,
}

/// What programs need to know of [`Followed`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processes<'a> {
    pub(crate) all: BorrowedFd<'a>,
    pub(crate) changes: BorrowedFd<'a>,
}

impl Followed {
    /// Nobody yet.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn new() -> io::Result<Followed> {
        Ok(Followed(Arc::new(Inner {
            processes: Map::new(Kind::Hash, size_of::<u64>(), MOST)?,
            changes: Mapped::new(size_of::<u64>(), 1)?,
        })))
    }

    /// Process `root`, and where programs are told of forks all that it forks.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn below(root: u32) -> io::Result<Followed> {
        let followed = Followed::new()?;
        followed.follow(root, false);
        Ok(followed)
    }

    /// Tells of process `pid` from now on. What finds no room is not told of.
    pub(crate) fn follow(&self, pid: u32, foreign: bool) {
        let kind = if foreign { &FOREIGN } else { &NATIVE };
        let _ = self.0.processes.put(pid, kind);
        if foreign {
            self.changed();
        }
    }

    /// Process `pid` is over, or of no interest any more: its id may become another one's.
    pub(crate) fn forget(&self, pid: u32) {
        self.0.processes.remove(pid);
        self.changed();
    }

    fn changed(&self) {
        self.0.changes.word(0).fetch_add(1, Ordering::Release);
    }

    /// For programs that are made.
    pub(crate) fn for_programs(&self) -> Processes<'_> {
        Processes {
            all: self.0.processes.as_fd(),
            changes: self.0.changes.as_fd(),
        }
    }

    /// Whether `pid` is still the process that was followed. Takes no memory.
    pub(crate) fn is_alive(&self, pid: u32) -> bool {
        self.0.processes.get(pid).is_ok_and(|[state]| state != OVER)
    }

    /// The process that comes after this one, in no order, or the first one. Takes no memory.
    pub(crate) fn next(&self, pid: Option<&u32>) -> Option<u32> {
        self.0.processes.next_key(pid)
    }
}

impl Code {
    /// A process stopped to be [`NATIVE`].
    pub(crate) fn changed(&mut self, processes: Processes<'_>) {
        self.map(R1, MEMORY_OF_MAP, processes.changes);
        self.set(R2, 1);
        self.put(ATOMIC_64, R1, R2, 0, 0);
    }
}
