//! Accesses of process images to files and names, calls of one kind in one row.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use rusqlite::Connection;

use super::Trace;
use super::rows::{ActionRow, amounts};
use crate::Result;
use crate::op::{Class, FLAGS_MASK, Op};

impl Trace {
    /// The changes of files and names by process images, in the order of time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn actions(&self) -> Result<Vec<ActionRow>> {
        actions(&self.db).map_err(|source| self.unreadable(source))
    }
}

/// One pass over the calls in the order of time: SQL would sort all of them first.
fn actions(db: &Connection) -> rusqlite::Result<Vec<ActionRow>> {
    let names: Vec<(Op, Arc<str>, Arc<str>)> = Op::ALL
        .iter()
        .map(|&op| (op, op.name().into(), op.class().name().into()))
        .collect();
    let mut rows: Vec<ActionRow> = Vec::new();
    let mut places: HashMap<(i64, i64, i64, u8, bool), usize> = HashMap::new();
    let mut statement = db.prepare(
        "SELECT upid, file_id, what, start_ns, duration_ns, length, result FROM call
         WHERE upid IS NOT NULL AND file_id IS NOT NULL ORDER BY start_ns",
    )?;
    let mut calls = statement.query([])?;
    while let Some(call) = calls.next()? {
        let what: i64 = call.get(2)?;
        let number = (what & 63) as u8;
        let Some((op, name, class)) = usize::from(number)
            .checked_sub(1)
            .and_then(|at| names.get(at))
        else {
            continue;
        };
        let flags = (what >> 8) & FLAGS_MASK;
        let (upid, file_id): (i64, i64) = (call.get(0)?, call.get(1)?);
        let time = |place, name| amounts::read::<i64>(call, place, name, true);
        let (start, duration) = (time(3, "start_ns")?, time(4, "duration_ns")?);
        let (length, result): (Option<i64>, Option<i64>) = (call.get(5)?, call.get(6)?);
        let failed = result.is_some_and(|result| result < 0);
        // Each of these has another name.
        let is_alone = op.class() == Class::Namespace || matches!(op, Op::Create | Op::Open);
        let new = || ActionRow {
            upid,
            file_id,
            op: Arc::clone(name),
            class: Arc::clone(class),
            flags: (flags != 0).then(|| flags - 1),
            failed,
            first_ns: start,
            ..ActionRow::default()
        };
        let place = if is_alone {
            rows.push(new());
            rows.len() - 1
        } else {
            match places.entry((upid, file_id, flags, number, failed)) {
                Entry::Occupied(place) => *place.get(),
                Entry::Vacant(place) => {
                    rows.push(new());
                    *place.insert(rows.len() - 1)
                }
            }
        };
        let row = &mut rows[place];
        row.calls += 1;
        row.last_ns = row.last_ns.max(start.saturating_add(duration));
        if matches!(op.class(), Class::Read | Class::Write) {
            let moved = result.or(length).unwrap_or(0).max(0);
            row.bytes = row.bytes.saturating_add(moved);
        }
        if *op == Op::Truncate {
            row.length = row.length.max(length);
        }
    }
    Ok(rows)
}
