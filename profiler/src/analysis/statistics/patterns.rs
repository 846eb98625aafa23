//! The order in which processes access the data of files.
//!
//! A request is *sequential* if it begins where the one before it ended (of the same process, file and
//! direction). It is *regular* if its distance from the one before equals the distance of that one from its
//! predecessor. Else it is *random* (after Taufer and Stricker). The first request of each process, file
//! and direction is none of these.

use std::collections::HashMap;

use crate::model::{FileIndex, ProcessId};

/// The order in which one process, or several, accessed files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    /// Reading.
    pub read: Order,
    /// Writing.
    pub write: Order,
}

/// The order of the requests of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// First requests of a process on a file.
    pub first: i64,
    /// First requests that began at the begin of the file.
    pub at_begin: i64,
    /// Requests that began where the one before ended.
    pub sequential: i64,
    /// Requests at a constant distance.
    pub regular: i64,
    /// All others.
    pub random: i64,
}

impl Order {
    /// All requests.
    pub fn requests(&self) -> i64 {
        self.first + self.sequential + self.regular + self.random
    }

    /// Share of the requests after the first that were sequential; `None`: there were none.
    pub fn sequential_share(&self) -> Option<f64> {
        let after = self.sequential + self.regular + self.random;
        (after > 0).then(|| self.sequential as f64 / after as f64)
    }

    fn add(&mut self, other: Order) {
        self.first += other.first;
        self.at_begin += other.at_begin;
        self.sequential += other.sequential;
        self.regular += other.regular;
        self.random += other.random;
    }
}

impl Pattern {
    /// Adds another pattern.
    pub fn add(&mut self, other: Pattern) {
        self.read.add(other.read);
        self.write.add(other.write);
    }
}

/// Position of a process in a file.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    order: Order,
    offset: i64,
    end: i64,
    stride: i64,
}

impl State {
    fn add(&mut self, offset: i64, bytes: i64) {
        let stride = offset.saturating_sub(self.offset);
        if self.order.first == 0 {
            self.order.first = 1;
            self.order.at_begin = i64::from(offset == 0);
        } else if offset == self.end {
            self.order.sequential += 1;
        } else if self.order.requests() > 1 && stride == self.stride {
            self.order.regular += 1;
        } else {
            self.order.random += 1;
        }
        self.stride = stride;
        self.offset = offset;
        self.end = offset.saturating_add(bytes);
    }
}

#[derive(Debug, Default)]
pub(super) struct Patterns {
    places: HashMap<(ProcessId, FileIndex), u32>,
    states: Vec<[State; 2]>,
    last: Option<(ProcessId, FileIndex, usize)>,
}

impl Patterns {
    /// Adds a request that moved data. A read that finds the end of a file moves none, and says nothing on
    /// order.
    pub(super) fn add(
        &mut self,
        process: ProcessId,
        file: FileIndex,
        is_read: bool,
        offset: i64,
        bytes: i64,
    ) {
        if bytes == 0 {
            return;
        }
        let place = match self.last {
            Some((p, f, place)) if (p, f) == (process, file) => place,
            _ => {
                let next = self.states.len() as u32;
                let place = *self.places.entry((process, file)).or_insert(next);
                if place == next {
                    self.states.push(<[State; 2]>::default());
                }
                self.last = Some((process, file, place as usize));
                place as usize
            }
        };
        self.states[place][usize::from(!is_read)].add(offset, bytes);
    }

    pub(super) fn finish(self) -> Vec<(ProcessId, FileIndex, Pattern)> {
        let mut found: Vec<_> = self
            .places
            .into_iter()
            .map(|((process, file), place)| {
                let [read, write] = self.states[place as usize];
                let pattern = Pattern {
                    read: read.order,
                    write: write.order,
                };
                (process, file, pattern)
            })
            .collect();
        found.sort_unstable_by_key(|&(process, file, _)| (process, file));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_distinguished() {
        let mut state = State::default();
        for (offset, bytes) in [
            (0, 10),
            (10, 10),
            (20, 5),
            (100, 5),
            (200, 5),
            (300, 5),
            (7, 1),
        ] {
            state.add(offset, bytes);
        }
        let expected = Order {
            first: 1,
            at_begin: 1,
            sequential: 2,
            regular: 1,
            random: 3,
        };
        // 100 is random, 200 is the first at a distance of 100, 300 the second.
        assert_eq!(state.order, expected);
        assert_eq!(state.order.requests(), 7);
        assert_eq!(state.order.sequential_share(), Some(2.0 / 6.0));
    }

    #[test]
    fn the_end_of_a_file_says_nothing() {
        let mut patterns = Patterns::default();
        patterns.add(ProcessId(1), FileIndex(2), true, 0, 10);
        patterns.add(ProcessId(1), FileIndex(2), true, 10, 0);
        let found = patterns.finish();
        assert_eq!(found[0].2.read.requests(), 1);
    }
}
