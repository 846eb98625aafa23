//! Which processes programs tell of.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::{Kind, Map};

/// Processes that may be followed at a time.
pub(crate) const MOST: u32 = 1 << 16;

/// Of a process in [`Followed`]: its calls have the numbers of this architecture.
const NATIVE: u64 = 0;
/// Those of another one.
pub(crate) const FOREIGN: u64 = 1;
/// Its last thread has begun to end it, and forks no more: who still does anything has got its id.
pub(crate) const OVER: u64 = 2;

/// The processes that programs tell of, by id, each with [`NATIVE`], [`FOREIGN`] or [`OVER`]. Whoever has it
/// may add to it, the programs as well: those that are told of forks need nobody to name the children.
#[derive(Clone, Debug)]
pub(crate) struct Followed(Arc<Map>);

impl Followed {
    /// Nobody yet.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn new() -> io::Result<Followed> {
        let map = Map::new(Kind::Hash, size_of::<u64>(), MOST)?;
        Ok(Followed(Arc::new(map)))
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
        let _ = self.0.put(pid, if foreign { &FOREIGN } else { &NATIVE });
    }

    /// Process `pid` is over, or of no interest any more: its id may become another one's.
    pub(crate) fn forget(&self, pid: u32) {
        self.0.remove(pid);
    }

    /// Whether `pid` is still the process that was followed. Takes no memory.
    pub(crate) fn is_alive(&self, pid: u32) -> bool {
        self.0.get(pid).is_ok_and(|[state]| state != OVER)
    }

    /// The process that comes after this one, in no order, or the first one. Takes no memory.
    pub(crate) fn next(&self, pid: Option<&u32>) -> Option<u32> {
        self.0.next_key(pid)
    }
}

impl AsFd for Followed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
