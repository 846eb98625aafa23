//! Who waited for a file by looking for it again and again: `while [ ! -e done ]; do sleep 1; done`.

use std::collections::HashMap;

use flowtrace_schema::{AppearedRow, CallRow, Op, Result, Trace};

use super::file_index;
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

/// All looks in vain, collected while the calls go by.
#[derive(Default)]
pub(super) struct Looks(HashMap<(ProcessId, FileIndex), Look>);

impl Looks {
    /// Whether a call is one.
    pub(super) fn is_one(call: &CallRow) -> bool {
        call.result == ABSENT && call.op == Some(Op::Lookup)
    }

    pub(super) fn add(&mut self, process: ProcessId, file: FileIndex, at_ns: i64) {
        let look = self.0.entry((process, file)).or_insert(Look {
            count: 0,
            first_ns: at_ns,
            last_ns: at_ns,
        });
        look.count += 1;
        look.last_ns = at_ns;
    }

    /// The waits among them: looks at equal distances, then another process made the file, then it was found.
    pub(super) fn polls(mut self, workflow: &Workflow, trace: &Trace) -> Result<Vec<Poll>> {
        self.0.retain(|_, look| look.count >= FEWEST);
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        let mut appeared: HashMap<FileIndex, Vec<AppearedRow>> = HashMap::new();
        for row in trace.appeared()? {
            if let Some(absent) = file_index(&workflow.files, row.absent_id) {
                appeared.entry(absent).or_default().push(row);
            }
        }
        let places = workflow.image_places();
        let mut polls = Vec::new();
        for (&(poller, file), look) in &self.0 {
            let mut rows = appeared.get(&file).into_iter().flatten();
            let next = rows.find(|row| look.is_next(row.from_ns));
            let Some(row) = next.filter(|row| is_found(workflow, poller, row)) else {
                continue;
            };
            let by = made_by(trace, row)?.and_then(|upid| places.get(&upid));
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
        polls.sort_unstable_by_key(|poll| (poll.poller, poll.from_ns, poll.made_ns));
        Ok(polls)
    }
}

/// Whether a process used the file once it was there.
fn is_found(workflow: &Workflow, poller: ProcessId, row: &AppearedRow) -> bool {
    let file = file_index(&workflow.files, row.file_id);
    let key = |one: &Access| (one.process, Some(one.file));
    let place = workflow.accesses.binary_search_by_key(&(poller, file), key);
    place.is_ok_and(|place| workflow.accesses[place].span_ns.1 >= row.from_ns)
}

/// The process image that made a file, or moved it there.
fn made_by(trace: &Trace, row: &AppearedRow) -> Result<Option<i64>> {
    let mut by = None;
    trace.for_each_call_within(row.from_ns - LONGEST..=row.from_ns, |call| {
        let makes = matches!(
            call.op,
            Some(Op::Create | Op::Mknod | Op::Mkdir | Op::Symlink | Op::Link | Op::Rename)
        );
        if makes && call.result >= 0 && call.file_id == Some(row.file_id) {
            by = call.upid;
        }
    })?;
    Ok(by)
}
