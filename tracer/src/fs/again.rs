//! Pages that the kernel requests again for a `sendfile` or `splice`: they were dropped
//! (`adapter::invalidate`) before this call, or one that goes on where it ended, had taken them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time within which requests for the same pages belong to the same read. Pages that cannot change are kept
/// for this time. Later requests still belong to the read if the reader went on.
pub(crate) const SAME: Duration = Duration::from_millis(100);
/// Number of requested ranges that are remembered.
const MOST: usize = 64;

/// Ranges that were requested through an open file.
#[derive(Debug, Default)]
pub(crate) struct Again(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    asked: VecDeque<Asked>,
    /// The last call.
    call: Option<Call>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    /// The offset with which the call began, and the offset of its first pages.
    from: u64,
    first: u64,
    /// Time of its last request.
    at: Instant,
}

impl State {
    /// Notes that a call that began at offset `from` requests the pages at `offset`. Returns true if the
    /// reader goes on and has not taken any of these pages: the call is the last one, or began behind it.
    fn reads_on(&mut self, from: Option<u64>, offset: u64, at: Instant) -> bool {
        let Some(from) = from else {
            // The kernel may be reading ahead for the last call.
            return self.call.is_some_and(|last| offset > last.first);
        };
        let first = offset;
        let last = self.call.replace(Call { from, first, at });
        match last {
            Some(last) if from == last.from && (offset > last.first || at <= last.at + SAME) => {
                let first = last.first.min(offset);
                self.call = Some(Call { from, first, at });
                true
            }
            last => last.is_some_and(|last| from > last.from),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    offset: u64,
    end: u64,
}

impl Again {
    /// Number of the first of these bytes that were requested a short time ago, or earlier by a reader that
    /// only went on. The others count as requested from now on. `from` is the offset with which the call
    /// began, if known.
    pub(crate) fn known(&self, offset: u64, length: u64, at: Instant, from: Option<u64>) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reads_on = state.reads_on(from, offset, at);
        let all = &mut state.asked;
        while !reads_on && all.front().is_some_and(|asked| asked.at + SAME < at) {
            all.pop_front();
        }
        let end = offset.saturating_add(length);
        let mut known = offset;
        let holds = |asked: &&Asked, byte| asked.offset <= byte && byte < asked.end;
        while let Some(asked) = all.iter().find(|asked| holds(asked, known)) {
            known = asked.end;
        }
        if known < end {
            if all.len() == MOST {
                all.pop_front();
            }
            let offset = known;
            all.push_back(Asked { at, offset, end });
        }
        known.min(end) - offset
    }

    /// The file was written: from now on requests belong to another read.
    pub(crate) fn forget(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.asked.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_pages_soon_after_are_the_same_read() {
        let again = Again::default();
        let start = Instant::now();
        let later = |ms| start + Duration::from_millis(ms);
        let known = |offset, length, ms| again.known(offset, length, later(ms), None);
        assert_eq!(known(0, 4096, 0), 0);
        assert_eq!(known(4096, 4096, 1), 0);
        assert_eq!(known(0, 4096, 2), 4096);
        assert_eq!(known(100, 8000, 3), 8000);
        assert_eq!(known(4096, 8192, 4), 4096);
        assert_eq!(known(0, 16384, 5), 12288);
        assert_eq!(known(0, 4096, 300), 0);
        again.forget();
        assert_eq!(known(0, 4096, 301), 0);
        assert_eq!(known(u64::MAX, 10, 302), 0);
    }

    #[test]
    fn who_reads_on_has_not_taken_the_pages_yet() {
        let again = Again::default();
        let start = Instant::now();
        let mut seconds = 0;
        let mut known = |offset, length, from| {
            seconds += 1;
            again.known(
                offset,
                length,
                start + Duration::from_secs(seconds),
                Some(from),
            )
        };
        // Pieces of 3000 bytes; the kernel read ahead for the first one.
        assert_eq!(known(0, 16384, 0), 0);
        assert_eq!(known(0, 16384, 3000), 16384);
        assert_eq!(known(4096, 16384, 6000), 12288);
        // One call that takes long.
        assert_eq!(known(12288, 65536, 15000), 8192);
        assert_eq!(known(16384, 65536, 15000), 61440);
        // From the beginning, twice.
        assert_eq!(known(0, 16384, 0), 0);
        assert_eq!(known(0, 16384, 0), 0);
    }
}
