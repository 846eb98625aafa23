//! Reading a trace while it grows: the rows behind those that were read before, in short read transactions.
//!
//! A read transaction keeps the recorder from moving its log into the file, so that none lasts longer than
//! [`PATIENCE`]: what does not fit comes with the next call.

use std::time::{Duration, Instant};

use rusqlite::{OptionalExtension, Params};

use super::Trace;
use super::rows::{
    BeganRow, DataRow, EndRow, EndedRow, FileRow, FromRow, GrowingSampleRow, MeasuredRow, Texts,
};
use crate::op::flags_of_what;
use crate::{Class, Op, Result};

/// Longest time for which rows are read in one transaction.
pub(super) const PATIENCE: Duration = Duration::from_millis(20);
/// Rows between two looks at the clock.
pub(super) const ROWS: usize = 256;

/// Rows that were read, and whether these were all.
#[derive(Clone, Debug)]
pub struct Grown<T> {
    /// The rows, in the order of their keys.
    pub rows: Vec<T>,
    /// False if there may be more.
    pub is_all: bool,
}

impl Trace {
    /// Closes the file until [`Trace::reopen`]: a recording that ends makes its trace one single file, which it
    /// cannot while another program has it open. Meanwhile every question fails.
    ///
    /// # Errors
    /// When SQLite has no memory.
    pub fn close(&mut self) -> Result<()> {
        let nothing = rusqlite::Connection::open_in_memory();
        self.db = nothing.map_err(|source| self.unreadable(source))?;
        Ok(())
    }

    /// Opens the file again.
    ///
    /// # Errors
    /// As for [`Trace::open`].
    pub fn reopen(&mut self) -> Result<()> {
        self.db = crate::store::open_read_only(&self.path)?;
        Ok(())
    }

    /// The process images with a greater id.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn began_after(&self, upid: i64) -> Result<Grown<BeganRow>> {
        self.grown(
            "SELECT upid, pid, parent_upid, prev_upid, origin, exe, rule,
               CAST(COALESCE(command, (SELECT first.command FROM process AS first
                 WHERE first.upid = image.command_upid)) AS TEXT) AS command,
               cwd, start_ns, end_ns, exit_code, exit_signal,
               COALESCE(on_cpu_ns, user_ns + sys_ns) AS cpu_ns FROM process AS image WHERE upid > ?1 ORDER BY upid",
            [upid],
        )
    }

    /// The end of an image; `None`: it goes on.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn ended(&self, upid: i64) -> Result<Option<EndedRow>> {
        self.one(
            "SELECT end_ns, exit_code, exit_signal, COALESCE(on_cpu_ns, user_ns + sys_ns) AS cpu_ns
             FROM process WHERE upid = ?1 AND end_ns IS NOT NULL",
            [upid],
        )
    }

    /// The activities of threads with a greater id.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn samples_after(&self, sample_id: i64) -> Result<Grown<GrowingSampleRow>> {
        self.grown(
            &format!("{SAMPLE} WHERE sample_id > ?1 ORDER BY sample_id"),
            [sample_id],
        )
    }

    /// An activity as it is by now; `None`: there is no such row, or not yet.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn sample(&self, sample_id: i64) -> Result<Option<GrowingSampleRow>> {
        self.one(&format!("{SAMPLE} WHERE sample_id = ?1"), [sample_id])
    }

    /// The greatest id of an activity; 0: there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn last_sample_id(&self) -> Result<i64> {
        self.value("SELECT COALESCE(MAX(sample_id), 0) FROM sample")
    }

    /// The last row of a counter of a machine; 0: there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn last_measure(&self) -> Result<i64> {
        self.value("SELECT COALESCE(MAX(rowid), 0) FROM host_sample")
    }

    /// The monotonic clock at time 0 of the first recording, ns, without the offsets of time namespaces; `None`: it
    /// is not known, or the recorder ran in another boot than this one.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn zero_in_boot(&self, boot_id: &str) -> Result<Option<i64>> {
        let sql = "SELECT monotonic_ns FROM run JOIN host USING (host_id) WHERE boot_id = ?1 ORDER BY run_id LIMIT 1";
        let found = self.db.query_row(sql, [boot_id], |row| row.get(0));
        let found = found.optional().map_err(|source| self.unreadable(source))?;
        Ok(found.flatten())
    }

    /// The begin of the newest file call, ns; `None`: there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn newest_call_ns(&self) -> Result<Option<i64>> {
        self.value("SELECT MAX(start_ns) FROM call")
    }

    /// The file calls that moved data, opened or made a file and began after one time and not after another.
    /// The last value is the time up to which they were read.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn data_between(&self, after_ns: i64, until_ns: i64) -> Result<(Vec<DataRow>, i64)> {
        let of_class = |op: &&Op| matches!(op.class(), Class::Read | Class::Write | Class::Open);
        let wanted: u64 = Op::ALL
            .iter()
            .filter(of_class)
            .map(|op| 1 << *op as u64)
            .sum();
        let begin = Instant::now();
        let mut read_until = until_ns;
        let mut found = Vec::new();
        let mut read = || -> rusqlite::Result<()> {
            let mut statement = self.db.prepare_cached(
                "SELECT start_ns, upid, what, file_id, length, result FROM call
                 WHERE start_ns > ?1 AND start_ns <= ?2 ORDER BY start_ns",
            )?;
            let mut rows = statement.query([after_ns, until_ns])?;
            let mut count = 0_usize;
            while let Some(row) = rows.next()? {
                let start_ns: i64 = super::amounts::read(row, 0, "start_ns", true)?;
                let what: i64 = row.get(2)?;
                if wanted >> (what & 63) & 1 == 1 {
                    let length: Option<i64> = row.get(4)?;
                    let result: Option<i64> = row.get(5)?;
                    let result = result.or(length).unwrap_or(0);
                    if let (Some(upid), Some(file_id), Some(op), true) = (
                        row.get(1)?,
                        row.get(3)?,
                        Op::from_number((what & 63) as u8),
                        result >= 0,
                    ) {
                        found.push(DataRow {
                            start_ns,
                            upid,
                            file_id,
                            op,
                            flags: flags_of_what(what),
                            bytes: super::amounts::checked(result, 5, "bytes")?,
                        });
                    }
                }
                count += 1;
                if count.is_multiple_of(ROWS) && begin.elapsed() > PATIENCE {
                    read_until = start_ns;
                    break;
                }
            }
            Ok(())
        };
        read().map_err(|source| self.unreadable(source))?;
        Ok((found, read_until))
    }

    /// The ends of channels with a greater id.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn ends_after(&self, end_id: i64) -> Result<Grown<EndRow>> {
        self.grown(
            "SELECT end_id, channel_id, upid, direction, kind, inode
             FROM channel_end JOIN channel USING (channel_id) WHERE end_id > ?1 ORDER BY end_id",
            [end_id],
        )
    }

    /// The counters of machines behind a row.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn measured_after(&self, row_id: i64) -> Result<Grown<MeasuredRow>> {
        self.grown(
            "SELECT s.rowid AS row_id, host_id, c.name AS counter, t_ns, value
             FROM host_sample AS s JOIN counter AS c USING (counter_id)
             WHERE s.rowid > ?1 ORDER BY s.rowid",
            [row_id],
        )
    }

    /// A file with its present name; `None`: there is no such file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn file(&self, file_id: i64) -> Result<Option<FileRow>> {
        self.one("SELECT * FROM files WHERE file_id = ?1", [file_id])
    }

    fn grown<T: FromRow>(&self, sql: &str, after: impl Params) -> Result<Grown<T>> {
        let begin = Instant::now();
        let read = || {
            let mut statement = self.db.prepare_cached(sql)?;
            let at = places::<T>(&statement)?;
            let mut texts = Texts::default();
            let mut rows = statement.query(after)?;
            let mut grown = Grown {
                rows: Vec::new(),
                is_all: true,
            };
            while let Some(row) = rows.next()? {
                grown.rows.push(T::read(row, &at, &mut texts)?);
                if grown.rows.len().is_multiple_of(ROWS) && begin.elapsed() > PATIENCE {
                    grown.is_all = false;
                    break;
                }
            }
            Ok(grown)
        };
        read().map_err(|source| self.unreadable(source))
    }

    fn one<T: FromRow>(&self, sql: &str, key: impl Params) -> Result<Option<T>> {
        let read = || {
            let mut statement = self.db.prepare_cached(sql)?;
            let at = places::<T>(&statement)?;
            let mut texts = Texts::default();
            statement
                .query_row(key, |row| T::read(row, &at, &mut texts))
                .optional()
        };
        read().map_err(|source| self.unreadable(source))
    }
}

const SAMPLE: &str = "SELECT sample_id, t_ns, end_ns, upid, tid, activity, op, side, object,
   channel_id, file_id FROM sample";

fn places<T: FromRow>(statement: &rusqlite::Statement<'_>) -> rusqlite::Result<Vec<usize>> {
    let columns = T::COLUMNS.iter();
    columns.map(|name| statement.column_index(name)).collect()
}
