//! A part of a trace, copied to memory as a trace of its own: all analyses work on it, and no other program
//! waits for them.

use std::ops::RangeInclusive;
use std::time::Instant;

use rusqlite::{Connection, params_from_iter};

use super::Trace;
use super::growth::{PATIENCE, ROWS};
use crate::contract::{ACTIVITIES, OPERATIONS, TABLES, VIEWS};
use crate::{Error, Result};

/// The wanted part: rows of some process images in some time.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Begin: what began before begins here, ns.
    pub from_ns: i64,
    /// The process images with the names of their steps.
    pub images: Vec<(i64, String)>,
    /// Activities of threads: all with a greater id …
    pub after_sample: i64,
    /// … and these.
    pub samples: Vec<i64>,
    /// Ends of channels.
    pub ends: Vec<i64>,
    /// Most file calls; the newest ones are taken.
    pub calls: u32,
    /// Counters of machines: rows of the table behind this one.
    pub after_measure: i64,
}

/// A table that is read, and the one that gets its rows.
struct Copy<'a> {
    from: &'a Connection,
    to: &'a Connection,
}

impl Copy<'_> {
    /// Copies the rows of `table` with these keys, in as many transactions as it takes.
    fn rows(&self, table: &str, key: &str, keys: RangeInclusive<i64>) -> rusqlite::Result<()> {
        let mut from = *keys.start();
        let mut select = self.from.prepare_cached(&format!(
            "SELECT {key}, * FROM {table} WHERE {key} >= ?1 AND {key} <= ?2 ORDER BY {key}"
        ))?;
        let values = vec!["?"; select.column_count() - 1].join(", ");
        let mut insert = self
            .to
            .prepare_cached(&format!("INSERT OR IGNORE INTO {table} VALUES ({values})"))?;
        loop {
            let begin = Instant::now();
            let mut is_all = true;
            let mut count = 0_usize;
            let mut rows = select.query([from, *keys.end()])?;
            while let Some(row) = rows.next()? {
                let key: i64 = row.get(0)?;
                // All rows of one key come in one transaction.
                if count >= ROWS && key > from && begin.elapsed() > PATIENCE {
                    (from, is_all) = (key, false);
                    break;
                }
                from = key;
                let width = row.as_ref().column_count();
                let values = (1..width).map(|place| row.get_ref(place));
                let values = values.collect::<rusqlite::Result<Vec<_>>>()?;
                let values = values
                    .into_iter()
                    .map(rusqlite::types::ToSqlOutput::Borrowed);
                insert.execute(params_from_iter(values))?;
                count += 1;
            }
            if is_all {
                return Ok(());
            }
        }
    }

    fn each(
        &self,
        table: &str,
        key: &str,
        keys: impl IntoIterator<Item = i64>,
    ) -> rusqlite::Result<()> {
        keys.into_iter()
            .try_for_each(|one| self.rows(table, key, one..=one))
    }

    /// Values of a column of the copy.
    fn values(&self, sql: &str) -> rusqlite::Result<Vec<i64>> {
        let mut statement = self.to.prepare(sql)?;
        statement.query_map([], |row| row.get(0))?.collect()
    }
}

impl Trace {
    /// Copies a part of the trace to memory.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn part(&self, part: &Part) -> Result<Trace> {
        let copied = || -> rusqlite::Result<Connection> {
            let to = Connection::open_in_memory()?;
            to.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")?;
            for statements in [TABLES, OPERATIONS, ACTIVITIES, VIEWS] {
                to.execute_batch(statements)?;
            }
            to.execute_batch("BEGIN")?;
            self.copy(part, &to)?;
            to.execute_batch("COMMIT; PRAGMA query_only = ON;")?;
            Ok(to)
        };
        let db = copied().map_err(|source| Error::Sqlite {
            what: "cannot copy a part of",
            path: self.path.clone(),
            source,
        })?;
        Ok(Trace {
            db,
            path: self.path.clone(),
        })
    }

    fn copy(&self, part: &Part, to: &Connection) -> rusqlite::Result<()> {
        let copy = Copy { from: &self.db, to };
        let all = i64::MIN..=i64::MAX;
        for table in ["run", "traced_directory", "host", "counter", "loss"] {
            copy.rows(table, "rowid", all.clone())?;
        }
        let upids = || part.images.iter().map(|&(upid, _)| upid);
        copy.each("process", "upid", upids())?;
        copy.each("setting", "upid", upids())?;
        let mut rename = to.prepare(
            "UPDATE process SET rule = ?2, start_ns = MAX(start_ns, ?3), end_ns = MAX(end_ns, ?3)
             WHERE upid = ?1",
        )?;
        for (upid, rule) in &part.images {
            rename.execute((upid, rule, part.from_ns))?;
        }
        let behind = part.after_sample.saturating_add(1)..=i64::MAX;
        copy.rows("sample", "sample_id", behind.clone())?;
        copy.each("sample", "sample_id", part.samples.iter().copied())?;
        copy.rows("polled", "sample_id", behind)?;
        copy.each("polled", "sample_id", part.samples.iter().copied())?;
        copy.each("channel_end", "end_id", part.ends.iter().copied())?;
        let channels = copy.values("SELECT DISTINCT channel_id FROM channel_end")?;
        copy.each("channel", "channel_id", channels.iter().copied())?;
        copy.each("channel_sum", "channel_id", channels)?;
        copy.rows(
            "host_sample",
            "rowid",
            part.after_measure.saturating_add(1)..=i64::MAX,
        )?;
        let first: Option<i64> = self.db.query_row(
            "SELECT MIN(start_ns) FROM (SELECT start_ns FROM call WHERE start_ns >= ?1
               ORDER BY start_ns DESC LIMIT ?2)",
            (part.from_ns, part.calls),
            |row| row.get(0),
        )?;
        if let Some(first) = first {
            copy.rows("call", "start_ns", first..=i64::MAX)?;
        }
        let files = copy.values("SELECT DISTINCT file_id FROM call WHERE file_id IS NOT NULL")?;
        copy.each("file", "file_id", files.iter().copied())?;
        copy.each("file_name", "file_id", files)?;
        let directories = copy.values("SELECT DISTINCT directory_id FROM file_name")?;
        copy.each("directory_path", "directory_id", directories)
    }
}
