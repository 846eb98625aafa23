//! The locks of one file.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::lock::{Lock, Space};
use super::outside::Outside;

/// End of the wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// When the lock is free, or the request with this number is interrupted.
    Request(u64),
    /// At this time. The request is not to wait, but the open files in its way may be closed already.
    Closing(Instant),
}

/// A request that waits for a lock.
#[derive(Debug)]
pub(super) struct Waiter<W> {
    pub(super) wait: Wait,
    pub(super) wanted: Lock,
    pub(super) waiter: W,
}

/// The locks of a file, sorted by their first byte, and the waiting requests.
#[derive(Debug)]
pub(super) struct FileLocks<W> {
    pub(super) held: Vec<Lock>,
    pub(super) waiting: VecDeque<Waiter<W>>,
    /// Open files with locks of which a descriptor was closed, and the time until which the kernel may still
    /// release them.
    closing: Vec<(u64, Instant)>,
    /// The locks for processes that do not use the mount.
    outside: Option<Outside>,
}

impl<W> Default for FileLocks<W> {
    fn default() -> FileLocks<W> {
        FileLocks {
            held: Vec::new(),
            waiting: VecDeque::new(),
            closing: Vec::new(),
            outside: None,
        }
    }
}

impl<W> FileLocks<W> {
    pub(super) fn is_unused(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    /// A lock that conflicts with `wanted`.
    pub(super) fn conflict(&self, wanted: &Lock) -> Option<&Lock> {
        self.held.iter().find(|held| held.conflicts(wanted))
    }

    /// A descriptor of open file `fh` was closed; if it was the last one, the kernel releases the file before
    /// `until`.
    pub(super) fn close(&mut self, fh: u64, until: Instant) {
        self.closing.retain(|&(closing, _)| closing != fh);
        if self.held.iter().any(|held| held.fh == fh) {
            self.closing.push((fh, until));
        }
    }

    /// Time until which all locks that conflict with `wanted` may be released; `None` if one of them is not
    /// being closed.
    pub(super) fn closing_until(&self, wanted: &Lock) -> Option<Instant> {
        let now = Instant::now();
        let until = |held: &Lock| {
            let closing = self.closing.iter().find(|&&(fh, _)| fh == held.fh)?;
            Some(closing.1).filter(|&until| until > now)
        };
        let in_the_way = self.held.iter().filter(|held| held.conflicts(wanted));
        let all = in_the_way.map(until).collect::<Option<Vec<_>>>()?;
        all.into_iter().max()
    }

    /// Removes the requests that were not to wait, and whose time is over.
    pub(super) fn refuse(&mut self) -> Vec<W> {
        let now = Instant::now();
        let is_over =
            |waiter: &mut Waiter<W>| matches!(waiter.wait, Wait::Closing(until) if until <= now);
        let mut refused = Vec::new();
        while let Some(place) = self.waiting.iter_mut().position(is_over) {
            refused.extend(self.waiting.remove(place).map(|waiter| waiter.waiter));
        }
        refused
    }

    /// True if `wanted`, a lock of `space`, can be granted: no lock inside conflicts, and none outside. The
    /// lock is then taken outside, too: through `real`, unless another open file has the locks already.
    pub(super) fn take(
        &mut self,
        wanted: &Lock,
        space: Space,
        real: Option<BorrowedFd<'_>>,
    ) -> bool {
        if wanted.kind.is_some()
            && !self
                .outside
                .as_ref()
                .is_some_and(|now| now.can_hold(wanted))
            && let Some(mut other) = real.and_then(|real| Outside::through(real, space))
        {
            // The locks of the old description conflict with those of the new one.
            self.outside = None;
            for held in &self.held {
                other.take(held);
            }
            self.outside = Some(other);
        }
        self.conflict(wanted).is_none() && self.take_outside(wanted)
    }

    fn take_outside(&mut self, wanted: &Lock) -> bool {
        match &mut self.outside {
            Some(outside) => outside.take(wanted),
            None => true,
        }
    }

    /// A lock outside that conflicts with `wanted`. `real` is an open file of the process that asks.
    pub(super) fn conflict_outside(
        &self,
        wanted: &Lock,
        space: Space,
        real: Option<BorrowedFd<'_>>,
    ) -> Option<Lock> {
        match &self.outside {
            Some(outside) => outside.conflict(wanted),
            None => Outside::through(real?, space)?.conflict(wanted),
        }
    }

    /// True if a request waits only for locks outside, or for a time to pass.
    pub(super) fn must_be_retried(&self) -> bool {
        let is_free = |waiter: &Waiter<W>| self.conflict(&waiter.wanted).is_none();
        let is_timed = |waiter: &Waiter<W>| matches!(waiter.wait, Wait::Closing(_));
        self.waiting
            .iter()
            .any(|waiter| is_timed(waiter) || is_free(waiter))
    }

    /// Updates the locks of the real file to the present ones.
    pub(super) fn show(&mut self) {
        if let Some(outside) = &mut self.outside {
            outside.follow(&self.held);
        }
    }

    /// Sets the lock of an owner on the range of `new`; no other lock may conflict.
    pub(super) fn set(&mut self, new: Lock) {
        let (own, mut held): (Vec<Lock>, Vec<Lock>) =
            self.held.iter().partition(|held| held.owner == new.owner);
        let mut own: Vec<Lock> = own
            .into_iter()
            .flat_map(|held| without(held, &new))
            .collect();
        own.extend(new.kind.is_some().then_some(new));
        own.sort_by_key(|held| held.start);
        let mut merged: Vec<Lock> = Vec::with_capacity(own.len());
        for next in own {
            match merged.last_mut() {
                Some(last) if last.continues_as(&next) => last.end = last.end.max(next.end),
                _ => merged.push(next),
            }
        }
        held.extend(merged);
        held.sort_by_key(|held| held.start);
        self.held = held;
    }

    /// Grants the waiting requests that can have their locks now, in the order of arrival.
    pub(super) fn grant(&mut self) -> Vec<W> {
        let mut granted = Vec::new();
        for waiter in std::mem::take(&mut self.waiting) {
            if self.conflict(&waiter.wanted).is_some() || !self.take_outside(&waiter.wanted) {
                self.waiting.push_back(waiter);
            } else {
                self.set(waiter.wanted);
                granted.push(waiter.waiter);
            }
        }
        granted
    }
}

/// The parts of `held` outside the range of `new`.
fn without(held: Lock, new: &Lock) -> impl Iterator<Item = Lock> + use<> {
    let before = (held.start < new.start).then(|| Lock {
        end: held.end.min(new.start.saturating_sub(1)),
        ..held
    });
    let after = (held.end > new.end).then(|| Lock {
        start: held.start.max(new.end.saturating_add(1)),
        ..held
    });
    before.into_iter().chain(after)
}
