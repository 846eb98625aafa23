//! Which processes programs tell of.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::{Kind, Map};

/// Processes that may be followed at a time.
pub(crate) const MOST: u32 = 1 << 16;

/// The processes that programs tell of, by id, each with 1 where its calls have the numbers of another architecture, else 0. Whoever has it
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
        let _ = self.0.put(pid, &u64::from(foreign));
    }

    /// Process `pid` is over, or of no interest any more: its id may become another one's.
    pub(crate) fn forget(&self, pid: u32) {
        self.0.remove(pid);
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
