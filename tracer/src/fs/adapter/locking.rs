//! Requests about locks.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowtrace_schema::Op;
use nix::errno::Errno;

use super::waiting::Waiting;
use super::{Adapter, Request, signals};
use crate::callers::Effort;
use crate::fs::handle::OpenFile;
use crate::fs::locks::{END, Ended, Kind, Lock, Space, Subject};
use crate::fs::log::{Event, done};
use crate::fs::protocol::Reply;
use crate::fs::protocol::abi::{self, LK_FLOCK};
use nix::Result;

/// Time that the release of an open file may take after the close of its last descriptor. The kernel does not
/// wait for the release, so another program that knows of the close may request the lock first.
const RELEASE: Duration = Duration::from_millis(100);

/// The lock of a request.
fn wanted(lock: &abi::LkIn) -> Result<Lock> {
    let kind = match lock.kind {
        libc::F_RDLCK => Some(Kind::Read),
        libc::F_WRLCK => Some(Kind::Write),
        libc::F_UNLCK => None,
        _ => return Err(Errno::EINVAL),
    };
    // The kernel sends no such range; everything behind this depends on it.
    if lock.start > lock.end {
        return Err(Errno::EINVAL);
    }
    Ok(Lock {
        owner: lock.owner,
        fh: lock.fh,
        pid: lock.pid,
        kind,
        start: lock.start,
        end: lock.end,
    })
}

fn subject(open: &OpenFile, lock: &abi::LkIn) -> Subject {
    let space = if lock.lk_flags & LK_FLOCK != 0 {
        Space::Whole
    } else {
        Space::Record
    };
    Subject {
        node: open.node.id,
        space,
    }
}

/// The flags column is the type of lock in the numbering of `fcntl`. Offset and length are the range; a range
/// to the end of the file has no length.
fn event(op: Op, open: Option<&Arc<OpenFile>>, lock: &abi::LkIn) -> Event {
    let event = Event::new(op, open.and_then(|open| open.node.recorded())).flags(lock.kind as u32);
    if lock.lk_flags & LK_FLOCK != 0 {
        return event;
    }
    let event = event.offset(lock.start);
    if lock.end >= END {
        return event;
    }
    event.length(lock.end.saturating_sub(lock.start).saturating_add(1))
}

/// Result of a request that no longer waits for its lock.
fn interrupted(waiting: Waiting) -> (Waiting, Result<()>) {
    (waiting, Err(Errno::EINTR))
}

impl Adapter {
    pub(super) fn test_lock(&self, req: &Request, lock: &abi::LkIn, reply: Reply<'_>) {
        let started = self.log.start(req.who.tid, Effort::Proc);
        let open = self.passthrough.file(lock.fh);
        let event = event(Op::Getlk, open.as_ref().ok(), lock);
        let result = open.and_then(|open| {
            let wanted = wanted(lock)?;
            let real = Some(open.fd.as_fd());
            Ok(self.locks.conflict(subject(&open, lock), &wanted, real))
        });
        self.log.end(started, event, done(&result));
        match result {
            Ok(None) => reply.body(&abi::LkOut {
                start: lock.start,
                end: lock.end,
                kind: libc::F_UNLCK,
                pid: 0,
            }),
            Ok(Some(held)) => reply.body(&abi::LkOut {
                start: held.start,
                end: held.end,
                kind: match held.kind {
                    Some(Kind::Write) => libc::F_WRLCK,
                    _ => libc::F_RDLCK,
                },
                pid: held.pid,
            }),
            Err(errno) => reply.error(errno),
        }
    }

    pub(super) fn set_lock(
        &self,
        req: &Request,
        lock: &abi::LkIn,
        may_wait: bool,
        reply: Reply<'_>,
    ) {
        let op = if lock.lk_flags & LK_FLOCK != 0 {
            Op::Flock
        } else {
            Op::Setlk
        };
        let started = self.log.start(req.who.tid, Effort::Proc);
        let open = self.passthrough.file(lock.fh);
        let event = event(op, open.as_ref().ok(), lock);
        let asked = open.and_then(|open| Ok((wanted(lock)?, open)));
        let reply = reply.later();
        let unique = reply.unique();
        let waiting = Waiting {
            started,
            event,
            reply,
        };
        let ended = match asked {
            Ok((wanted, open)) => {
                let (wait, real) = (may_wait.then_some(unique), open.fd.as_fd());
                let subject = subject(&open, lock);
                self.locks
                    .acquire(subject, wanted, waiting, wait, Some(real))
            }
            Err(errno) => vec![(waiting, Err(errno))],
        };
        let waits = ended
            .iter()
            .all(|(ended, _)| ended.reply.unique() != unique);
        self.end_waiting(ended);
        if waits {
            self.begin_waiting(unique, req.who.tid);
        }
    }

    /// Thread `tid` waits in request `unique` from now on. Changes that the kernel does not report are
    /// polled.
    fn begin_waiting(&self, unique: u64, tid: u32) {
        if self.locks.must_be_retried() {
            self.retries.begin();
        }
        // Over io_uring the kernel (6.18) does not report a signal that came before the request was passed to
        // us; it does report later ones.
        if self.shared.is_over_io_uring() && signals::is_pending(tid) {
            let waiting = self.locks.give_up(unique);
            self.end_waiting(waiting.map(interrupted).into_iter().collect());
        }
    }

    /// Tries again for requests that wait for changes that the kernel does not report. Returns true if any
    /// request still waits for those.
    pub(super) fn retry_locks(&self) -> bool {
        self.end_waiting(self.locks.retry());
        self.locks.must_be_retried()
    }

    /// A process closes a descriptor of open file `fh`: it gives up all its record locks on that file. Locks
    /// made through the open file end if no other descriptor is left, which the kernel reports later.
    pub(super) fn close_descriptor(&self, open: &OpenFile, fh: u64, owner: u64) {
        let node = open.node.id;
        let space = Space::Record;
        let subject = Subject { node, space };
        let ended = self.locks.release(subject, |held| held.owner == owner);
        self.end_waiting(ended);
        for space in [Space::Record, Space::Whole] {
            self.locks
                .close(Subject { node, space }, fh, Instant::now() + RELEASE);
        }
    }

    /// An open file was released, and the locks made through it end.
    pub(super) fn unlock_file(&self, open: &OpenFile, fh: u64) {
        for space in [Space::Record, Space::Whole] {
            let subject = Subject {
                node: open.node.id,
                space,
            };
            self.end_waiting(self.locks.release(subject, |held| held.fh == fh));
        }
    }

    /// The kernel cancels a request that may wait for a lock; no other request waits.
    pub(super) fn interrupt(&self, interrupt: abi::InterruptIn, reply: Reply<'_>) {
        reply.none();
        let waiting = self.locks.interrupt(interrupt.unique);
        self.end_waiting(waiting.map(interrupted).into_iter().collect());
    }

    fn end_waiting(&self, ended: Ended<Waiting>) {
        for (waiting, result) in ended {
            self.log.end(waiting.started, waiting.event, done(&result));
            waiting.reply.done(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_ends_before_it_begins_is_refused() {
        let lock = abi::LkIn {
            kind: libc::F_RDLCK,
            start: 2,
            end: 1,
            ..zerocopy::FromZeros::new_zeroed()
        };
        assert_eq!(wanted(&lock).err(), Some(Errno::EINVAL));
        assert!(wanted(&abi::LkIn { end: 2, ..lock }).is_ok());
    }
}
