//! Open files that the command inherits, such as those of a shell's `< in > out`.
//!
//! They were opened outside of the mount. So that their reads and writes are seen, the command gets the same
//! files opened through the mount instead. Behind such a handle is the inherited open file itself, not
//! another one: a process that shares it, such as the rest of a script that writes to the same log, shares
//! its position, and must go on doing so.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::unistd::{Whence, lseek, read, write};

use nix::Result;

/// The position of an inherited open file.
#[derive(Debug)]
pub(crate) struct Position {
    /// Position after the last call through the mount, as the kernel counts for the mount's own handle. The
    /// true position differs from it once a process outside of the mount reads or writes.
    last: AtomicU64,
    moving: Mutex<()>,
}

impl Position {
    /// A position whose handle in the mount begins at `at`, the position of the inherited file.
    pub(crate) fn new(at: u64) -> Arc<Position> {
        Arc::new(Position {
            last: AtomicU64::new(at),
            moving: Mutex::default(),
        })
    }

    /// Position after the last call through the mount.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Makes a read of the application at `offset` of its handle.
    pub(super) fn read(&self, file: &OwnedFd, offset: i64, buffer: &mut [u8]) -> Result<usize> {
        self.call(file, offset, || read(file, buffer))
    }

    /// Makes a write of the application at `offset` of its handle.
    pub(super) fn write(&self, file: &OwnedFd, offset: i64, data: &[u8]) -> Result<usize> {
        self.call(file, offset, || write(file, data))
    }

    /// Makes a call. If it goes on where the last one ended, it uses the present true position; otherwise it
    /// seeks to its offset first.
    fn call(
        &self,
        file: &OwnedFd,
        offset: i64,
        act: impl FnOnce() -> Result<usize>,
    ) -> Result<usize> {
        let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        if offset as u64 != self.last() {
            lseek(file.as_fd(), offset, Whence::SeekSet)?;
        }
        let done = act()?;
        self.last
            .store(offset as u64 + done as u64, Ordering::Release);
        Ok(done)
    }
}

/// An inherited file that is to be opened through the mount.
#[derive(Debug)]
pub(crate) struct Offer {
    /// Thread that will open it.
    pub(crate) tid: u32,
    /// `st_dev` and `st_ino`.
    pub(crate) inode: (u64, u64),
    /// Access mode, as in the flags of open(2).
    pub(crate) access: i32,
    /// The inherited open file.
    pub(crate) file: OwnedFd,
    pub(crate) position: Arc<Position>,
}

/// The files that the mounts of a run are about to get opens for.
#[derive(Debug, Default)]
pub struct Offers {
    any: AtomicBool,
    offers: Mutex<Vec<Offer>>,
}

impl Offers {
    /// Thread `offer.tid` is about to open that file.
    pub(crate) fn add(&self, offer: Offer) {
        self.offers().push(offer);
        self.any.store(true, Ordering::Release);
    }

    /// Removes the offers that are left: they will not be opened.
    pub(crate) fn withdraw(&self) {
        self.any.store(false, Ordering::Release);
        self.offers().clear();
    }

    /// The inherited file that thread `tid` opens, if it is one.
    pub(super) fn take(&self, tid: u32, inode: (u64, u64), flags: i32) -> Option<Offer> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut offers = self.offers();
        let access = flags & libc::O_ACCMODE;
        let at = offers
            .iter()
            .position(|offer| (offer.tid, offer.inode, offer.access) == (tid, inode, access))?;
        Some(offers.remove(at))
    }

    fn offers(&self) -> MutexGuard<'_, Vec<Offer>> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn a_position_is_shared_with_those_outside() {
        let mut file = tempfile::tempfile().unwrap();
        let inherited: OwnedFd = file.try_clone().unwrap().into();
        file.write_all(b"before ").unwrap();
        let position = Position::new(7);
        position.write(&inherited, 7, b"inside ").unwrap();
        file.write_all(b"outside ").unwrap();
        // The application does not see that and goes on at its own position.
        position.write(&inherited, 14, b"inside").unwrap();
        assert_eq!(position.last(), 20);
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "before inside outside inside");
        // A seek of the application counts.
        let mut word = [0; 6];
        assert_eq!(position.read(&inherited, 7, &mut word), Ok(6));
        assert_eq!(&word, b"inside");
        assert_eq!(file.stream_position().unwrap(), 13);
    }

    #[test]
    fn an_offer_is_for_one_open_of_one_thread() {
        let offers = Offers::default();
        let offer = || Offer {
            tid: 5,
            inode: (1, 2),
            access: libc::O_WRONLY,
            file: tempfile::tempfile().unwrap().into(),
            position: Position::new(0),
        };
        assert!(offers.take(5, (1, 2), libc::O_WRONLY).is_none());
        offers.add(offer());
        for (tid, inode, flags) in [(4, 2, 1), (5, 3, 1), (5, 2, 0)] {
            assert!(offers.take(tid, (1, inode), flags).is_none());
        }
        let flags = libc::O_WRONLY | libc::O_APPEND;
        assert!(offers.take(5, (1, 2), flags).is_some());
        assert!(offers.take(5, (1, 2), flags).is_none());
        offers.add(offer());
        offers.withdraw();
        assert!(offers.take(5, (1, 2), flags).is_none());
    }
}
