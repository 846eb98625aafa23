//! The parts of files that calls read, each counted once however often it was read.

use flowtrace_schema::{CallRow, Class};

use crate::intervals::union;
use crate::model::{File, FileIndex};

/// Most ranges of a file; of one that was read in more pieces it is not known how much was read.
const MOST: usize = 4096;

/// The ranges that were read of each file, by [`FileIndex`]; `None`: not known.
pub(super) struct ReadOnce(Vec<Option<Vec<(i64, i64)>>>);

impl ReadOnce {
    pub(super) fn of(files: usize) -> ReadOnce {
        ReadOnce(vec![Some(Vec::new()); files])
    }

    /// Adds a successful call.
    pub(super) fn add(&mut self, file: FileIndex, call: &CallRow) {
        if call.op.is_some_and(|op| op.class() == Class::Read) && call.result > 0 {
            let known = &mut self.0[file.0 as usize];
            *known = call
                .offset
                .zip(known.take())
                .and_then(|(from, ranges)| with(ranges, (from, from.saturating_add(call.result))));
        }
    }

    pub(super) fn settle(self, files: &mut [File]) {
        for (file, ranges) in files.iter_mut().zip(self.0) {
            let sum = |ranges: Vec<(i64, i64)>| ranges.iter().map(|(from, to)| to - from).sum();
            file.read_once_bytes = ranges.map(|ranges| sum(joined(ranges)));
        }
    }
}

/// Ranges with one more; `None`: too many.
fn with(mut ranges: Vec<(i64, i64)>, (from, to): (i64, i64)) -> Option<Vec<(i64, i64)>> {
    match ranges.last_mut() {
        Some(last) if last.0 <= from && from <= last.1 => last.1 = last.1.max(to),
        _ => ranges.push((from, to)),
    }
    if ranges.len() == MOST {
        ranges = joined(ranges);
        // Another time soon would take too long in all.
        if ranges.len() > MOST / 2 {
            return None;
        }
    }
    Some(ranges)
}

fn joined(mut ranges: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    ranges.sort_unstable();
    union(ranges)
}

#[cfg(test)]
mod tests {
    use flowtrace_schema::{Fidelity, Op};

    use super::*;

    fn read(offset: Option<i64>, result: i64) -> CallRow {
        CallRow {
            start_ns: 0,
            duration_ns: 0,
            upid: None,
            tid: None,
            op: Some(Op::Read),
            fidelity: Fidelity::Exact,
            flags: None,
            file_id: None,
            offset,
            length: None,
            result,
        }
    }

    fn read_once(calls: impl IntoIterator<Item = CallRow>) -> Option<i64> {
        let (mut files, mut read) = ([File::default()], ReadOnce::of(1));
        for call in calls {
            read.add(FileIndex(0), &call);
        }
        read.settle(&mut files);
        files[0].read_once_bytes
    }

    #[test]
    fn what_was_read_twice_counts_once() {
        let again = || (0..10).map(|at| read(Some(at * 10), 10));
        assert_eq!(read_once(again().chain(again())), Some(100));
        assert_eq!(
            read_once(
                [(40, 20), (0, 10), (50, 30), (5, 5)].map(|(from, bytes)| read(Some(from), bytes))
            ),
            Some(50)
        );
        assert_eq!(read_once([]), Some(0));
    }

    #[test]
    fn without_offsets_or_in_too_many_pieces_it_is_not_known() {
        assert_eq!(
            read_once([read(Some(0), 10), read(None, 10), read(Some(10), 10)]),
            None
        );
        assert_eq!(read_once([read(None, 0)]), Some(0), "the end of the file");
        let apart = |pieces: usize| (0..pieces as i64).map(|at| read(Some(at * 20), 10));
        assert_eq!(read_once(apart(MOST)), None);
        let few = apart(MOST / 2);
        let again: Vec<CallRow> = few.clone().chain(few.clone()).chain(few).collect();
        assert_eq!(read_once(again), Some(MOST as i64 / 2 * 10));
    }
}
