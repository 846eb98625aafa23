//! Joins the requests into which the kernel splits one read or write.
//!
//! A request spans at most a fixed number of pages of the caller's buffer. Data that starts in
//! the middle of a page therefore arrives as a first request that is shorter than the largest by
//! less than a page, then largest ones, then the rest, one after the other and by one thread.
//! Only such a sequence is joined. A call with an aligned buffer larger than a request looks
//! exactly like several calls and stays several records.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use flowtrace_schema::{Call, Fidelity, Op};

use crate::callers::Caller;

const PAGE: u64 = 4096;

/// The first pieces of a call that may go on, of one open file.
#[derive(Debug, Default)]
pub(crate) struct Split {
    waiting: AtomicBool,
    first: Mutex<Option<Call>>,
}

impl Split {
    /// A request was served. Calls `record` with what is complete now: nothing, one call or two.
    pub(crate) fn add(&self, call: Call, largest: u64, mut record: impl FnMut(Call)) {
        let begins = is_unaligned_beginning(&call, largest);
        if !begins && !self.waiting.load(Ordering::Relaxed) {
            return record(call);
        }
        let mut first = self.lock();
        match first.take() {
            Some(before) if continues(&before, &call) => {
                let whole = join(before, &call);
                if succeeded_whole(&call) && call.length == Some(largest) {
                    *first = Some(whole);
                } else {
                    record(whole);
                }
            }
            before => {
                before.into_iter().for_each(&mut record);
                if begins {
                    *first = Some(call);
                } else {
                    record(call);
                }
            }
        }
        self.waiting.store(first.is_some(), Ordering::Relaxed);
    }

    /// A thread closes the file: whatever call of its own was waiting is complete. Another thread
    /// may be in the middle of one, as when a child closes what it inherited.
    pub(crate) fn closed_by(&self, caller: Option<Caller>, record: impl FnMut(Call)) {
        if !self.waiting.load(Ordering::Relaxed) {
            return;
        }
        let by = (caller.map(|c| c.upid), caller.and_then(|c| c.tid));
        let mut first = self.lock();
        let own = first.take_if(|call| (call.upid, call.tid) == by);
        self.waiting.store(first.is_some(), Ordering::Relaxed);
        own.into_iter().for_each(record);
    }

    /// Nothing more will come: what waits is complete.
    pub(crate) fn finish(&self, record: impl FnMut(Call)) {
        if self.waiting.swap(false, Ordering::Relaxed) {
            self.lock().take().into_iter().for_each(record);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Call>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_unaligned_beginning(call: &Call, largest: u64) -> bool {
    let nearly = |length| length > largest.saturating_sub(PAGE) && length < largest;
    matches!(call.op, Op::Read | Op::Write)
        && call.fidelity == Fidelity::Exact
        && call.length.is_some_and(nearly)
        && succeeded_whole(call)
}

fn succeeded_whole(call: &Call) -> bool {
    call.length.map(|length| length as i64) == Some(call.result)
}

fn continues(before: &Call, call: &Call) -> bool {
    let end = before
        .offset
        .zip(before.length)
        .map(|(at, length)| at + length);
    before.op == call.op
        && before.upid == call.upid
        && before.tid == call.tid
        && before.fidelity == call.fidelity
        && end == call.offset
}

fn join(before: Call, call: &Call) -> Call {
    let end_ns = call.start_ns + call.duration_ns;
    Call {
        duration_ns: end_ns.saturating_sub(before.start_ns),
        length: before.length.zip(call.length).map(|(a, b)| a + b),
        // A failure after the first piece shows as a short count, as the application sees it.
        result: before.result + call.result.max(0),
        ..before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowtrace_schema::{FileId, Tid, Upid};
    use proptest::prelude::*;

    const LARGEST: u64 = 1 << 20;

    fn read(offset: u64, length: u64, result: i64) -> Call {
        Call {
            start_ns: offset,
            duration_ns: 1,
            upid: Some(Upid(1)),
            tid: Some(Tid(2)),
            op: Op::Read,
            file: Some(FileId(3)),
            offset: Some(offset),
            length: Some(length),
            flags: None,
            result,
            fidelity: Fidelity::Exact,
        }
    }

    /// Requests for a call of `length` bytes whose buffer begins `skew` bytes into a page.
    fn requests(offset: u64, length: u64, skew: u64) -> Vec<Call> {
        let mut calls = Vec::new();
        let (mut at, mut left, mut most) = (offset, length, LARGEST - skew);
        while left > 0 {
            let piece = left.min(most);
            calls.push(read(at, piece, piece as i64));
            (at, left, most) = (at + piece, left - piece, LARGEST);
        }
        calls
    }

    fn joined(calls: impl IntoIterator<Item = Call>) -> Vec<(u64, u64, i64)> {
        let split = Split::default();
        let mut out = Vec::new();
        let mut record = |call: Call| {
            out.push((call.offset.unwrap(), call.length.unwrap(), call.result));
        };
        for call in calls {
            split.add(call, LARGEST, &mut record);
        }
        split.finish(&mut record);
        out
    }

    #[test]
    fn pieces_of_an_unaligned_call_are_one() {
        assert_eq!(joined(requests(0, 1 << 20, 48)), [(0, 1 << 20, 1 << 20)]);
        assert_eq!(
            joined(requests(100, 10 << 20, 16)),
            [(100, 10 << 20, 10 << 20)]
        );
    }

    #[test]
    fn separate_calls_stay_separate() {
        let small = (0..64).map(|n| read(n * 4096, 4096, 4096));
        assert_eq!(joined(small).len(), 64);
        let aligned = (0..4).map(|n| read(n * LARGEST, LARGEST, LARGEST as i64));
        assert_eq!(joined(aligned).len(), 4);
        let mut elsewhere = requests(0, 1 << 20, 48);
        elsewhere[1].offset = Some(0);
        assert_eq!(joined(elsewhere).len(), 2);
        let mut by_another = requests(0, 1 << 20, 48);
        by_another[1].tid = Some(Tid(9));
        assert_eq!(joined(by_another).len(), 2);
    }

    #[test]
    fn a_failing_rest_shows_as_a_short_count() {
        let mut calls = requests(0, 1 << 20, 48);
        calls[1].result = -5;
        assert_eq!(joined(calls), [(0, 1 << 20, (1 << 20) - 48)]);
    }

    #[test]
    fn a_close_by_somebody_else_does_not_end_a_call() {
        let split = Split::default();
        let mut out = Vec::new();
        let pieces = requests(0, 3 << 20, 48);
        let by = |upid, tid| {
            Some(Caller {
                upid: Upid(upid),
                tid: Some(Tid(tid)),
            })
        };
        split.add(pieces[0], LARGEST, |call| out.push(call));
        split.closed_by(by(7, 7), |call| out.push(call));
        split.closed_by(None, |call| out.push(call));
        split.add(pieces[1], LARGEST, |call| out.push(call));
        assert!(out.is_empty());
        split.closed_by(by(1, 2), |call| out.push(call));
        assert_eq!(out.len(), 1);
        split.closed_by(by(1, 2), |call| out.push(call));
        assert_eq!(out.len(), 1);
    }

    proptest! {
        /// Whatever arrives, no byte is lost or counted twice.
        #[test]
        fn bytes_are_kept(
            calls in prop::collection::vec((0u64..4, 1u64..3 << 20, 0u64..4096), 0..12)
        ) {
            let calls: Vec<_> = calls
                .into_iter()
                .flat_map(|(offset, length, skew)| requests(offset << 20, length, skew))
                .collect();
            let sum = |rows: &[(u64, u64, i64)]| rows.iter().map(|row| row.2).sum::<i64>();
            let before: i64 = calls.iter().map(|call| call.result).sum();
            prop_assert_eq!(sum(&joined(calls)), before);
        }
    }
}
