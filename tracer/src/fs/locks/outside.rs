//! The locks of a file for processes that do not use the mount: the real file is locked with the sum of the
//! locks inside, and locks outside conflict with those inside.
//!
//! The open file description of one application has the locks for all: records as its own (`F_OFD_SETLK` of
//! fcntl(2)), so that closing other descriptors here does not release them, and whole-file locks by flock(2),
//! which the standard library uses. Nothing here waits: a request that has to wait is retried
//! ([`super::Locks::retry`]).

use std::fs::{File, TryLockError};
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::lock::{END, Kind, Lock, Space};

/// A range with the strongest lock that any owner inside has on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    kind: Kind,
    start: u64,
    end: u64,
}

impl Part {
    fn of(held: &Lock) -> Option<Part> {
        Some(Part {
            kind: held.kind?,
            start: held.start,
            end: held.end,
        })
    }

    fn meets(&self, start: u64, end: u64) -> bool {
        self.start <= end && start <= self.end
    }
}

/// The real file's locks of one space.
#[derive(Debug)]
pub(super) struct Outside {
    file: File,
    may_write: bool,
    space: Space,
    /// Upper bound of the locks of the real file.
    parts: Vec<Part>,
}

impl Outside {
    /// Locks through an open file of an application. `None` if no descriptor is left; processes outside then
    /// do not see the locks.
    pub(super) fn through(file: BorrowedFd<'_>, space: Space) -> Option<Outside> {
        let flags = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL).ok()?);
        Some(Outside {
            file: file.try_clone_to_owned().ok()?.into(),
            may_write: flags & OFlag::O_ACCMODE != OFlag::O_RDONLY,
            space,
            parts: Vec::new(),
        })
    }

    /// True if such a lock is possible: record locks for writing need a file that is open for writing.
    pub(super) fn can_hold(&self, wanted: &Lock) -> bool {
        self.may_write || self.space == Space::Whole || wanted.kind != Some(Kind::Write)
    }

    /// Locks the real file for an owner inside, which has no conflict there. Returns false if a lock outside
    /// conflicts.
    pub(super) fn take(&mut self, wanted: &Lock) -> bool {
        let Some(part) = Part::of(wanted) else {
            return true;
        };
        let taken = self.set(Some(part.kind), part.start, part.end);
        self.parts.push(part);
        // On a filesystem without locks no process has one.
        !matches!(taken, Err(Errno::EAGAIN | Errno::EACCES))
    }

    /// Releases the locks that no owner in `held` has any more.
    pub(super) fn follow(&mut self, held: &[Lock]) {
        let parts = sum(held);
        if parts == self.parts {
            return;
        }
        // A weaker lock than before is always granted; a new one was taken before.
        for part in parts.iter().filter(|part| !self.parts.contains(part)) {
            let _ = self.set(Some(part.kind), part.start, part.end);
        }
        let mut from = Some(0);
        for part in &parts {
            if let Some(end) = part.start.checked_sub(1) {
                self.give_up(from, end);
            }
            from = part.end.checked_add(1);
        }
        self.give_up(from, u64::MAX);
        self.parts = parts;
    }

    /// A lock outside that conflicts with `wanted`.
    pub(super) fn conflict(&self, wanted: &Lock) -> Option<Lock> {
        let kind = wanted.kind.filter(|_| self.space == Space::Record)?;
        let mut lock = record(Some(kind), wanted.start, wanted.end);
        fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut lock)).ok()?;
        let kind = match i32::from(lock.l_type) {
            libc::F_RDLCK => Kind::Read,
            libc::F_WRLCK => Kind::Write,
            _ => return None,
        };
        let start = lock.l_start as u64;
        let end = match lock.l_len {
            0 => END,
            length => start + length as u64 - 1,
        };
        Some(Lock {
            owner: 0,
            fh: 0,
            pid: u32::try_from(lock.l_pid).unwrap_or(0),
            kind: Some(kind),
            start,
            end,
        })
    }

    fn give_up(&self, start: Option<u64>, end: u64) {
        if let Some(start) = start.filter(|&start| start <= end)
            && self.parts.iter().any(|part| part.meets(start, end))
        {
            let _ = self.set(None, start, end);
        }
    }

    fn set(&self, kind: Option<Kind>, start: u64, end: u64) -> Result<(), Errno> {
        match self.space {
            Space::Record => {
                let lock = record(kind, start, end);
                fcntl(&self.file, FcntlArg::F_OFD_SETLK(&lock)).map(drop)
            }
            Space::Whole => {
                let refused = |error: TryLockError| match error {
                    TryLockError::WouldBlock => Errno::EAGAIN,
                    TryLockError::Error(error) => {
                        Errno::from_raw(error.raw_os_error().unwrap_or(0))
                    }
                };
                match kind {
                    Some(Kind::Write) => self.file.try_lock().map_err(refused),
                    Some(Kind::Read) => self.file.try_lock_shared().map_err(refused),
                    None => self
                        .file
                        .unlock()
                        .map_err(|error| refused(TryLockError::Error(error))),
                }
            }
        }
    }
}

impl Drop for Outside {
    /// The description is that of the application's open file, which may live on.
    fn drop(&mut self) {
        self.follow(&[]);
    }
}

fn record(kind: Option<Kind>, start: u64, end: u64) -> libc::flock {
    libc::flock {
        l_type: match kind {
            Some(Kind::Read) => libc::F_RDLCK,
            Some(Kind::Write) => libc::F_WRLCK,
            None => libc::F_UNLCK,
        } as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start.min(END) as i64,
        // 0 means to the end of the file.
        l_len: match end {
            END.. => 0,
            end => (end - start + 1) as i64,
        },
        l_pid: 0,
    }
}

/// The strongest lock of each byte, in ranges as long as possible.
fn sum(held: &[Lock]) -> Vec<Part> {
    let parts: Vec<Part> = held.iter().filter_map(Part::of).collect();
    let ends = parts.iter().filter_map(|part| part.end.checked_add(1));
    let mut bounds: Vec<u64> = parts.iter().map(|part| part.start).chain(ends).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let nexts = bounds.iter().skip(1).map(|next| next - 1);
    let ranges = bounds.iter().zip(nexts.chain([u64::MAX]));
    let mut sum: Vec<Part> = Vec::new();
    for (&start, end) in ranges {
        let mut kinds = parts.iter().filter(|part| part.meets(start, start));
        let Some(first) = kinds.next() else { continue };
        let is_written = first.kind == Kind::Write || kinds.any(|part| part.kind == Kind::Write);
        let kind = if is_written { Kind::Write } else { Kind::Read };
        match sum.last_mut() {
            Some(last) if last.kind == kind && last.end.checked_add(1) == Some(start) => {
                last.end = end;
            }
            _ => sum.push(Part { kind, start, end }),
        }
    }
    sum
}

#[cfg(test)]
mod tests;
