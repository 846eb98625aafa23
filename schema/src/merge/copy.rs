//! Copying of tables, row by row: memory has one row only, or a few of each file where the rows of all files
//! are put in the order of time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use rusqlite::types::{ToSqlOutput, Type, Value, ValueRef};
use rusqlite::{Connection, Row, Statement};

use super::columns::{self, Change};
use super::input::{self, Input};
use super::translation::Translation;
use super::work::Work;
use crate::Result;

/// Rows in one transaction of an ordered table.
const COMMIT_ROWS: u64 = if cfg!(test) { 10 } else { 100_000 };
/// Files that are kept open while their rows are put in order. More are opened for each refill.
const OPEN_FILES: usize = if cfg!(test) { 3 } else { 100 };
/// Rows of all files together that wait to be put in order.
const BUFFERED_ROWS: usize = 1 << 18;

/// The columns of a table that a file and the merged file both have.
pub(super) struct Columns {
    pub(super) names: Vec<String>,
    changes: Vec<Change>,
    /// Place of the flow, for the rows that turn round with it.
    flow: Option<usize>,
    /// For each column the one whose value it takes when the flow turns round.
    turned: Vec<usize>,
}

impl Columns {
    pub(super) fn of(
        merged: &Connection,
        input: &Input,
        db: &Connection,
        table: &str,
    ) -> Result<Self> {
        let ours = input::columns(merged, table).map_err(|e| input.error(e))?;
        let theirs = input.columns(db, table)?;
        let names: Vec<String> = ours
            .into_iter()
            .filter(|name| theirs.contains(name))
            .collect();
        let changes: Vec<Change> = names
            .iter()
            .map(|name| columns::change(table, name))
            .collect();
        let flow = names
            .iter()
            .position(|name| name == "flow_id")
            // The flows themselves are turned where they are joined.
            .filter(|_| table != "flow");
        let place = |name: &str| names.iter().position(|other| other == name);
        let turned = names.iter().enumerate().map(|(at, name)| {
            let other = columns::turned(name);
            other.and_then(|other| place(&other)).unwrap_or(at)
        });
        Ok(Columns {
            turned: turned.collect(),
            names,
            changes,
            flow,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|other| other == name)
    }

    pub(super) fn insert(&self, table: &str) -> String {
        format!(
            "INSERT INTO {table} ({}) VALUES ({})",
            self.names.join(", "),
            vec!["?"; self.names.len()].join(", ")
        )
    }

    /// Calls `with` with each value of a row, changed; the columns begin at `from`.
    pub(super) fn translate<'row>(
        &self,
        translation: &Translation,
        row: &'row Row<'_>,
        from: usize,
        mut with: impl FnMut(usize, ValueRef<'row>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let is_turned = match self.flow {
            Some(at) if !translation.turned.is_empty() => {
                let flow: Option<i64> = row.get(from + at)?;
                flow.is_some_and(|flow| translation.turned.binary_search(&flow).is_ok())
            }
            _ => false,
        };
        for (place, &change) in self.changes.iter().enumerate() {
            let taken = if is_turned { self.turned[place] } else { place };
            let value = row.get_ref(from + taken)?;
            if let ValueRef::Text(text) = value
                && std::str::from_utf8(text).is_err()
            {
                let reason = format!("a text of {} is not UTF-8", self.names[taken]);
                return Err(rusqlite::Error::FromSqlConversionFailure(
                    from + taken,
                    Type::Text,
                    reason.into(),
                ));
            }
            let value = match value {
                ValueRef::Integer(value) if change == Change::PacketWhat && is_turned => {
                    ValueRef::Integer(translation.integer(change, value ^ 1))
                }
                ValueRef::Text(side) if change == Change::Side && is_turned => {
                    ValueRef::Text(if side == b"src" { b"dst" } else { b"src" })
                }
                ValueRef::Integer(value) => ValueRef::Integer(translation.integer(change, value)),
                other => other,
            };
            with(place, value)?;
        }
        Ok(())
    }
}

/// Copies a table of one file whose order is that of the files.
///
/// # Errors
/// When either file refuses.
pub(super) fn whole(
    work: &Work,
    (input, db): (&Input, &Connection),
    translation: &Translation,
    table: &str,
) -> Result<u64> {
    let columns = Columns::of(&work.db, input, db, table)?;
    if columns.is_empty() {
        return Ok(0);
    }
    let mut insert = work
        .db
        .prepare(&columns.insert(table))
        .map_err(|e| work.error(e))?;
    let select = format!("SELECT {} FROM {table}", columns.names.join(", "));
    let mut select = db.prepare(&select).map_err(|e| input.error(e))?;
    let mut rows = select.query([]).map_err(|e| input.error(e))?;
    let mut count = 0;
    while let Some(row) = rows.next().map_err(|e| input.error(e))? {
        columns
            .translate(translation, row, 0, |place, value| {
                insert.raw_bind_parameter(place + 1, ToSqlOutput::Borrowed(value))
            })
            .and_then(|()| insert.raw_execute())
            .map_err(|e| work.refused(input, e))?;
        count += 1;
    }
    Ok(count)
}

/// A file among those whose rows are put in order.
struct Source<'a> {
    at: usize,
    input: &'a Input,
    translation: &'a Translation,
    db: Option<Connection>,
    columns: Columns,
    key: usize,
    /// Rows read and not yet stored, one value after the other; first the row id of each.
    rows: Vec<Value>,
    next: usize,
    /// Row id of the last row that was read, and of the last that was stored.
    read: Option<i64>,
    stored: Option<i64>,
    is_over: bool,
}

impl Source<'_> {
    fn width(&self) -> usize {
        self.columns.names.len() + 1
    }

    /// The time of the next row; `None`: there is none.
    fn peek(&mut self, table: &str, many: usize) -> Result<Option<i64>> {
        if self.next >= self.rows.len() {
            if self.is_over {
                return Ok(None);
            }
            self.refill(table, many)?;
            if self.rows.is_empty() {
                return Ok(None);
            }
        }
        match self.rows[self.next + 1 + self.key] {
            Value::Integer(time) => Ok(Some(time)),
            _ => Ok(Some(i64::MIN)),
        }
    }

    fn refill(&mut self, table: &str, many: usize) -> Result<()> {
        self.rows.clear();
        self.next = 0;
        let own;
        let db = match &self.db {
            Some(db) => db,
            None => {
                own = self.input.connect()?;
                &own
            }
        };
        let mut read = || -> rusqlite::Result<usize> {
            let mut select = db.prepare_cached(&format!(
                "SELECT rowid, {} FROM {table} WHERE rowid > ?1 ORDER BY rowid LIMIT ?2",
                self.columns.names.join(", ")
            ))?;
            let mut rows = select.query((self.read.unwrap_or(i64::MIN), many as i64))?;
            let mut count = 0;
            while let Some(row) = rows.next()? {
                let id: i64 = row.get(0)?;
                self.rows.push(Value::Integer(id));
                let buffer = &mut self.rows;
                self.columns
                    .translate(self.translation, row, 1, |_, value| {
                        buffer.push(value.try_into()?);
                        Ok(())
                    })?;
                self.read = Some(id);
                count += 1;
            }
            Ok(count)
        };
        let count = read().map_err(|e| self.input.error(e))?;
        self.is_over = count < many;
        Ok(())
    }
}

/// Copies a table of all files in the order of its column `key`, and goes on where it stopped. If
/// `is_unique`, and several rows have one time, the later ones get later times.
///
/// # Errors
/// When one of the files refuses.
pub(super) fn ordered(
    work: &Work,
    inputs: &[Input],
    translations: &[Translation],
    (table, key, is_unique): (&str, &str, bool),
    progress: &mut dyn FnMut(&str, u64),
) -> Result<u64> {
    if work.is_done(table)? {
        return Ok(0);
    }
    let many = (BUFFERED_ROWS / inputs.len().max(1)).clamp(64, 4096);
    let mut sources = Vec::new();
    for (at, (input, translation)) in inputs.iter().zip(translations).enumerate() {
        let db = input.connect()?;
        let columns = Columns::of(&work.db, input, &db, table)?;
        let Some(key) = columns.place(key) else {
            continue;
        };
        let stored = work.cursor(table, at)?;
        sources.push(Source {
            at,
            input,
            translation,
            db: (inputs.len() <= OPEN_FILES).then_some(db),
            columns,
            key,
            rows: Vec::new(),
            next: 0,
            read: stored,
            stored: None,
            is_over: false,
        });
    }
    let mut heap = BinaryHeap::new();
    for (place, source) in sources.iter_mut().enumerate() {
        if let Some(time) = source.peek(table, many)? {
            heap.push(Reverse((time, place)));
        }
    }
    let mut last = match is_unique {
        true => work
            .db
            .query_row(&format!("SELECT MAX({key}) FROM {table}"), [], |row| {
                row.get(0)
            })
            .map_err(|e| work.error(e))?,
        false => None,
    };
    let mut inserts: HashMap<Vec<String>, Statement<'_>> = HashMap::new();
    let mut count = 0u64;
    work.sql("BEGIN IMMEDIATE")?;
    while let Some(Reverse((mut time, place))) = heap.pop() {
        let source = &mut sources[place];
        if is_unique {
            if let Some(last) = last {
                time = time.max(last + 1);
            }
            last = Some(time);
        }
        if !inserts.contains_key(&source.columns.names) {
            let insert = work
                .db
                .prepare(&source.columns.insert(table))
                .map_err(|e| work.error(e))?;
            inserts.insert(source.columns.names.clone(), insert);
        }
        let Some(insert) = inserts.get_mut(&source.columns.names) else {
            continue;
        };
        let row = &source.rows[source.next..source.next + source.width()];
        let mut store = || -> rusqlite::Result<()> {
            for (place, value) in row[1..].iter().enumerate() {
                let value = if is_unique && place == source.key {
                    ValueRef::Integer(time)
                } else {
                    value.into()
                };
                insert.raw_bind_parameter(place + 1, ToSqlOutput::Borrowed(value))?;
            }
            insert.raw_execute().map(|_| ())
        };
        store().map_err(|e| work.refused(source.input, e))?;
        if let Value::Integer(id) = row[0] {
            source.stored = Some(id);
        }
        source.next += source.width();
        if let Some(time) = source.peek(table, many)? {
            heap.push(Reverse((time, place)));
        }
        count += 1;
        if count.is_multiple_of(COMMIT_ROWS) {
            store_cursors(work, table, &mut sources)?;
            work.sql("COMMIT; BEGIN IMMEDIATE")?;
            progress(table, count);
        }
    }
    work.done(table)?;
    work.sql("COMMIT")?;
    Ok(count)
}

fn store_cursors(work: &Work, table: &str, sources: &mut [Source<'_>]) -> Result<()> {
    for source in sources {
        if let Some(at) = source.stored.take() {
            work.set_cursor(table, source.at, at)?;
        }
    }
    Ok(())
}
