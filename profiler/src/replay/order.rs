//! Finds the calls of other processes that must come before a call when it is played.
//!
//! Calls are played as early as their threads reach them. A call therefore waits for everything that it
//! needs: the changes to its file, and the making of its name and of the directories above it. A call
//! that removes a name waits for the calls that used the name. A call waits only for calls that had
//! ended before it began in the trace. No threads wait in a circle, since the order in time has none.

use std::collections::HashMap;

use super::{After, CallKind};
use crate::model::ProcessId;

/// The process and the times of a recorded call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recorded {
    pub(super) process: ProcessId,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
}

/// Counters of the changes and uses of files and names.
#[derive(Default)]
pub(super) struct Order {
    counters: Vec<Counter>,
    of_file: HashMap<usize, usize>,
    /// Number of the first of a name's counters, which [`Of`] lists.
    of_name: HashMap<String, usize>,
}

#[derive(Default)]
struct Counter {
    /// Ends of the calls that advanced the counter, ns, in order.
    ends: Vec<i64>,
    by: By,
}

/// The processes that advanced a counter.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum By {
    #[default]
    Nobody,
    One(ProcessId),
    Several,
}

/// The counters of a name.
#[derive(Clone, Copy)]
enum Of {
    /// The name was made or removed.
    Changed = 0,
    /// A call used the name.
    Used = 1,
    /// A name below it changed.
    Within = 2,
}

impl Order {
    /// Number of counters.
    pub(super) fn counters(&self) -> usize {
        self.counters.len()
    }

    /// The counts that must be reached before a call, and the counters that it advances. Calls must be
    /// given in the order of their begin.
    pub(super) fn of(
        &mut self,
        kind: &CallKind,
        file: usize,
        path: &str,
        at: Recorded,
    ) -> (Vec<After>, Vec<usize>) {
        let (after, advances) = self.counters_of(kind, file, path);
        let after = after
            .into_iter()
            .filter_map(|counter| self.counters[counter].after(counter, at))
            .collect();
        for &counter in &advances {
            self.counters[counter].advance(at);
        }
        (after, advances)
    }

    /// The counters for which a call waits, and those that it advances.
    fn counters_of(
        &mut self,
        kind: &CallKind,
        file: usize,
        path: &str,
    ) -> (Vec<usize>, Vec<usize>) {
        use CallKind::{
            Close, Flush, Link, List, MakeDirectory, MakeFifo, MakeFile, MakeLink, MakeUnnamed,
            Name, Open, Read, Remove, RemoveDirectory, Rename, Stat, Sync, Truncate, Write,
        };
        let of_file = self.file(file);
        let mut after = vec![of_file];
        let mut advances = Vec::new();
        let is_change = match kind {
            Open {
                truncate, create, ..
            } => *truncate || *create,
            Flush | Close | Read { .. } | Sync | List | Stat => false,
            _ => true,
        };
        if is_change {
            advances.push(of_file);
        }
        match kind {
            // Calls on an open file, which need no name.
            Flush | Close | Read { .. } | Write { .. } | Truncate(_) | Sync => {
                return (after, advances);
            }
            Open { create: false, .. } | List | Stat | MakeUnnamed => {
                advances.push(self.name(path, Of::Used));
            }
            Open { create: true, .. } | MakeDirectory | MakeFile | MakeFifo | MakeLink | Name => {
                self.changes(path, &mut advances);
            }
            Remove | RemoveDirectory => {
                after.push(self.name(path, Of::Used));
                after.push(self.name(path, Of::Within));
                self.changes(path, &mut advances);
            }
            Rename(to) => {
                after.push(self.name(path, Of::Used));
                after.push(self.name(path, Of::Within));
                after.push(self.name(to, Of::Used));
                self.needs(to, &mut after);
                self.changes(path, &mut advances);
                self.changes(to, &mut advances);
            }
            Link(to) => {
                self.needs(to, &mut after);
                advances.push(self.name(path, Of::Used));
                self.changes(to, &mut advances);
            }
        }
        self.needs(path, &mut after);
        (after, advances)
    }

    /// Adds the counters for the existence of a name and of the directories above it.
    fn needs(&mut self, path: &str, after: &mut Vec<usize>) {
        after.push(self.name(path, Of::Changed));
        let mut above = path;
        while let Some((directory, _)) = above.rsplit_once('/') {
            after.push(self.name(directory, Of::Changed));
            above = directory;
        }
    }

    fn changes(&mut self, path: &str, advances: &mut Vec<usize>) {
        advances.push(self.name(path, Of::Changed));
        if let Some((directory, _)) = path.rsplit_once('/') {
            advances.push(self.name(directory, Of::Within));
        }
    }

    fn file(&mut self, file: usize) -> usize {
        let Order {
            counters, of_file, ..
        } = self;
        *of_file.entry(file).or_insert_with(|| {
            counters.push(Counter::default());
            counters.len() - 1
        })
    }

    fn name(&mut self, path: &str, what: Of) -> usize {
        if let Some(first) = self.of_name.get(path) {
            return first + what as usize;
        }
        let first = self.counters.len();
        self.counters.resize_with(first + 3, Counter::default);
        self.of_name.insert(path.to_owned(), first);
        first + what as usize
    }
}

impl Counter {
    /// The count of calls that had ended when a call began; `None` if only the call's own process had
    /// advanced the counter.
    fn after(&self, counter: usize, at: Recorded) -> Option<After> {
        let over = self.ends.partition_point(|&end_ns| end_ns <= at.start_ns);
        let count = u32::try_from(over).unwrap_or(u32::MAX);
        let is_own = matches!(self.by, By::Nobody) || self.by == By::One(at.process);
        (count > 0 && !is_own).then_some(After { counter, count })
    }

    fn advance(&mut self, at: Recorded) {
        // Calls come in the order of their begin, so few of them end later than this one.
        let place = self.ends.partition_point(|&end_ns| end_ns <= at.end_ns);
        self.ends.insert(place, at.end_ns);
        self.by = match self.by {
            By::Nobody => By::One(at.process),
            By::One(process) if process == at.process => self.by,
            _ => By::Several,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(process: u32, start_ns: i64, end_ns: i64) -> Recorded {
        Recorded {
            process: ProcessId(process),
            start_ns,
            end_ns,
        }
    }

    #[test]
    fn a_file_waits_for_the_directories_that_others_made() {
        let mut order = Order::default();
        order.of(&CallKind::MakeDirectory, 0, "out", at(0, 0, 10));
        let make = |order: &mut Order, start| {
            let (after, _) = order.of(
                &CallKind::MakeDirectory,
                1,
                "out/k",
                at(1, start, start + 1),
            );
            after.len()
        };
        assert_eq!(make(&mut order, 20), 1);
        // The directory was still being made, so this call did not need it.
        assert_eq!(make(&mut order, 5), 0);
        let create = CallKind::Open {
            write: true,
            truncate: false,
            create: true,
        };
        let (after, _) = order.of(&create, 2, "out/k/x", at(2, 30, 31));
        assert_eq!(after.len(), 2);
    }

    #[test]
    fn whoever_takes_a_name_away_waits_for_its_users() {
        let open = CallKind::Open {
            write: false,
            truncate: false,
            create: false,
        };
        let mut order = Order::default();
        order.of(&open, 0, "d/x", at(0, 0, 1));
        let (after, _) = order.of(&CallKind::Remove, 0, "d/x", at(1, 2, 3));
        assert_eq!(after.len(), 1);
        let (after, _) = order.of(&CallKind::RemoveDirectory, 1, "d", at(2, 4, 5));
        assert_eq!(after.len(), 1);
        // A directory made again under the same name is another file.
        let (after, _) = order.of(&CallKind::MakeDirectory, 2, "d", at(0, 6, 7));
        assert_eq!(after.len(), 1);
    }

    #[test]
    fn nobody_waits_for_itself() {
        let write = CallKind::Write {
            offset: 0,
            length: 1,
        };
        let mut order = Order::default();
        for n in 0..3 {
            let (after, advances) = order.of(&write, 0, "x", at(0, n * 2, n * 2 + 1));
            assert_eq!((after.len(), advances.len()), (0, 1));
        }
        let read = CallKind::Read {
            offset: 0,
            length: 1,
        };
        let (after, _) = order.of(&read, 0, "x", at(1, 4, 5));
        assert_eq!(
            after.iter().map(|after| after.count).collect::<Vec<_>>(),
            [2]
        );
    }
}
