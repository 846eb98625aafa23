//! Pages that a `sendfile` or `splice` asks for again because they were dropped before it had taken them (`adapter::invalidate`).

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So long the same pages are the same read, and kept where nobody can change them meanwhile.
pub(crate) const SAME: Duration = Duration::from_millis(100);
/// More are not asked for at a time.
const MOST: usize = 64;

/// What was asked for through an open file.
#[derive(Debug, Default)]
pub(crate) struct Again(Mutex<VecDeque<Asked>>);

#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    offset: u64,
    end: u64,
}

impl Again {
    /// How many of the first of these bytes were asked for a moment ago. The others are from now on.
    pub(crate) fn known(&self, offset: u64, length: u64, at: Instant) -> u64 {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while all.front().is_some_and(|asked| asked.at + SAME < at) {
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

    /// Something was written: what is asked for now is another read.
    pub(crate) fn forget(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.clear();
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
        assert_eq!(again.known(0, 4096, start), 0);
        assert_eq!(again.known(4096, 4096, later(1)), 0);
        assert_eq!(again.known(0, 4096, later(2)), 4096);
        assert_eq!(again.known(100, 8000, later(3)), 8000);
        assert_eq!(again.known(4096, 8192, later(4)), 4096);
        assert_eq!(again.known(0, 16384, later(5)), 12288);
        assert_eq!(again.known(0, 4096, later(300)), 0);
        again.forget();
        assert_eq!(again.known(0, 4096, later(301)), 0);
        assert_eq!(again.known(u64::MAX, 10, later(302)), 0);
    }
}
