//! The uses of each file by each process, summed up while the calls are read: the rows of the view
//! `file_access`. In SQL this view takes many times as long as all others, and the view `edges` would
//! compute it twice.

use ahash::AHashMap;
use flowtrace_schema::open_flags::{O_ACCMODE, O_RDONLY, O_RDWR, O_WRONLY};
use flowtrace_schema::{AccessRow, CallRow, Class, Op};

/// Sums by process image and file.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    rows: Vec<AccessRow>,
    places: AHashMap<(i64, i64), usize>,
    /// The sum used last, since most calls are of the process and file of the call before.
    last: Option<((i64, i64), usize)>,
}

impl Accesses {
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a call, as the SQL of the view does.
    pub(super) fn add(&mut self, call: &CallRow, op: Op) {
        // A result that equals the length is stored as NULL, which is no failure.
        let has_failed = call.result < 0 && call.length != Some(call.result);
        let (Some(upid), Some(file), false) = (call.upid, call.file_id, has_failed) else {
            return;
        };
        let row = self.row((upid, file), call.start_ns);
        let end_ns = call.start_ns.saturating_add(call.duration_ns);
        row.calls += 1;
        row.first_ns = row.first_ns.min(call.start_ns);
        row.last_ns = row.last_ns.max(end_ns);
        row.creates += i64::from(matches!(
            op,
            Op::Create | Op::Mknod | Op::Mkdir | Op::Symlink
        ));
        match op.class() {
            Class::Open => {
                let mode = call.flags.unwrap_or(-1) & O_ACCMODE;
                row.opens += 1;
                row.read_opens += i64::from(matches!(mode, O_RDONLY | O_RDWR));
                row.write_opens += i64::from(matches!(mode, O_WRONLY | O_RDWR));
            }
            Class::Read => {
                row.reads += 1;
                row.read_bytes = row.read_bytes.saturating_add(call.result);
                row.read_ns = row.read_ns.saturating_add(call.duration_ns);
            }
            Class::Write => {
                row.changes += 1;
                row.write_ns = row.write_ns.saturating_add(call.duration_ns);
            }
            _ => {}
        }
        if matches!(op, Op::Write | Op::CopyTo) {
            row.writes += 1;
            row.write_bytes = row.write_bytes.saturating_add(call.result);
        }
    }

    fn row(&mut self, key: (i64, i64), start_ns: i64) -> &mut AccessRow {
        let place = match self.last {
            Some((last, place)) if last == key => place,
            _ => {
                let rows = &mut self.rows;
                let place = *self.places.entry(key).or_insert_with(|| {
                    rows.push(AccessRow {
                        upid: key.0,
                        file_id: key.1,
                        first_ns: start_ns,
                        last_ns: start_ns,
                        ..AccessRow::default()
                    });
                    rows.len() - 1
                });
                self.last = Some((key, place));
                place
            }
        };
        &mut self.rows[place]
    }

    /// Adds the sums of another thread.
    pub(super) fn join(&mut self, other: Accesses) {
        drop(other.places);
        for from in other.rows {
            let to = self.row((from.upid, from.file_id), from.first_ns);
            to.first_ns = to.first_ns.min(from.first_ns);
            to.last_ns = to.last_ns.max(from.last_ns);
            for (sum, more) in [
                (&mut to.opens, from.opens),
                (&mut to.creates, from.creates),
                (&mut to.changes, from.changes),
                (&mut to.reads, from.reads),
                (&mut to.read_bytes, from.read_bytes),
                (&mut to.read_ns, from.read_ns),
                (&mut to.writes, from.writes),
                (&mut to.write_bytes, from.write_bytes),
                (&mut to.write_ns, from.write_ns),
                (&mut to.read_opens, from.read_opens),
                (&mut to.write_opens, from.write_opens),
                (&mut to.calls, from.calls),
            ] {
                *sum = sum.saturating_add(more);
            }
        }
    }

    /// The sums, in the order of process images and files, as in the view.
    pub(super) fn into_rows(mut self) -> Vec<AccessRow> {
        drop(self.places);
        self.rows
            .sort_unstable_by_key(|row| (row.upid, row.file_id));
        self.rows
    }
}
