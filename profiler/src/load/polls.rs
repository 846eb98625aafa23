//! Processes that waited for a file by looking it up again and again:
//! `while [ ! -e done ]; do sleep 1; done`.

use std::collections::HashMap;

use flowtrace_schema::{AppearedRow, CallRow, Class, Op, Result, Trace};

use super::file_index::file_index;
use crate::model::{Access, FileIndex, Poll, ProcessId, Workflow};

/// `ENOENT`, negative as results have it.
const ABSENT: i64 = -2;
/// Fewer failed lookups are no polling.
const FEWEST: u32 = 3;
/// A file that appears later than this after the next lookup was due is not the one that the lookups were
/// for, ns.
const SLACK: i64 = 20_000_000;
/// A call that gave a file its name began at most this long before the name appeared, ns.
const LONGEST: i64 = 1_000_000_000;

/// Failed lookups of one name by one process.
#[derive(Clone, Copy)]
struct Lookup {
    count: u32,
    first_ns: i64,
    last_ns: i64,
}

impl Lookup {
    /// Returns true if the next lookup is due at `at_ns`, by the distance of those before, or was due shortly
    /// before.
    fn is_next(&self, at_ns: i64) -> bool {
        let between = (self.last_ns - self.first_ns) / i64::from(self.count - 1);
        at_ns > self.last_ns && at_ns - self.last_ns <= between * 2 + SLACK
    }
}

/// All failed lookups, and the calls that later made the names, collected as the calls are read.
#[derive(Default)]
pub(super) struct Lookups {
    lookups: HashMap<(ProcessId, FileIndex), Lookup>,
    /// For each name that was absent, the times at which a file appeared there, in order.
    appeared: HashMap<FileIndex, Vec<AppearedRow>>,
    /// For each file that appeared so: time at which it was made or moved there, and image that did it; in
    /// the order of time.
    made: HashMap<i64, Vec<(i64, Option<i64>)>>,
}

impl Lookups {
    pub(super) fn of(workflow: &Workflow, trace: &Trace) -> Result<Lookups> {
        let mut lookups = Lookups::default();
        for row in trace.appeared()? {
            if let Some(absent) = file_index(&workflow.files, row.absent_id) {
                lookups.made.entry(row.file_id).or_default();
                lookups.appeared.entry(absent).or_default().push(row);
            }
        }
        Ok(lookups)
    }

    /// Returns true if a call is a failed lookup.
    pub(super) fn is_one(call: &CallRow) -> bool {
        // A mount is asked for the name first; recorded by eBPF, the call itself fails.
        let asks = |op: Op| matches!(op.class(), Class::Attribute | Class::Open);
        call.result == ABSENT && call.op.is_some_and(asks)
    }

    pub(super) fn add(&mut self, process: ProcessId, file: FileIndex, at_ns: i64) {
        let lookup = self.lookups.entry((process, file)).or_insert(Lookup {
            count: 0,
            first_ns: at_ns,
            last_ns: at_ns,
        });
        lookup.count += 1;
        lookup.last_ns = at_ns;
    }

    /// Notes a successful call if it made a file that appeared under a name, or moved it there.
    pub(super) fn note_maker(&mut self, call: &CallRow) {
        let makes = matches!(
            call.op,
            Some(Op::Create | Op::Mknod | Op::Mkdir | Op::Symlink | Op::Link | Op::Rename)
        );
        if makes && let Some(made) = call.file_id.and_then(|id| self.made.get_mut(&id)) {
            made.push((call.start_ns, call.upid));
        }
    }

    /// The waits: lookups at equal distances, then another process made the file, then it was found.
    pub(super) fn polls(self, workflow: &Workflow) -> Vec<Poll> {
        let places = workflow.image_places();
        let mut polls = Vec::new();
        for (&(poller, file), lookup) in &self.lookups {
            if lookup.count < FEWEST {
                continue;
            }
            // The first file that appeared after the last failed lookup.
            let rows = self.appeared.get(&file).map_or(&[][..], Vec::as_slice);
            let next = rows.get(rows.partition_point(|row| row.from_ns <= lookup.last_ns));
            let is_it =
                |row: &&AppearedRow| lookup.is_next(row.from_ns) && is_found(workflow, poller, row);
            let Some(row) = next.filter(is_it) else {
                continue;
            };
            let by = self.made_by(row).and_then(|upid| places.get(&upid));
            let by = by.map(|&place| workflow.images[place].process);
            if let Some(by) = by.filter(|&by| by != poller) {
                polls.push(Poll {
                    poller,
                    from_ns: lookup.first_ns,
                    made_ns: row.from_ns,
                    by,
                    is_lock: false,
                });
            }
        }
        polls
    }

    /// The process image that made a file, or moved it to its name.
    fn made_by(&self, row: &AppearedRow) -> Option<i64> {
        let made = self.made.get(&row.file_id)?;
        let until = made.partition_point(|&(at, _)| at <= row.from_ns);
        let &(at, by) = made[..until].last()?;
        by.filter(|_| at >= row.from_ns - LONGEST)
    }
}

/// Returns true if a process used the file once it was there.
fn is_found(workflow: &Workflow, poller: ProcessId, row: &AppearedRow) -> bool {
    let file = file_index(&workflow.files, row.file_id);
    let key = |one: &Access| (one.process, Some(one.file));
    let place = workflow.accesses.binary_search_by_key(&(poller, file), key);
    place.is_ok_and(|place| workflow.accesses[place].span_ns.1 >= row.from_ns)
}
