use super::*;
use flowtrace_schema::{FileId, Tid, Upid};
use proptest::prelude::*;

const LARGEST: u64 = 1 << 20;
const TID: u32 = 2;

fn read(offset: u64, length: u64, result: i64) -> Call {
    Call {
        start_ns: offset,
        duration_ns: 1,
        upid: Some(Upid(1)),
        tid: Some(Tid(TID)),
        op: Op::Read,
        file: Some(FileId(3)),
        offset: Some(offset),
        length: Some(length),
        flags: None,
        result,
        fidelity: Fidelity::Exact,
    }
}

/// Requests for a call of `length` bytes whose buffer begins `skew` bytes into a page, on a file
/// of `size` bytes.
fn requests(offset: u64, length: u64, skew: u64, size: u64) -> Vec<Call> {
    let mut calls = Vec::new();
    let (mut at, mut left, mut most) = (offset, length, LARGEST - skew);
    while left > 0 {
        let piece = left.min(most);
        let result = piece.min(size.saturating_sub(at));
        calls.push(read(at, piece, result as i64));
        if result < piece {
            break;
        }
        (at, left, most) = (at + piece, left - piece, LARGEST);
    }
    calls
}

const ENDLESS: u64 = u64::MAX;

/// Feeds requests, each with the call that a check would find.
fn fed(requests: impl IntoIterator<Item = (Call, Option<Asked>)>) -> Vec<(u64, u64, i64)> {
    let split = Split::default();
    let mut out = Vec::new();
    let mut record = |call: Call| {
        out.push((call.offset.unwrap(), call.length.unwrap(), call.result));
    };
    for (call, asked) in requests {
        let find_call = |is_more: &dyn Fn(Amount) -> bool| match asked {
            Some(Asked::More { amount, .. }) if !is_more(amount) => Some(Asked::This),
            asked => asked,
        };
        split.add(served(call, TID), find_call, &mut record);
    }
    split.finish(&mut record);
    out
}

fn served(call: Call, tid: u32) -> Served {
    Served {
        call,
        tid,
        cutting: Cutting {
            largest: LARGEST,
            writes_anywhere: true,
        },
    }
}

/// Feeds calls that cannot be checked.
fn unseen(calls: impl IntoIterator<Item = Call>) -> Vec<(u64, u64, i64)> {
    fed(calls.into_iter().map(|call| (call, None)))
}

/// Calls of one buffer, each given by its offset, length and skew, on a file of `size` bytes.
fn seen(calls: &[(u64, u64, u64)], size: u64) -> Vec<(u64, u64, i64)> {
    let each = calls.iter().flat_map(|&(at, length, skew)| {
        let amount = Amount::Bytes(length);
        let asked = Some(Asked::More { at, amount });
        requests(at, length, skew, size)
            .into_iter()
            .map(move |call| (call, asked))
    });
    fed(each)
}

#[test]
fn calls_are_as_they_were_made() {
    let mebi = 1 << 20;
    let calls = [
        (0, 5 * mebi, 0),
        (5 * mebi, 5 * mebi, 0),
        (10 * mebi, mebi, 0),
        (11 * mebi, mebi, 0),
        (12 * mebi, mebi, 48),
        (13 * mebi, 3 * mebi + 5, 4095),
        (0, 2 * mebi, 0),
    ];
    let expected: Vec<_> = calls
        .iter()
        .map(|&(at, length, _)| (at, length, length as i64))
        .collect();
    assert_eq!(seen(&calls, ENDLESS), expected);
}

#[test]
fn the_length_is_what_was_asked_for() {
    let mebi = 1 << 20;
    let size = 2 * mebi;
    assert_eq!(
        seen(
            &[(0, 5 * mebi, 0), (size, 5 * mebi, 0), (0, 5 * mebi, 48)],
            size
        ),
        [
            (0, 5 * mebi, size as i64),
            (size, 5 * mebi, 0),
            (0, 5 * mebi, size as i64)
        ]
    );
    assert_eq!(
        seen(&[(0, 2 * mebi, 48), (10, 2 * mebi, 48)], 10),
        [(0, 2 * mebi, 10), (10, 2 * mebi, 0)]
    );
    // The kernel transfers less than that; the call ends with the transferred part.
    let huge = read(0, LARGEST, LARGEST as i64);
    let amount = Amount::Bytes(LARGEST + 1);
    let asked = Some(Asked::More { at: 0, amount });
    let next = read(LARGEST, 4096, 4096);
    assert_eq!(
        fed([(huge, asked), (next, None)]),
        [(0, LARGEST + 1, LARGEST as i64), (LARGEST, 4096, 4096)]
    );
}

#[test]
fn many_buffers_are_one_call() {
    // 1024 buffers of 100 bytes on as many pages, then the same buffers again.
    let piece = 256 * 100;
    let pieces = (0..8u64).map(|n| {
        let at = n / 4 * 4 * piece;
        let amount = Amount::Buffers(1024);
        let call = read(n * piece, piece, piece as i64);
        (call, Some(Asked::More { at, amount }))
    });
    let whole = 4 * piece;
    assert_eq!(
        fed(pieces),
        [(0, whole, whole as i64), (whole, whole, whole as i64)]
    );
    // The same with known sizes, on a file that ends in the second call.
    let pieces = [
        (0, piece),
        (0, piece),
        (0, piece),
        (0, piece),
        (whole, piece),
        (whole, 7),
    ];
    let pieces = pieces.iter().enumerate().map(|(n, &(at, result))| {
        let amount = Amount::Bytes(whole);
        let call = read(n as u64 * piece, piece, result as i64);
        (call, Some(Asked::More { at, amount }))
    });
    assert_eq!(
        fed(pieces),
        [(0, whole, whole as i64), (whole, whole, piece as i64 + 7)]
    );
    // A call on few buffers was not cut.
    let few = (0..4u64).map(|n| {
        let at = n * 65536;
        let amount = Amount::Buffers(16);
        (read(at, 65536, 65536), Some(Asked::More { at, amount }))
    });
    assert_eq!(fed(few).len(), 4);
}

#[test]
fn whole_calls_are_checked_once() {
    let split = Split::default();
    let (mut checks, mut recorded) = (0, 0);
    // First each one elsewhere, then one after the other.
    let offsets = (0..100).rev().chain(100..200);
    for n in offsets.map(|n| n << 16) {
        let call = read(n, 1 << 16, 1 << 16);
        let find_call = |_: &dyn Fn(Amount) -> bool| {
            checks += 1;
            let amount = Amount::Bytes(1 << 16);
            Some(Asked::More { at: n, amount })
        };
        split.add(served(call, TID), find_call, |_| recorded += 1);
    }
    split.finish(|_| recorded += 1);
    assert_eq!((checks, recorded), (1, 200));
}

/// A write cut as by Linux 6.18, from memory that begins 352 bytes into a page and was never touched.
#[test]
fn writes_through_the_page_cache_are_cut_anywhere() {
    let calls = [
        (0, 65536, vec![7840, 352, 57344]),
        (65536, 8, vec![8]),
        (65544, 1, vec![1]),
    ];
    let pieces = calls.iter().flat_map(|(begin, whole, pieces)| {
        let asked = Asked::More {
            at: *begin,
            amount: Amount::Bytes(*whole),
        };
        let mut at = *begin;
        pieces.iter().map(move |&length| {
            let offset = at;
            at += length;
            let call = Call {
                op: Op::Write,
                ..read(offset, length, length as i64)
            };
            (call, Some(asked))
        })
    });
    let rows = calls
        .each_ref()
        .map(|&(at, length, _)| (at, length, length as i64));
    assert_eq!(fed(pieces), rows);
}

#[test]
fn what_begins_in_a_page_is_joined_unseen() {
    assert_eq!(
        unseen(requests(0, 1 << 20, 48, ENDLESS)),
        [(0, 1 << 20, 1 << 20)]
    );
    assert_eq!(
        unseen(requests(100, 10 << 20, 16, ENDLESS)),
        [(100, 10 << 20, 10 << 20)]
    );
    let small = (0..64).map(|n| read(n * 4096, 4096, 4096));
    assert_eq!(unseen(small).len(), 64);
    let aligned = (0..4).map(|n| read(n * LARGEST, LARGEST, LARGEST as i64));
    assert_eq!(unseen(aligned).len(), 4);
    let mut elsewhere = requests(0, 1 << 20, 48, ENDLESS);
    elsewhere[1].offset = Some(0);
    assert_eq!(unseen(elsewhere).len(), 2);
}

#[test]
fn a_failing_rest_shows_as_a_short_count() {
    let mut calls = requests(0, 1 << 20, 48, ENDLESS);
    calls[1].result = -5;
    assert_eq!(unseen(calls), [(0, 1 << 20, (1 << 20) - 48)]);
}

#[test]
fn threads_do_not_disturb_each_other() {
    let split = Split::default();
    let mut out = Vec::new();
    let pieces = requests(0, 3 << 20, 0, ENDLESS);
    for piece in pieces {
        for tid in 1..=4 {
            let amount = Amount::Bytes(3 << 20);
            let find_call = |_: &dyn Fn(Amount) -> bool| Some(Asked::More { at: 0, amount });
            split.add(served(piece, tid), find_call, |call| out.push(call.result));
        }
    }
    assert_eq!(out, [3 << 20; 4]);
}

#[test]
fn a_close_by_somebody_else_does_not_end_a_call() {
    let split = Split::default();
    let mut out = Vec::new();
    let pieces = requests(0, 3 << 20, 48, ENDLESS);
    split.add(served(pieces[0], TID), |_| None, |call| out.push(call));
    split.closed_by(7, |call| out.push(call));
    split.closed_by(0, |call| out.push(call));
    split.add(served(pieces[1], TID), |_| None, |call| out.push(call));
    assert!(out.is_empty());
    split.closed_by(TID, |call| out.push(call));
    assert_eq!(out.len(), 1);
    split.closed_by(TID, |call| out.push(call));
    assert_eq!(out.len(), 1);
}

proptest! {
    /// With any requests, no byte is lost or counted twice.
    #[test]
    fn bytes_are_kept(
        calls in prop::collection::vec((0u64..4, 1u64..3 << 20, 0u64..4096, 0u64..4), 0..12)
    ) {
        let calls: Vec<_> = calls
            .into_iter()
            .flat_map(|(offset, length, skew, asked)| {
                let at = offset << 20;
                let found = match asked {
                    0 => None,
                    1 => Some(Asked::This),
                    2 => Some(Asked::More { at, amount: Amount::Bytes(length) }),
                    _ => Some(Asked::More { at, amount: Amount::Buffers(length) }),
                };
                requests(at, length, skew, ENDLESS).into_iter().map(move |call| (call, found))
            })
            .collect();
        let before: i64 = calls.iter().map(|(call, _)| call.result).sum();
        let after: i64 = fed(calls).iter().map(|row| row.2).sum();
        prop_assert_eq!(after, before);
    }

    /// Calls of one buffer come out unchanged.
    #[test]
    fn nothing_is_joined_that_was_not_one(
        calls in prop::collection::vec((0u64..4, 1u64..4 << 20, 0u64..4096), 0..12),
        size in 0u64..6 << 20,
    ) {
        let calls: Vec<_> = calls.into_iter().map(|(at, length, skew)| (at << 20, length, skew)).collect();
        let expected: Vec<_> = calls
            .iter()
            .map(|&(at, length, _)| (at, length, length.min(size.saturating_sub(at)) as i64))
            .collect();
        prop_assert_eq!(seen(&calls, size), expected);
    }
}
