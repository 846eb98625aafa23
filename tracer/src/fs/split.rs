//! Joins the requests into which the kernel cuts one read or write.
//!
//! A request spans at most a fixed number of pages of the caller's memory. A call on one buffer therefore
//! arrives as a first request that is the largest possible, or shorter by less than a page if the buffer
//! begins in the middle of one; then largest ones; then the rest; one after the other and by one thread. A
//! call on many buffers uses at least a page for each, and is cut wherever its pages are used up. A write
//! through the page cache of the mount is also cut where the page in which it begins ends, and wherever the
//! caller's memory continues in a page that is not there yet.
//!
//! Several separate calls may have the same form. The arguments of the thread's call distinguish them, and
//! are read ([`super::in_flight`]):
//! - at every request that may be the first of several by its size, or by its end;
//! - for an open file, at the first request that goes on where another one ended, both of any size from
//!   [`SUSPECT`] on: it shows if calls on many buffers are cut here;
//! - if so, at every request that may be the first of such a call.
//!
//! If the arguments cannot be read, only requests of a call that begins in the middle of a page are joined.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use flowtrace_schema::{Call, Fidelity, Op};

use super::in_flight::{Amount, Asked};

const PAGE: u64 = 4096;
/// Largest number of bytes that the kernel transfers in one call.
const MOST: u64 = i32::MAX as u64 & !(PAGE - 1);
/// Smallest request, in bytes, that is suspected of being part of a call on many buffers.
const SUSPECT: u64 = 16 << 10;

/// State of an open file in which it is not known yet if calls on many buffers are cut.
const UNKNOWN: u8 = 0;
/// A check has shown a whole call.
const WHOLE: u8 = 1;
/// A check has shown a cut call.
const CUT: u8 = 2;

/// The calls on one open file of which more pieces may come.
#[derive(Debug)]
pub(crate) struct Split {
    waiting: AtomicBool,
    calls: Mutex<Vec<Begun>>,
    /// [`UNKNOWN`], [`WHOLE`] or [`CUT`].
    buffers: AtomicU8,
}

/// Part of a call that has arrived.
#[derive(Debug)]
struct Begun {
    tid: u32,
    call: Call,
    rest: Rest,
}

/// Part of a call that may still arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// At most this many bytes.
    Bytes(u64),
    /// More, as long as the thread is in this very call.
    While(Asked),
    /// Not known: the call is checked when the next request goes on here.
    Check,
    /// More, as long as requests are of the largest size, because nothing better is known.
    Largest,
}

/// A request that was served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    /// The request as a call.
    pub(crate) call: Call,
    /// Thread that waits for the answer.
    pub(crate) tid: u32,
    /// Properties of the kernel's cutting of calls on this file.
    pub(crate) cutting: Cutting,
}

/// Properties of the kernel's cutting of calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cutting {
    /// Bytes of the largest request.
    pub(crate) largest: u64,
    /// Writes are cut anywhere: at the end of the page in which they begin, and where a page of the caller's
    /// memory has to be fetched first (`fuse_fill_write_pages` in fs/fuse/file.c).
    pub(crate) writes_anywhere: bool,
}

impl Served {
    /// True if this may be a first piece because of its end alone. A piece of less than a page that ends in
    /// the middle of one may be a first piece, too, but hardly ever is, and a check costs more than such a
    /// write.
    fn ends_as_a_piece(&self) -> bool {
        let length = self.call.length.unwrap_or(0);
        let begin = self.call.offset.unwrap_or(0);
        let ends_a_page = begin.wrapping_add(length).is_multiple_of(PAGE);
        let may_be = match ends_a_page {
            true => !begin.is_multiple_of(PAGE),
            false => length >= PAGE,
        };
        self.cutting.writes_anywhere && self.call.op == Op::Write && may_be
    }

    /// True if a call for `amount` may be more than the request: several buffers may have used up the pages
    /// of the largest request, each with partial pages at both of its ends.
    fn may_be_less_than(&self, amount: Amount) -> bool {
        let length = self.call.length.unwrap_or(0);
        match amount {
            Amount::Bytes(bytes) => bytes > length,
            Amount::Buffers(count) => {
                self.ends_as_a_piece()
                    || length / PAGE + count.saturating_mul(2) >= self.cutting.largest / PAGE
            }
        }
    }
}

impl Default for Split {
    fn default() -> Self {
        Split {
            waiting: AtomicBool::new(false),
            calls: Mutex::default(),
            buffers: AtomicU8::new(UNKNOWN),
        }
    }
}

impl Split {
    /// A request was served and is not yet answered. `find_call` finds the call in which the thread is
    /// ([`super::in_flight::of`]). Calls `record` with the calls that are complete now: none, one or two.
    pub(super) fn add(
        &self,
        served: Served,
        find_call: impl FnOnce(&dyn Fn(Amount) -> bool) -> Option<Asked>,
        mut record: impl FnMut(Call),
    ) {
        let begun = self.take(served.tid);
        let suspicion = self.suspicion(&served);
        if begun.is_none() && suspicion == Suspicion::None {
            return record(served.call);
        }
        let next = match begun {
            Some(mut begun) if begun.adjoins(&served.call) => match begun.rest {
                Rest::Bytes(_) | Rest::Largest => begun.joined(&served),
                Rest::While(_) | Rest::Check => {
                    let found = find_call(&|_| true);
                    if self.is_same_call(&mut begun, &served, found) {
                        begun.joined(&served)
                    } else {
                        record(begun.call);
                        self.begin(&served, found)
                    }
                }
            },
            begun => {
                begun.into_iter().for_each(|begun| record(begun.call));
                match suspicion {
                    Suspicion::None => Next::Complete(served.call),
                    Suspicion::Later => Next::Open(Begun {
                        tid: served.tid,
                        call: served.call,
                        rest: Rest::Check,
                    }),
                    Suspicion::Now => {
                        let found = find_call(&|amount| served.may_be_less_than(amount));
                        self.begin(&served, found)
                    }
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

    /// Thread `tid` closes the file: its own waiting call is complete. Another thread may be in the middle of
    /// a call, for example while a child closes its inherited descriptors.
    pub(super) fn closed_by(&self, tid: u32, record: impl FnMut(Call)) {
        let own = self.take(tid);
        own.into_iter().map(|begun| begun.call).for_each(record);
    }

    /// No more requests will come: the waiting calls are complete.
    pub(super) fn finish(&self, record: impl FnMut(Call)) {
        if self.waiting.swap(false, Ordering::Relaxed) {
            let calls = std::mem::take(&mut *self.lock());
            calls.into_iter().map(|begun| begun.call).for_each(record);
        }
    }

    /// The call that thread `tid` has begun. A thread has at most one, because it waits for each answer.
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

    /// Suspicion that a request is the first of several.
    fn suspicion(&self, served: &Served) -> Suspicion {
        let call = &served.call;
        let length = call.length.unwrap_or(0);
        if !matches!(call.op, Op::Read | Op::Write) || call.fidelity != Fidelity::Exact {
            return Suspicion::None;
        }
        if length > served.cutting.largest.saturating_sub(PAGE) || served.ends_as_a_piece() {
            return Suspicion::Now;
        }
        match self.buffers.load(Ordering::Relaxed) {
            _ if !succeeded_whole(call) => Suspicion::None,
            UNKNOWN if length >= SUSPECT => Suspicion::Later,
            // A cut call has at least a byte for each page.
            CUT if length >= served.cutting.largest / PAGE => Suspicion::Now,
            _ => Suspicion::None,
        }
    }

    /// True if a request continues the call that was begun, which is then updated with the rest that may
    /// still come.
    fn is_same_call(&self, begun: &mut Begun, served: &Served, found: Option<Asked>) -> bool {
        if let Rest::While(asked) = begun.rest {
            return found == Some(asked);
        }
        let Some(Asked::More { at, amount }) = found else {
            self.buffers.store(WHOLE, Ordering::Relaxed);
            return false;
        };
        // The end of the file may have decided where a write began. It did not begin here.
        let begins_here = served.call.offset == Some(at);
        let began_there = begun.call.op == Op::Write || begun.call.offset == Some(at);
        let done = begun.call.length.unwrap_or(0);
        let (length, rest) = match amount {
            Amount::Bytes(bytes) => (bytes, Rest::Bytes(bytes.min(MOST).saturating_sub(done))),
            Amount::Buffers(_) => (done, Rest::While(Asked::More { at, amount })),
        };
        let too_much = matches!(rest, Rest::Bytes(left) if Some(left) < served.call.length);
        if begins_here || !began_there || too_much {
            self.buffers.store(WHOLE, Ordering::Relaxed);
            return false;
        }
        self.buffers.store(CUT, Ordering::Relaxed);
        begun.call.length = Some(length);
        begun.rest = rest;
        true
    }

    /// Begins a call with a request; `found` is the call in which its thread was found.
    fn begin(&self, served: &Served, found: Option<Asked>) -> Next {
        let Served { call, tid, cutting } = *served;
        let largest = cutting.largest;
        let length = call.length.unwrap_or(0);
        // A read at another offset than its call is not the first of it. The end of the file may decide where
        // a write begins.
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
        if length < largest.saturating_sub(PAGE) && !served.ends_as_a_piece() {
            self.buffers.store(CUT, Ordering::Relaxed);
        }
        let goes_on = succeeded_whole(&served.call) && rest != Rest::Bytes(0);
        let begun = Begun { tid, call, rest };
        Next::after(begun, goes_on)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Begun>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Suspicion that a request is the first of several, and the time to check it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspicion {
    None,
    Now,
    Later,
}

/// State of a call after a request: complete, or more may come.
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
    /// True if a request of the same thread goes on where this call ended.
    fn adjoins(&self, call: &Call) -> bool {
        let end = self
            .call
            .offset
            .map(|at| at + self.call.result.unsigned_abs());
        let fits = match self.rest {
            Rest::Bytes(left) => call.length.is_some_and(|length| length <= left),
            // This request was a whole call, as far as is known.
            Rest::Check => call.result > 0,
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
            // A failure after the first piece appears as a short count, as the application sees it.
            result: call.result + piece.result.max(0),
            ..call
        };
        let goes_on = succeeded_whole(piece)
            && match rest {
                Rest::Bytes(left) => left > 0,
                Rest::While(_) | Rest::Check => true,
                Rest::Largest => length == served.cutting.largest,
            };
        Next::after(Begun { tid, call, rest }, goes_on)
    }
}

fn succeeded_whole(call: &Call) -> bool {
    call.length.map(|length| length as i64) == Some(call.result)
}

#[cfg(test)]
mod tests;
