//! Reading a trace: typed rows of the public views for the profiler, and free queries for people.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};

use crate::op::flags_of_what;
use crate::{Error, Fidelity, Op, Result, Unrecorded, doc, store};

mod accesses;
mod actions;
mod derived;
mod growth;
mod kinds;
mod network;
mod part;
mod report;
mod rows;
mod sockets;
mod stacks;
mod timeline;

pub use accesses::AccessRow;
pub use derived::ClockCorrection;
pub use growth::Grown;
pub use kinds::Kind;
pub use network::{FlowEnds, PacketRow};
pub use part::Part;
pub use rows::{
    ActionRow, ActivityRow, AppearedRow, BeganRow, CaptureRow, ChannelEndRow, ChannelRow, CostRow,
    CounterRow, DataRow, DescriptorRow, EndRow, EndedRow, FileRow, FlowBetween, FlowCaptureRow,
    FlowMeasure, FlowOwnerRow, FlowRow, FrameRow, GrowingSampleRow, HereDocumentRow, HostRow,
    HostSampleRow, LastSampleRow, LockCallRow, LossRow, MeasuredRow, NameRow, NetworkTotals,
    NodeRow, OpenedEndRow, PipeRow, PolledRow, ProcessRow, ProgramRow, RawNameRow, ReplayedCallRow,
    RunRow, SampleRow, SettingRow, SocketPortsRow, SocketTrafficRow, SocketWaitsRow, StackRow,
    StackSampleRow, StackWaitRow, StopRow, StorageRow, TimesRow, TracedDirectoryRow, VariableRow,
};
use rows::{FromRow, Texts, amounts};
pub use timeline::Sequence;

/// A trace opened for reading. [`Trace::open`] never changes the file.
#[derive(Debug)]
pub struct Trace {
    db: Connection,
    path: PathBuf,
}

/// A file call, as the table `call` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRow {
    /// Arrival of the request, ns.
    pub start_ns: i64,
    /// Time until the reply, ns.
    pub duration_ns: i64,
    /// Process image; `None`: the kernel itself, or not known.
    pub upid: Option<i64>,
    /// Thread; `None`: the first of the process.
    pub tid: Option<i64>,
    /// Operation; `None`: one that this version does not know.
    pub op: Option<Op>,
    /// How exactly the row stands for a call.
    pub fidelity: Fidelity,
    /// Open flags, rename flags or mode.
    pub flags: Option<i64>,
    /// File.
    pub file_id: Option<i64>,
    /// Position of data calls.
    pub offset: Option<i64>,
    /// Bytes asked for, or the value set.
    pub length: Option<i64>,
    /// Bytes or value; negative errno on failure.
    pub result: i64,
}

/// A value of a query's result.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// SQL NULL.
    Null,
    /// An integer.
    Integer(i64),
    /// A floating point number.
    Real(f64),
    /// A text; bytes that are not UTF-8 come as [`Value::Blob`].
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

/// Receives the result of a query row by row.
pub trait Table {
    /// The names of the columns, before any row.
    ///
    /// # Errors
    /// When the receiver cannot take them.
    fn columns(&mut self, names: &[String]) -> std::io::Result<()>;

    /// One row, as many values as columns.
    ///
    /// # Errors
    /// When the receiver cannot take it.
    fn row(&mut self, values: Vec<Value>) -> std::io::Result<()>;
}

impl Trace {
    /// Opens a trace.
    ///
    /// # Errors
    /// Says in one line what is wrong with a file that is not a trace of this version.
    pub fn open(path: &Path) -> Result<Trace> {
        Ok(Trace {
            db: store::open_read_only(path)?,
            path: path.to_owned(),
        })
    }

    /// Opens a trace to read it and to store results of analyses.
    ///
    /// # Errors
    /// Likewise.
    pub fn open_to_store(path: &Path) -> Result<Trace> {
        Ok(Trace {
            db: store::open_to_store(path)?,
            path: path.to_owned(),
        })
    }

    /// The file that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if a flowtrace is still writing this trace.
    pub fn is_being_recorded(&self) -> bool {
        store::is_being_recorded(&self.path)
    }

    /// The note that the run went on after the writer of this trace had ended, if there is one.
    pub fn unrecorded(&self) -> Option<Unrecorded> {
        Unrecorded::of(&self.path)
    }

    /// The recordings.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn runs(&self) -> Result<Vec<RunRow>> {
        self.rows("SELECT * FROM runs ORDER BY run_id")
    }

    /// The traced directories.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn traced_directories(&self) -> Result<Vec<TracedDirectoryRow>> {
        self.rows("SELECT * FROM traced_directories")
    }

    /// The process images in the order of their upids.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn processes(&self) -> Result<Vec<ProcessRow>> {
        self.rows("SELECT * FROM processes ORDER BY upid")
    }

    /// The program of each process image, in the order of their ids: read in a fifth of the time of the whole
    /// rows.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn programs(&self) -> Result<Vec<ProgramRow>> {
        let columns = ProgramRow::COLUMNS.join(", ");
        self.rows(&format!("SELECT {columns} FROM processes ORDER BY upid"))
    }

    /// The files in the order of their ids.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn files(&self) -> Result<Vec<FileRow>> {
        self.rows("SELECT * FROM files ORDER BY file_id")
    }

    /// Every name of every file, in the order of time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn file_names(&self) -> Result<Vec<NameRow>> {
        self.rows("SELECT * FROM file_names ORDER BY file_id, from_ns")
    }

    /// The raw names of files whose name is no UTF-8, as the view `files` has them, byte for byte, in the
    /// order of files.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn raw_names(&self) -> Result<Vec<RawNameRow>> {
        self.rows(
            "SELECT file_id, path_raw FROM (
               SELECT file_id, path_raw, ROW_NUMBER() OVER (
                 PARTITION BY file_id
                 ORDER BY to_ns IS NULL DESC, IIF(to_ns IS NULL, from_ns, -from_ns)) AS place
               FROM file_names)
             WHERE place = 1 AND path_raw IS NOT NULL ORDER BY file_id",
        )
    }

    /// Calls `each` with every file call, in the order of time, without storing the calls in memory.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn for_each_call(&self, each: impl FnMut(&CallRow)) -> Result<()> {
        self.for_each_call_within(i64::MIN..=i64::MAX, each)
    }

    /// As [`Trace::for_each_call`], for calls that began within a time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn for_each_call_within(
        &self,
        begin_ns: RangeInclusive<i64>,
        mut each: impl FnMut(&CallRow),
    ) -> Result<()> {
        let mut read = || {
            // Columns by number: there may be a hundred million rows.
            let mut statement = self.db.prepare(
                "SELECT start_ns, duration_ns, upid, what, file_id, offset, length, result, tid
                 FROM call WHERE start_ns BETWEEN ?1 AND ?2 ORDER BY start_ns",
            )?;
            let mut rows = statement.query([begin_ns.start(), begin_ns.end()])?;
            while let Some(row) = rows.next()? {
                let time = |place, name| amounts::read::<i64>(row, place, name, true);
                let what: i64 = row.get(3)?;
                let length: Option<i64> = row.get(6)?;
                let result: Option<i64> = row.get(7)?;
                each(&CallRow {
                    start_ns: time(0, "start_ns")?,
                    duration_ns: time(1, "duration_ns")?,
                    upid: row.get(2)?,
                    op: Op::from_number((what & 63) as u8),
                    tid: row.get(8)?,
                    fidelity: Fidelity::of_what(what),
                    flags: flags_of_what(what),
                    file_id: row.get(4)?,
                    offset: row.get(5)?,
                    length,
                    result: result.or(length).unwrap_or(0),
                });
            }
            Ok(())
        };
        read().map_err(|source| self.unreadable(source))
    }

    /// Start of the call that comes `skipped` calls after the first one at or after `from_ns`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn call_after(&self, from_ns: i64, skipped: u32) -> Result<Option<i64>> {
        let mut statement = self
            .db
            .prepare_cached(
                "SELECT start_ns FROM call WHERE start_ns >= ?1 ORDER BY start_ns LIMIT 1 OFFSET ?2",
            )
            .map_err(|source| self.unreadable(source))?;
        statement
            .query_row((from_ns, skipped), |row| row.get(0))
            .optional()
            .map_err(|source| self.unreadable(source))
    }

    /// The descriptors that programs had open when they began, in the order of images.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn descriptors(&self) -> Result<Vec<DescriptorRow>> {
        self.rows("SELECT * FROM descriptors ORDER BY upid, fd")
    }

    /// The here-documents that programs began with, in the order of images.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn here_documents(&self) -> Result<Vec<HereDocumentRow>> {
        self.rows("SELECT * FROM here_documents ORDER BY upid, fd")
    }

    /// Other properties that programs began with, in the order of images.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn settings(&self) -> Result<Vec<SettingRow>> {
        self.rows("SELECT * FROM settings ORDER BY upid")
    }

    /// The first image of each run, in order.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn first_of_runs(&self) -> Result<Vec<i64>> {
        let read = || -> rusqlite::Result<Vec<i64>> {
            let mut statement = self
                .db
                .prepare("SELECT first_upid FROM run ORDER BY first_upid")?;
            statement.query_map([], |row| row.get(0))?.collect()
        };
        read().map_err(|source| self.unreadable(source))
    }

    /// The environment variables that were recorded by name, in the order of images.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn variables(&self) -> Result<Vec<VariableRow>> {
        self.rows("SELECT * FROM environment ORDER BY upid, name")
    }

    /// The ends of channels, in the order of channels, then images.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn channel_ends(&self) -> Result<Vec<ChannelEndRow>> {
        self.rows(
            "SELECT channel_id, kind, upid, direction, from_ns, to_ns, bytes, at_most_bytes, used
             FROM channel_ends JOIN channels USING (channel_id)
             ORDER BY channel_id, upid, direction",
        )
    }

    /// The pipes and FIFOs of which every holder had both ends open throughout, in order: they pass tokens
    /// for places to run, as the jobserver of make does, or wake their only holder. No data goes through them
    /// from one process to another.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn token_pipes(&self) -> Result<Vec<i64>> {
        let read = || {
            let mut statement = self.db.prepare(&store::TOKEN_PIPES)?;
            let ids = statement.query_map([], |row| row.get(0))?;
            let mut ids = ids.collect::<rusqlite::Result<Vec<i64>>>()?;
            ids.sort_unstable();
            Ok(ids)
        };
        read().map_err(|source| self.unreadable(source))
    }

    /// The successful file calls of known processes, in the order of time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn replayed_calls(&self) -> Result<Vec<ReplayedCallRow>> {
        self.rows(store::REPLAYED)
    }

    /// The ends of pipes and FIFOs that may have been used; none of [`Trace::token_pipes`].
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn pipes(&self) -> Result<Vec<PipeRow>> {
        self.rows(&format!(
            "SELECT channel_id, kind, inode, upid, fd, direction
             FROM channel_ends JOIN channels USING (channel_id)
             WHERE used IS NOT 0 AND kind IN ('pipe', 'fifo') AND channel_id NOT IN ({})
             ORDER BY channel_id, upid, direction",
            *store::TOKEN_PIPES
        ))
    }

    /// The activities of threads, by the samples, in the order of images and time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn activity(&self) -> Result<Vec<ActivityRow>> {
        self.rows(store::ACTIVITY)
    }

    /// The losses of the trace, the worst first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn losses(&self) -> Result<Vec<LossRow>> {
        self.rows(
            "SELECT * FROM losses ORDER BY CASE severity WHEN 'error' THEN 0
             WHEN 'data_loss' THEN 1 WHEN 'notice' THEN 2 ELSE 3 END, source, counter",
        )
    }

    /// The number of file calls.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn call_count(&self) -> Result<u64> {
        self.value("SELECT COUNT(*) FROM call")
            .map(|count: i64| count as u64)
    }

    /// The end of the last file call, ns; `None`: there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn last_call_ns(&self) -> Result<Option<i64>> {
        let last = self.value("SELECT MAX(start_ns + duration_ns) FROM call")?;
        amounts::checked(last, 0, "start_ns").map_err(|source| self.unreadable(source))
    }

    /// True if a view has no row.
    ///
    /// # Errors
    /// When the file cannot be read, or has no such view.
    pub fn is_empty(&self, view: &doc::Relation) -> Result<bool> {
        self.value(&format!("SELECT NOT EXISTS (SELECT 1 FROM {})", view.name))
    }

    /// Runs one statement of the user and passes its rows to `table`.
    ///
    /// # Errors
    /// When the statement is wrong, would write, or is not exactly one; when `table` refuses.
    pub fn query(&self, sql: &str, table: &mut dyn Table) -> Result<()> {
        let mut statement = self.db.prepare(sql).map_err(|error| match error {
            rusqlite::Error::MultipleStatement => {
                Error::NotOneStatement("one statement at a time, please")
            }
            // SQLite reports a change to a view as an error before this crate can see that the statement
            // writes.
            error if query_error(&error).starts_with("cannot modify") => Error::Writes,
            error => Error::Query(query_error(&error)),
        })?;
        if statement.column_count() == 0 {
            return Err(if statement.readonly() {
                Error::NotOneStatement("there is no statement that returns rows")
            } else {
                Error::Writes
            });
        }
        if !statement.readonly() {
            return Err(Error::Writes);
        }
        let names: Vec<_> = statement.column_names().map(String::from).collect();
        table.columns(&names)?;
        let mut rows = statement
            .query([])
            .map_err(|error| Error::Query(query_error(&error)))?;
        while let Some(row) = rows
            .next()
            .map_err(|error| Error::Query(query_error(&error)))?
        {
            let values: rusqlite::Result<Vec<_>> = (0..names.len())
                .map(|i| Ok(value(row.get_ref(i)?)))
                .collect();
            table.row(values.map_err(|error| Error::Query(query_error(&error)))?)?;
        }
        Ok(())
    }

    fn rows<T: FromRow>(&self, sql: &str) -> Result<Vec<T>> {
        let rows = || {
            // Several parts of a summary run the same query, and preparing it takes most of the time.
            let mut statement = self.db.prepare_cached(sql)?;
            let columns = T::COLUMNS.iter();
            let at = columns
                .map(|name| statement.column_index(name))
                .collect::<rusqlite::Result<Vec<usize>>>()?;
            let mut texts = Texts::default();
            statement
                .query_map([], |row| T::read(row, &at, &mut texts))?
                .collect::<rusqlite::Result<_>>()
        };
        rows().map_err(|source| self.unreadable(source))
    }

    fn value<T: rusqlite::types::FromSql>(&self, sql: &str) -> Result<T> {
        let value = self.db.query_row(sql, [], |row| row.get(0));
        value.map_err(|source| self.unreadable(source))
    }

    fn unreadable(&self, source: rusqlite::Error) -> Error {
        Error::unreadable(&self.path, source)
    }
}

/// The error of SQLite, without the statement that the user has just typed.
fn query_error(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        error => error.to_string(),
    }
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(i) => Value::Integer(i),
        ValueRef::Real(f) => Value::Real(f),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => Value::Blob(bytes.to_vec()),
        },
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
    }
}
