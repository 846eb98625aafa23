//! Who waited for a file by looking for it again and again: `while [ ! -e done ]; do sleep 1; done`.

use std::collections::HashMap;

use flowtrace_schema::{AppearedRow, CallRow, Op, Result, Trace};

use super::file_index::file_index;
use crate::model::{Access, FileIndex, Poll, ProcessId, Workflow};

/// `ENOENT`, negative as results have it.
const ABSENT: i64 = -2;
/// Fewer looks are no habit.
const FEWEST: u32 = 3;
/// What comes that long after the time at which the next look was due is not what they were for, ns.
const SLACK: i64 = 20_000_000;
/// A call by which a name came began no longer before, ns.
const LONGEST: i64 = 1_000_000_000;

/// Looks in vain for one name.
#[derive(Clone, Copy)]
struct Look {
    count: u32,
    first_ns: i64,
    last_ns: i64,
}

impl Look {
    /// Whether a moment is that of the next look, by the distance of those before, or soon after.
    fn is_next(&self, at_ns: i64) -> bool {
        let between = (self.last_ns - self.first_ns) / i64::from(self.count - 1);
        at_ns > self.last_ns && at_ns - self.last_ns <= between * 2 + SLACK
    }
}

/// All looks in vain, and what made the names that came to be later, collected while the calls go by.
#[derive(Default)]
pub(super) struct Looks {
    looks: HashMap<(ProcessId, FileIndex), Look>,
    /// Of each name that was absent when something appeared there, in the order of time.
    appeared: HashMap<FileIndex, Vec<AppearedRow>>,
    /// When each file that appeared so was made, or moved, and by which image; in the order of time.
    made: HashMap<i64, Vec<(i64, Option<i64>)>>,
}

impl Looks {
    pub(super) fn of(workflow: &Workflow, trace: &Trace) -> Result<Looks> {
        let mut looks = Looks::default();
        for row in trace.appeared()? {
            if let Some(absent) = file_index(&workflow.files, row.absent_id) {
                looks.made.entry(row.file_id).or_default();
                looks.appeared.entry(absent).or_default().push(row);
            }
        }
        Ok(looks)
    }

    /// Whether a call is one.
    pub(super) fn is_one(call: &CallRow) -> bool {
        call.result == ABSENT && call.op == Some(Op::Lookup)
    }

    pub(super) fn add(&mut self, process: ProcessId, file: FileIndex, at_ns: i64) {
        let look = self.looks.entry((process, file)).or_insert(Look {
            count: 0,
            first_ns: at_ns,
            last_ns: at_ns,
        });
        look.count += 1;
        look.last_ns = at_ns;
    }

    /// Notes a successful call if it made, or moved there, what appeared under a name.
    pub(super) fn note_maker(&mut self, call: &CallRow) {
        let makes = matches!(
            call.op,
            Some(Op::Create | Op::Mknod | Op::Mkdir | Op::Symlink | Op::Link | Op::Rename)
        );
        if makes && let Some(made) = call.file_id.and_then(|id| self.made.get_mut(&id)) {
            made.push((call.start_ns, call.upid));
        }
    }

    /// The waits among them: looks at equal distances, then another process made the file, then it was found.
    pub(super) fn polls(self, workflow: &Workflow) -> Vec<Poll> {
        let places = workflow.image_places();
        let mut polls = Vec::new();
        for (&(poller, file), look) in &self.looks {
            if look.count < FEWEST {
                continue;
            }
            // The first that came after the last look.
            let rows = self.appeared.get(&file).map_or(&[][..], Vec::as_slice);
            let next = rows.get(rows.partition_point(|row| row.from_ns <= look.last_ns));
            let is_it =
                |row: &&AppearedRow| look.is_next(row.from_ns) && is_found(workflow, poller, row);
            let Some(row) = next.filter(is_it) else {
                continue;
            };
            let by = self.made_by(row).and_then(|upid| places.get(&upid));
            let by = by.map(|&place| workflow.images[place].process);
            if let Some(by) = by.filter(|&by| by != poller) {
                polls.push(Poll {
                    poller,
                    from_ns: look.first_ns,
                    made_ns: row.from_ns,
                    by,
                    is_lock: false,
                });
            }
        }
        polls
    }

    /// The process image that made a file, or moved it there.
    fn made_by(&self, row: &AppearedRow) -> Option<i64> {
        let made = self.made.get(&row.file_id)?;
        let until = made.partition_point(|&(at, _)| at <= row.from_ns);
        let &(at, by) = made[..until].last()?;
        by.filter(|_| at >= row.from_ns - LONGEST)
    }
}

/// Whether a process used the file once it was there.
fn is_found(workflow: &Workflow, poller: ProcessId, row: &AppearedRow) -> bool {
    let file = file_index(&workflow.files, row.file_id);
    let key = |one: &Access| (one.process, Some(one.file));
    let place = workflow.accesses.binary_search_by_key(&(poller, file), key);
    place.is_ok_and(|place| workflow.accesses[place].span_ns.1 >= row.from_ns)
}
