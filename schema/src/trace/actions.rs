//! Accesses of process images to files and names, calls of one kind in one row.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::Trace;
use super::rows::ActionRow;
use crate::op::{Class, Op};
use crate::{CallRow, Result};

impl Trace {
    /// The changes of files and names by process images, in the order of time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn actions(&self) -> Result<Vec<ActionRow>> {
        // One pass in the order of time: SQL would sort all calls first.
        let mut actions = Actions::default();
        self.for_each_call(|call| actions.add(call))?;
        Ok(actions.rows)
    }
}

#[derive(Default)]
struct Actions {
    rows: Vec<ActionRow>,
    /// Places of rows of several calls, by image, file, flags, operation and failure.
    places: HashMap<(i64, i64, Option<i64>, Op, bool), usize>,
    /// One copy of each name.
    names: HashMap<&'static str, Arc<str>>,
}

impl Actions {
    fn add(&mut self, call: &CallRow) {
        let (Some(upid), Some(file_id), Some(op)) = (call.upid, call.file_id, call.op) else {
            return;
        };
        let failed = call.result < 0;
        // Each of these calls has another name.
        let is_alone = op.class() == Class::Namespace || matches!(op, Op::Create | Op::Open);
        let next = self.rows.len();
        let place = match self.places.entry((upid, file_id, call.flags, op, failed)) {
            _ if is_alone => next,
            Entry::Occupied(place) => *place.get(),
            Entry::Vacant(place) => *place.insert(next),
        };
        if place == next {
            let mut text = |name| Arc::clone(self.names.entry(name).or_insert_with(|| name.into()));
            self.rows.push(ActionRow {
                upid,
                file_id,
                op: text(op.name()),
                class: text(op.class().name()),
                flags: call.flags,
                failed,
                first_ns: call.start_ns,
                ..ActionRow::default()
            });
        }
        let row = &mut self.rows[place];
        row.calls += 1;
        row.last_ns = row
            .last_ns
            .max(call.start_ns.saturating_add(call.duration_ns));
        if matches!(op.class(), Class::Read | Class::Write) {
            row.bytes = row.bytes.saturating_add(call.result.max(0));
        }
        if op == Op::Truncate {
            row.length = row.length.max(call.length);
        }
    }
}
