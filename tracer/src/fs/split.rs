//! Joins the requests into which the kernel cuts one read or write.
//!
//! A request spans at most a fixed number of pages of the caller's memory. A call on one buffer
//! therefore arrives as a first request that is the largest possible, or shorter by less than a
//! page if the buffer begins in the middle of one; then largest ones; then the rest; one after the
//! other and by one thread. A call on many buffers uses at least a page for each, and is cut
//! wherever its pages are used up.
//!
//! Several calls may look just like that. What the thread asked for tells them apart, and is
//! looked up ([`super::in_flight`]) where a request may be the first of several. Where that is not
//! possible, only what begins in the middle of a page is joined.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use flowtrace_schema::{Call, Fidelity, Op};

use super::in_flight::{Amount, Asked};

const PAGE: u64 = 4096;
/// Most bytes that the kernel transfers in one call.
const MOST: u64 = i32::MAX as u64 & !(PAGE - 1);
/// Smaller requests are not suspected of being part of a call on many buffers.
const SUSPECT: u64 = 16 << 10;
/// How many requests of an open file are suspected. Whoever uses many buffers does so at once.
const SUSPECTED: u8 = 2;
/// A call on many buffers was cut: all that may have been are suspected from now on.
const ALWAYS: u8 = u8::MAX;

/// The calls on one open file of which more may come.
#[derive(Debug)]
pub(crate) struct Split {
    waiting: AtomicBool,
    calls: Mutex<Vec<Begun>>,
    /// How many more requests to suspect, or [`ALWAYS`].
    suspected: AtomicU8,
}

/// What has come of a call.
#[derive(Debug)]
struct Begun {
    tid: u32,
    call: Call,
    rest: Rest,
}

/// What may still come of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// At most this many bytes.
    Bytes(u64),
    /// As long as the thread is in this very call.
    While(Asked),
    /// As long as requests are of the largest size: nobody knows better.
    Largest,
}

/// A request that was served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    /// The request as a call.
    pub(crate) call: Call,
    /// Thread that waits for the answer.
    pub(crate) tid: u32,
    /// Bytes of the largest request.
    pub(crate) largest: u64,
}

impl Served {
    /// Whether a call for `amount` may be more than the request: several buffers may have used up
    /// the pages of the largest one, each with a page in part at both of its ends.
    fn may_be_less_than(&self, amount: Amount) -> bool {
        let length = self.call.length.unwrap_or(0);
        match amount {
            Amount::Bytes(bytes) => bytes > length,
            Amount::Buffers(count) => {
                length / PAGE + count.saturating_mul(2) >= self.largest / PAGE
            }
        }
    }
}

impl Default for Split {
    fn default() -> Self {
        Split {
            waiting: AtomicBool::new(false),
            calls: Mutex::default(),
            suspected: AtomicU8::new(SUSPECTED),
        }
    }
}

impl Split {
    /// A request was served and is not yet answered. `look` finds the call in which the thread is
    /// ([`super::in_flight::of`]). Calls `record` with what is complete now: nothing, one call or
    /// two.
    pub(super) fn add(
        &self,
        served: Served,
        look: impl FnOnce(&dyn Fn(Amount) -> bool) -> Option<Asked>,
        mut record: impl FnMut(Call),
    ) {
        let begun = self.take(served.tid);
        let may_begin = self.may_begin(&served);
        if begun.is_none() && !may_begin {
            return record(served.call);
        }
        let next = match begun {
            Some(begun) if begun.adjoins(&served.call) => match begun.rest {
                Rest::Bytes(_) | Rest::Largest => begun.joined(&served),
                Rest::While(asked) => match look(&|_| true) {
                    found if found == Some(asked) => begun.joined(&served),
                    found => {
                        record(begun.call);
                        self.begin(&served, found)
                    }
                },
            },
            begun => {
                begun.into_iter().for_each(|begun| record(begun.call));
                if may_begin {
                    let found = look(&|amount| served.may_be_less_than(amount));
                    self.begin(&served, found)
                } else {
                    Next::Complete(served.call)
                }
            }
        };
        match next {
            Next::Complete(call) => record(call),
            Next::Open(begun) => {
                let mut calls = self.lock();
                calls.push(begun);
                self.waiting.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Thread `tid` closes the file: whatever call of its own was waiting is complete. Another
    /// thread may be in the middle of one, as when a child closes what it inherited.
    pub(super) fn closed_by(&self, tid: u32, record: impl FnMut(Call)) {
        let own = self.take(tid);
        own.into_iter().map(|begun| begun.call).for_each(record);
    }

    /// Nothing more will come: what waits is complete.
    pub(super) fn finish(&self, record: impl FnMut(Call)) {
        if self.waiting.swap(false, Ordering::Relaxed) {
            let calls = std::mem::take(&mut *self.lock());
            calls.into_iter().map(|begun| begun.call).for_each(record);
        }
    }

    /// What thread `tid` has begun. A thread finds its own as it waits for each answer.
    fn take(&self, tid: u32) -> Option<Begun> {
        if !self.waiting.load(Ordering::Relaxed) {
            return None;
        }
        let mut calls = self.lock();
        let at = calls.iter().position(|begun| begun.tid == tid)?;
        let begun = calls.swap_remove(at);
        self.waiting.store(!calls.is_empty(), Ordering::Relaxed);
        Some(begun)
    }

    /// Whether a request may be the first of several.
    fn may_begin(&self, served: &Served) -> bool {
        let call = &served.call;
        let length = call.length.unwrap_or(0);
        if !matches!(call.op, Op::Read | Op::Write) || call.fidelity != Fidelity::Exact {
            return false;
        }
        length > served.largest.saturating_sub(PAGE)
            || succeeded_whole(call) && self.suspects(length, served.largest)
    }

    /// Whether to suspect a request of being part of a call on many buffers.
    fn suspects(&self, length: u64, largest: u64) -> bool {
        match self.suspected.load(Ordering::Relaxed) {
            0 => false,
            // A cut one is at least a byte for each page.
            ALWAYS => length >= largest / PAGE,
            left if length >= SUSPECT => {
                self.suspected.store(left - 1, Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }

    /// The thread that made the request was found in a call, or not.
    fn begin(&self, served: &Served, found: Option<Asked>) -> Next {
        let Served { call, tid, largest } = *served;
        let length = call.length.unwrap_or(0);
        // A read elsewhere than in its call is not the first of it. Where a write begins, the end
        // of the file may decide.
        let is_first = |at| call.op == Op::Write || call.offset == Some(at);
        let (call, rest) = match found {
            Some(Asked::More {
                at,
                amount: Amount::Bytes(bytes),
            }) if is_first(at) && bytes > length => {
                let asked = Call {
                    length: Some(bytes),
                    ..call
                };
                (asked, Rest::Bytes(bytes.min(MOST).saturating_sub(length)))
            }
            Some(asked @ Asked::More { at, amount })
                if is_first(at) && served.may_be_less_than(amount) =>
            {
                (call, Rest::While(asked))
            }
            None if length > largest.saturating_sub(PAGE) && length < largest => {
                (call, Rest::Largest)
            }
            _ => return Next::Complete(call),
        };
        if length < largest.saturating_sub(PAGE) {
            self.suspected.store(ALWAYS, Ordering::Relaxed);
        }
        let goes_on = succeeded_whole(&served.call) && rest != Rest::Bytes(0);
        let begun = Begun { tid, call, rest };
        Next::after(begun, goes_on)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Begun>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether more may come of a call.
enum Next {
    Complete(Call),
    Open(Begun),
}

impl Next {
    fn after(begun: Begun, goes_on: bool) -> Next {
        if goes_on {
            Next::Open(begun)
        } else {
            Next::Complete(begun.call)
        }
    }
}

impl Begun {
    /// Whether a request of the same thread goes on where this ended.
    fn adjoins(&self, call: &Call) -> bool {
        let end = self
            .call
            .offset
            .map(|at| at + self.call.result.unsigned_abs());
        let fits = match self.rest {
            Rest::Bytes(left) => call.length.is_some_and(|length| length <= left),
            Rest::While(_) | Rest::Largest => true,
        };
        fits && self.call.op == call.op && self.call.fidelity == call.fidelity && end == call.offset
    }

    fn joined(self, served: &Served) -> Next {
        let Begun { tid, call, rest } = self;
        let piece = &served.call;
        let length = piece.length.unwrap_or(0);
        let end_ns = piece.start_ns + piece.duration_ns;
        let (asked, rest) = match rest {
            Rest::Bytes(left) => (0, Rest::Bytes(left - length.min(left))),
            rest => (length, rest),
        };
        let call = Call {
            duration_ns: end_ns.saturating_sub(call.start_ns),
            length: call.length.map(|before| before + asked),
            // A failure after the first piece shows as a short count, as the application sees it.
            result: call.result + piece.result.max(0),
            ..call
        };
        let goes_on = succeeded_whole(piece)
            && match rest {
                Rest::Bytes(left) => left > 0,
                Rest::While(_) => true,
                Rest::Largest => length == served.largest,
            };
        Next::after(Begun { tid, call, rest }, goes_on)
    }
}

fn succeeded_whole(call: &Call) -> bool {
    call.length.map(|length| length as i64) == Some(call.result)
}

#[cfg(test)]
mod tests;
