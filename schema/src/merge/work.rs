//! The file that is being merged into: a trace under another name, with the state of the work in
//! tables of its own (`merge_*`), so that an interrupted merge goes on where it stopped.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};

use super::input::Input;
use super::options::{MergeOptions, refuse};
use crate::{Error, Result, store};

const STATE: &str = "
CREATE TABLE merge_plan (text TEXT NOT NULL) STRICT;
CREATE TABLE merge_done (step TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE merge_cursor (tbl TEXT, input INTEGER, at INTEGER NOT NULL,
  PRIMARY KEY (tbl, input)) STRICT, WITHOUT ROWID;
CREATE TABLE merge_moved (space TEXT, input INTEGER, old INTEGER, new INTEGER NOT NULL,
  turned INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (space, input, old)) STRICT, WITHOUT ROWID;
CREATE TABLE merge_known (key BLOB, id INTEGER, input INTEGER NOT NULL, kind INTEGER, dev INTEGER,
  ino INTEGER, first_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL, turned INTEGER NOT NULL,
  PRIMARY KEY (key, id, input)) STRICT, WITHOUT ROWID;
";

/// The unfinished file.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) db: Connection,
    pub(super) is_resumed: bool,
    part: PathBuf,
    output: PathBuf,
    lock: File,
}

impl Work {
    /// Takes up the merge of the same files where it was interrupted, or begins anew.
    ///
    /// # Errors
    /// If the output may not be replaced or made, or another flowtrace is writing it.
    pub(super) fn begin(options: &MergeOptions, inputs: &[Input]) -> Result<Work> {
        store::check_place(&options.output, options.replace)?;
        let part = crate::beside::beside(&options.output, ".part");
        let plan = plan(options, inputs);
        if store::is_being_recorded(&part) {
            return Err(refuse(
                format!("another flowtrace is writing {}", part.display()),
                "wait for its end, or name another file with -o",
            ));
        }
        let work = match resume(&part, &plan) {
            Some((db, lock)) => Work {
                db,
                is_resumed: true,
                part,
                output: options.output.clone(),
                lock,
            },
            None => {
                let (db, lock, older) = store::create(&part, true)?;
                // The file of another plan.
                older.settle();
                let work = Work {
                    db,
                    is_resumed: false,
                    part,
                    output: options.output.clone(),
                    lock,
                };
                let start = || -> rusqlite::Result<()> {
                    work.db.execute_batch("BEGIN")?;
                    work.db.execute_batch(STATE)?;
                    work.db
                        .execute("INSERT INTO merge_plan (text) VALUES (?1)", [&plan])?;
                    work.db.execute_batch("COMMIT")
                };
                start().map_err(|e| work.error(e))?;
                work
            }
        };
        work.db.set_prepared_statement_cache_capacity(64);
        Ok(work)
    }

    /// Runs `step` in a transaction of its own, unless that was done before the interruption.
    ///
    /// # Errors
    /// Those of `step`, or when the file cannot be written.
    pub(super) fn once(
        &self,
        step: &str,
        run: impl FnOnce(&Connection) -> Result<()>,
    ) -> Result<()> {
        if self.is_done(step)? {
            return Ok(());
        }
        self.sql("BEGIN IMMEDIATE")?;
        run(&self.db)?;
        self.db
            .execute("INSERT INTO merge_done (step) VALUES (?1)", [step])
            .map_err(|e| self.error(e))?;
        self.sql("COMMIT")
    }

    pub(super) fn is_done(&self, step: &str) -> Result<bool> {
        self.db
            .prepare_cached("SELECT 1 FROM merge_done WHERE step = ?1")
            .and_then(|mut find| find.exists([step]))
            .map_err(|e| self.error(e))
    }

    pub(super) fn done(&self, step: &str) -> Result<()> {
        let mark = self
            .db
            .execute("INSERT INTO merge_done (step) VALUES (?1)", [step]);
        mark.map(|_| ()).map_err(|e| self.error(e))
    }

    pub(super) fn sql(&self, sql: &str) -> Result<()> {
        self.db.execute_batch(sql).map_err(|e| self.error(e))
    }

    /// The place where the reading of a table of an input stopped.
    pub(super) fn cursor(&self, table: &str, input: usize) -> Result<Option<i64>> {
        self.db
            .query_row(
                "SELECT at FROM merge_cursor WHERE tbl = ?1 AND input = ?2",
                params![table, input as i64],
                |row| row.get(0),
            )
            .optional()
            .map_err(|e| self.error(e))
    }

    pub(super) fn set_cursor(&self, table: &str, input: usize, at: i64) -> Result<()> {
        self.db
            .prepare_cached(
                "INSERT OR REPLACE INTO merge_cursor (tbl, input, at) VALUES (?1, ?2, ?3)",
            )
            .and_then(|mut set| set.execute(params![table, input as i64, at]))
            .map(|_| ())
            .map_err(|e| self.error(e))
    }

    /// Makes the work one whole file under its own name.
    ///
    /// # Errors
    /// When the file cannot be written or renamed.
    pub(super) fn finish(self) -> Result<()> {
        self.sql(
            "BEGIN; DROP TABLE merge_plan; DROP TABLE merge_done; DROP TABLE merge_cursor;
             DROP TABLE merge_moved; DROP TABLE merge_known; COMMIT;
             PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE;",
        )?;
        let create = |source| Error::Create {
            path: self.output.clone(),
            source,
        };
        self.lock.sync_all().map_err(create)?;
        crate::beside::remove_companions(&self.output).map_err(create)?;
        std::fs::rename(&self.part, &self.output).map_err(create)?;
        let _ = self.lock.unlock();
        Ok(())
    }

    /// The error of a row of an input that could not be stored: the input's, unless the merged file could not be
    /// written.
    pub(super) fn refused(&self, input: &Input, source: rusqlite::Error) -> Error {
        use rusqlite::ErrorCode::{ConstraintViolation, TypeMismatch};
        match source.sqlite_error_code() {
            None | Some(ConstraintViolation | TypeMismatch) => input.error(source),
            Some(_) => self.error(source),
        }
    }

    pub(super) fn error(&self, source: rusqlite::Error) -> Error {
        Error::Sqlite {
            what: "cannot write",
            path: self.part.clone(),
            source,
        }
    }
}

/// The inputs and options of the merge as a text: an interrupted merge of another plan is of no use.
fn plan(options: &MergeOptions, inputs: &[Input]) -> String {
    let mut plan = format!("flowtrace {}\n", env!("CARGO_PKG_VERSION"));
    for input in inputs {
        let (size, changed) = input.state;
        let path = std::path::absolute(&input.path).unwrap_or_else(|_| input.path.clone());
        plan.push_str(&format!("input {size} {changed} {}\n", path.display()));
    }
    for prefix in &options.shared {
        plan.push_str(&format!("shared {}\n", prefix.display()));
    }
    plan.push_str(&format!("clocks {:?}\n", options.clocks));
    plan
}

fn resume(part: &Path, plan: &str) -> Option<(Connection, File)> {
    // A file is opened for writing only if it is certainly a trace.
    drop(store::open_read_only(part).ok()?);
    let lock = File::options().write(true).open(part).ok()?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
        Err(_) => return None,
    }
    let db = Connection::open(part).ok()?;
    let known: String = db
        .query_row("SELECT text FROM merge_plan", [], |row| row.get(0))
        .ok()?;
    if known != plan {
        return None;
    }
    db.execute_batch(store::LOGGING).ok()?;
    Some((db, lock))
}
