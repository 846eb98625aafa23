//! Bounds of the bytes that a process may have moved through the ends of channels that it had open.
//!
//! An end whose bytes were not counted is bounded by all that its image moved while it had the end open, as
//! the kernel counts reads and writes per process. So the bounds of several ends do not add: they are bounds
//! of one sum.

use std::collections::{HashMap, HashSet};

use flowtrace_schema::ChannelEndRow;

use crate::model::{ProcessId, Side, Workflow};

/// Greatest number of bytes that images moved in a direction from a certain time to their end: a bound also
/// for ends that they closed earlier, of which no bound is known.
pub(super) struct Bounds<'a> {
    /// Begin of the time, ns, and bytes, by image and direction.
    whole: HashMap<(i64, &'a str), (i64, i64)>,
}

impl<'a> Bounds<'a> {
    pub(super) fn of(rows: &'a [ChannelEndRow]) -> Self {
        let mut whole = HashMap::new();
        for end in rows.iter().filter(|end| end.to_ns.is_none()) {
            if let Some(bytes) = end.at_most_bytes {
                let bound = (end.from_ns, bytes);
                let first = whole
                    .entry((end.upid, end.direction.as_str()))
                    .or_insert(bound);
                *first = bound.min(*first);
            }
        }
        Bounds { whole }
    }

    /// Greatest number of bytes moved through one end; `None`: not known.
    pub(super) fn of_end(&self, end: &ChannelEndRow) -> Option<i64> {
        let whole = || {
            let whole = self.whole.get(&(end.upid, end.direction.as_str()));
            whole.filter(|(from, _)| *from <= end.from_ns)
        };
        end.at_most_bytes.or_else(|| Some(whole()?.1))
    }

    /// Greatest number of bytes that each process moved in a direction through all its ends, where that is
    /// known.
    pub(super) fn of_processes(
        &self,
        workflow: &Workflow,
        images: &HashMap<i64, usize>,
        rows: &[ChannelEndRow],
    ) -> HashMap<(ProcessId, Side), i64> {
        // Counted bytes, and the largest of the bounds of the rest.
        let mut moved: HashMap<(usize, Side), (i64, i64)> = HashMap::new();
        let mut unknown = HashSet::new();
        for end in rows {
            let Some(&place) = images.get(&end.upid) else {
                continue;
            };
            for (side, other) in [(Side::Write, "read"), (Side::Read, "write")] {
                if end.direction == other {
                    continue;
                }
                let Some(bytes) = self.of_end(end) else {
                    unknown.insert((workflow.images[place].process, side));
                    continue;
                };
                let (counted, rest) = moved.entry((place, side)).or_default();
                match end.used {
                    Some(1) => *counted = counted.saturating_add(bytes),
                    _ => *rest = bytes.max(*rest),
                }
            }
        }
        let mut totals = HashMap::new();
        for ((place, side), (counted, rest)) in moved {
            let key = (workflow.images[place].process, side);
            let total: &mut i64 = totals.entry(key).or_default();
            *total = total.saturating_add(counted).saturating_add(rest);
        }
        totals.retain(|key, _| !unknown.contains(key));
        totals
    }
}
