//! Record and whole-file locks among the users of the mount, by the rules of `fcntl(2)` and `flock(2)`.
//!
//! For a plain filesystem the kernel keeps the locks by itself. Here they are kept so that each one is seen,
//! with the time that a process waited for it. A request that must wait is queued, and a release grants the
//! locks that have become free, in the order of arrival. Processes that lock the real files see these locks,
//! and theirs count here (`outside`).

use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::errno::Errno;

use nix::Result;

mod lock;
mod outside;
mod table;

pub(crate) use lock::{END, Kind, Lock, Space};
use table::{FileLocks, Wait, Waiter};

/// Number of remembered interrupts that came before their requests.
const EARLY: usize = 256;

/// Inode and kind of call of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    /// The inode.
    pub(crate) node: u64,
    /// `flock` and `fcntl` locks do not see each other.
    pub(crate) space: Space,
}

/// Requests whose call ends now, with their result: the lock, or `EAGAIN` (it is taken), `EDEADLK` (the wait
/// would never end) or `EINTR`.
pub(crate) type Ended<W> = Vec<(W, Result<()>)>;

/// All locks of a mount. `W` is the waiter.
#[derive(Debug)]
pub(crate) struct Locks<W> {
    state: Mutex<State<W>>,
    /// Number of files with locks, readable without the mutex: most files never have any.
    used: AtomicUsize,
}

#[derive(Debug)]
struct State<W> {
    files: HashMap<Subject, FileLocks<W>>,
    early: VecDeque<u64>,
}

impl<W> Default for Locks<W> {
    fn default() -> Locks<W> {
        let state = State {
            files: HashMap::new(),
            early: VecDeque::new(),
        };
        Locks {
            state: Mutex::new(state),
            used: AtomicUsize::new(0),
        }
    }
}

impl<W> Locks<W> {
    /// A lock of another owner that conflicts with `wanted`.
    ///
    /// `real` is the file as the application has it open; it is used to find locks of processes outside of
    /// the mount.
    pub(crate) fn conflict(
        &self,
        subject: Subject,
        wanted: &Lock,
        real: Option<BorrowedFd<'_>>,
    ) -> Option<Lock> {
        let state = self.state();
        let unused = FileLocks::default();
        let locks = state.files.get(&subject).unwrap_or(&unused);
        let inside = locks.conflict(wanted).copied();
        inside.or_else(|| locks.conflict_outside(wanted, subject.space, real))
    }

    /// Requests a lock on behalf of `waiter`, which may wait for it in request `wait`. Without such a request
    /// it waits only for open files that may be closed already. `real` is as for [`Locks::conflict`].
    pub(crate) fn acquire(
        &self,
        subject: Subject,
        wanted: Lock,
        waiter: W,
        wait: Option<u64>,
        real: Option<BorrowedFd<'_>>,
    ) -> Ended<W> {
        let mut state = self.state();
        let file = state.files.entry(subject).or_default();
        if subject.space == Space::Whole {
            // A change of a lock's kind releases the old lock first, even if the new one is refused: see
            // flock(2).
            let changes = |held: &Lock| held.owner == wanted.owner && held.kind != wanted.kind;
            file.held.retain(|held| !changes(held));
        }
        let is_free = file.take(&wanted, subject.space, real);
        let wait = match wait {
            _ if is_free => Ok(None),
            Some(unique) => match state.refusal(subject, &wanted, unique) {
                Some(errno) => Err(errno),
                None => Ok(Some(Wait::Request(unique))),
            },
            None => match file.closing_until(&wanted) {
                Some(until) => Ok(Some(Wait::Closing(until))),
                None => Err(Errno::EAGAIN),
            },
        };
        let file = state.files.entry(subject).or_default();
        let mut ended: Ended<W> = Vec::new();
        match wait {
            Err(errno) => ended.push((waiter, Err(errno))),
            Ok(Some(wait)) => file.waiting.push_back(Waiter {
                wait,
                wanted,
                waiter,
            }),
            Ok(None) => {
                file.set(wanted);
                ended.push((waiter, Ok(())));
            }
        }
        ended.extend(file.grant().into_iter().map(|waiter| (waiter, Ok(()))));
        self.settle(&mut state, subject);
        ended
    }

    /// Releases locks, and returns the waiters that get one.
    pub(crate) fn release(&self, subject: Subject, given: impl Fn(&Lock) -> bool) -> Ended<W> {
        if self.used.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut state = self.state();
        let Some(file) = state.files.get_mut(&subject) else {
            return Vec::new();
        };
        file.held.retain(|held| !given(held));
        let granted = file.grant();
        self.settle(&mut state, subject);
        granted.into_iter().map(|waiter| (waiter, Ok(()))).collect()
    }

    /// A descriptor of open file `fh` was closed. If it was the last one, the locks made through it end
    /// before `until`.
    pub(crate) fn close(&self, subject: Subject, fh: u64, until: Instant) {
        if self.used.load(Ordering::Acquire) != 0
            && let Some(file) = self.state().files.get_mut(&subject)
        {
            file.close(fh, until);
        }
    }

    /// Request `unique` was interrupted; returns its waiter.
    pub(crate) fn interrupt(&self, unique: u64) -> Option<W> {
        let mut state = self.state();
        let found = self.stop_waiting(&mut state, unique);
        if found.is_none() {
            // The request may be arriving in another thread at this instant.
            if state.early.len() == EARLY {
                state.early.pop_front();
            }
            state.early.push_back(unique);
        }
        found
    }

    /// Ends the wait of request `unique`, if it still waits.
    pub(crate) fn give_up(&self, unique: u64) -> Option<W> {
        self.stop_waiting(&mut self.state(), unique)
    }

    fn stop_waiting(&self, state: &mut State<W>, unique: u64) -> Option<W> {
        let (subject, waiter) = state.files.iter_mut().find_map(|(subject, file)| {
            let place = file
                .waiting
                .iter()
                .position(|w| w.wait == Wait::Request(unique))?;
            Some((*subject, file.waiting.remove(place)?.waiter))
        })?;
        self.settle(state, subject);
        Some(waiter)
    }

    /// True if a request waits for a lock outside of the mount, or for a time to pass.
    pub(crate) fn must_be_retried(&self) -> bool {
        let is_used = self.used.load(Ordering::Acquire) != 0;
        is_used && self.state().files.values().any(FileLocks::must_be_retried)
    }

    /// Requests that can be granted now that a lock outside is gone, and those whose time is over.
    pub(crate) fn retry(&self) -> Ended<W> {
        let mut state = self.state();
        let files = state.files.iter_mut();
        let wanted = files.filter(|(_, file)| file.must_be_retried());
        let subjects: Vec<Subject> = wanted.map(|(subject, _)| *subject).collect();
        let mut ended = Ended::new();
        for subject in subjects {
            if let Some(file) = state.files.get_mut(&subject) {
                ended.extend(file.grant().into_iter().map(|waiter| (waiter, Ok(()))));
                let refused = file.refuse().into_iter();
                ended.extend(refused.map(|waiter| (waiter, Err(Errno::EAGAIN))));
            }
            self.settle(&mut state, subject);
        }
        ended
    }

    /// Forgets a file without locks, and updates the locks of the real file for the others.
    fn settle(&self, state: &mut State<W>, subject: Subject) {
        match state.files.get_mut(&subject) {
            Some(file) if file.is_unused() => {
                state.files.remove(&subject);
            }
            Some(file) => file.show(),
            None => {}
        }
        self.used.store(state.files.len(), Ordering::Release);
    }

    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W> State<W> {
    /// The reason why `wanted` must not wait in request `unique`, if any.
    fn refusal(&mut self, subject: Subject, wanted: &Lock, unique: u64) -> Option<Errno> {
        if let Some(place) = self.early.iter().position(|&early| early == unique) {
            self.early.remove(place);
            return Some(Errno::EINTR);
        }
        self.would_deadlock(subject, wanted)
            .then_some(Errno::EDEADLK)
    }

    /// True if an owner whose lock conflicts waits, maybe through others, for the owner of `wanted`.
    fn would_deadlock(&self, subject: Subject, wanted: &Lock) -> bool {
        let mut seen = Vec::new();
        let mut ahead = self.blockers(subject, wanted);
        while let Some(owner) = ahead.pop() {
            if owner == wanted.owner {
                return true;
            }
            if seen.contains(&owner) {
                continue;
            }
            seen.push(owner);
            for (subject, file) in &self.files {
                let waits = |w: &&Waiter<W>| matches!(w.wait, Wait::Request(_));
                let waiting = file.waiting.iter().filter(waits);
                let own = waiting.filter(|w| w.wanted.owner == owner);
                ahead.extend(own.flat_map(|w| self.blockers(*subject, &w.wanted)));
            }
        }
        false
    }

    /// Owners of the locks that conflict with `wanted`. Only record locks are checked for circles, as in the
    /// kernel.
    fn blockers(&self, subject: Subject, wanted: &Lock) -> Vec<u64> {
        let file = self.files.get(&subject);
        let file = file.filter(|_| subject.space == Space::Record);
        let held = file.map_or(&[][..], |file| &file.held);
        let blocking = held.iter().filter(|held| held.conflicts(wanted));
        blocking.map(|held| held.owner).collect()
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
