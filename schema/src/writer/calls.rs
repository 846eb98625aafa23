//! Calls on their way into their table, which keeps them in the order of time.

use rusqlite::{Connection, Result};

use super::bulk::{Inserts, ROWS, is_taken};
use crate::op::HIGH_FIDELITY_SHIFT;
use crate::{Call, Class, Fidelity, Op};

const COLUMNS: [&str; 9] = [
    "start_ns",
    "duration_ns",
    "upid",
    "tid",
    "what",
    "file_id",
    "offset",
    "length",
    "result",
];

type Row = super::bulk::Row<{ COLUMNS.len() }>;

/// The table of calls of one connection.
#[derive(Default)]
pub(super) struct CallTable<'db> {
    inserts: Inserts<'db, { COLUMNS.len() }>,
    /// End of the last call on each file. File ids are counted, so that a list serves as a map.
    last_ns: Vec<u64>,
    /// Time that each process image spent in calls; upids are counted, too.
    caller_ns: Vec<u64>,
}

impl<'db> CallTable<'db> {
    /// Stores calls that are in the order of time.
    pub(super) fn insert(&mut self, db: &'db Connection, calls: &[Call]) -> Result<()> {
        let mut last_start = -1;
        let mut rest = calls;
        while !rest.is_empty() {
            let (insert, rows) = self.inserts.of(db, "call", &COLUMNS, rest.len())?;
            let (now, later) = rest.split_at(rows);
            let mut starts = [0; ROWS[0]];
            for (place, call) in now.iter().enumerate() {
                last_start = (call.start_ns as i64).max(last_start + 1);
                starts[place] = last_start;
                insert.bind(place, row(call, last_start))?;
            }
            match insert.statement.raw_execute() {
                Ok(_) => {}
                Err(error) if is_taken(&error) => {
                    let stored = db.changes() as usize;
                    last_start = self.insert_between(db, &now[stored..], starts[stored])?;
                }
                Err(error) => return Err(error),
            }
            rest = later;
        }
        for call in calls {
            self.note_end(call);
            self.note_caller(call);
        }
        Ok(())
    }

    /// As [`CallTable::insert`], where earlier calls have taken some of the times, `taken` of the first call
    /// among them. Returns the last time that was used.
    #[cold]
    fn insert_between(&mut self, db: &'db Connection, calls: &[Call], taken: i64) -> Result<i64> {
        let mut last_start = taken;
        let (insert, _) = self.inserts.of(db, "call", &COLUMNS, 1)?;
        for call in calls {
            last_start = (call.start_ns as i64).max(last_start + 1);
            loop {
                insert.bind(0, row(call, last_start))?;
                match insert.statement.raw_execute() {
                    Ok(_) => break,
                    Err(error) if is_taken(&error) => last_start += 1,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(last_start)
    }

    fn note_end(&mut self, call: &Call) {
        let Some(file) = call.file else { return };
        let at = file.0 as usize;
        if at >= self.last_ns.len() {
            self.last_ns.resize(at + 1, 0);
        }
        let end = call.start_ns.saturating_add(call.duration_ns);
        self.last_ns[at] = self.last_ns[at].max(end);
    }

    fn note_caller(&mut self, call: &Call) {
        let Some(upid) = call.upid else { return };
        // Nothing waits for a release or for the page cache's own calls, and a thread that waits for a lock
        // does not wait for storage.
        let waited_for = !matches!(call.op, Op::Release | Op::Releasedir | Op::Poll)
            && call.op.class() != Class::Lock
            && matches!(call.fidelity, Fidelity::Exact | Fidelity::Lossy);
        if waited_for {
            add_at(&mut self.caller_ns, upid.0 as usize, call.duration_ns);
        }
    }

    /// Completes the files with the end of the last call on each, and the processes with the time
    /// that their calls took.
    pub(super) fn store_ends(&self, db: &Connection) -> Result<()> {
        let mut update = db.prepare("UPDATE file SET last_ns = ?2 WHERE file_id = ?1")?;
        for (file, &end) in self.last_ns.iter().enumerate() {
            if end > 0 {
                update.execute((file as i64, end as i64))?;
            }
        }
        let mut update = db.prepare("UPDATE process SET file_call_ns = ?2 WHERE upid = ?1")?;
        for (upid, &spent) in self.caller_ns.iter().enumerate() {
            if spent > 0 {
                update.execute((upid as i64, spent as i64))?;
            }
        }
        Ok(())
    }
}

fn add_at(sums: &mut Vec<u64>, at: usize, value: u64) {
    if at >= sums.len() {
        sums.resize(at + 1, 0);
    }
    sums[at] = sums[at].saturating_add(value);
}

fn row(call: &Call, start_ns: i64) -> Row {
    // A call that got all it asked for needs no second number.
    let whole = call
        .length
        .is_some_and(|length| i64::try_from(length) == Ok(call.result));
    [
        Some(start_ns),
        Some(call.duration_ns as i64),
        call.upid.map(i64::from),
        call.tid.map(i64::from),
        Some(what(call)),
        call.file.map(i64::from),
        call.offset.map(|v| v as i64),
        call.length.map(|v| v as i64),
        (!whole).then_some(call.result),
    ]
}

/// The column `what`: one number where three would each cost a byte of every row, mostly for
/// nothing.
fn what(call: &Call) -> i64 {
    let flags = call.flags.map_or(0, |flags| i64::from(flags) + 1);
    let fidelity = call.fidelity as i64;
    call.op as i64 | (fidelity & 3) << 6 | (fidelity & 4) << HIGH_FIDELITY_SHIFT | flags << 8
}
