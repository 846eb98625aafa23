//! Reading a trace: typed rows of the public views for the profiler, and free queries for people.

use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use crate::{Error, Result, doc, store};

/// A trace opened for reading. Never changes the file.
#[derive(Debug)]
pub struct Trace {
    db: Connection,
    path: PathBuf,
}

/// A row of the view `runs`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "documented by the view of the same name in sql/views.sql"
)]
pub struct RunRow {
    pub run_id: i64,
    pub host: Option<String>,
    pub command: Option<String>,
    pub cwd: String,
    pub version: String,
    pub file_layer: String,
    pub process_layer: String,
    pub started_unix_ns: Option<i64>,
    pub end_ns: Option<i64>,
    pub exit_code: Option<i64>,
    pub exit_signal: Option<i64>,
}

/// A row of the view `traced_directories`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "documented by the view of the same name in sql/views.sql"
)]
pub struct TracedDirectoryRow {
    pub path: String,
    pub source: Option<String>,
    pub file_layer: String,
    pub attribute_ttl_ns: i64,
}

/// A row of the view `processes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "documented by the view of the same name in sql/views.sql"
)]
pub struct ProcessRow {
    pub upid: i64,
    pub host: Option<String>,
    pub pid: i64,
    pub parent_upid: Option<i64>,
    pub prev_upid: Option<i64>,
    pub origin: String,
    pub exe: Option<String>,
    pub command: Option<String>,
    pub cwd: Option<String>,
    pub rule: Option<String>,
    pub start_ns: i64,
    pub end_ns: Option<i64>,
    pub exit_code: Option<i64>,
    pub exit_signal: Option<i64>,
    pub user_ns: Option<i64>,
    pub sys_ns: Option<i64>,
    pub on_cpu_ns: Option<i64>,
    pub run_queue_ns: Option<i64>,
    pub tracer_ns: Option<i64>,
    pub max_rss_bytes: Option<i64>,
    pub read_bytes: Option<i64>,
    pub write_bytes: Option<i64>,
    pub threads: Option<i64>,
}

/// A row of the view `files`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "documented by the view of the same name in sql/views.sql"
)]
pub struct FileRow {
    pub file_id: i64,
    pub path: Option<String>,
    pub kind: String,
    pub size_bytes: Option<i64>,
    pub first_ns: i64,
    pub last_ns: Option<i64>,
    pub coverage: String,
}

/// A row of the view `file_names`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "documented by the view of the same name in sql/views.sql"
)]
pub struct NameRow {
    pub file_id: i64,
    pub path: String,
    pub from_ns: i64,
    pub to_ns: Option<i64>,
}

/// A row of the view `file_access`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "documented by the view of the same name in sql/views.sql"
)]
pub struct AccessRow {
    pub upid: i64,
    pub file_id: i64,
    pub relation: String,
    pub opens: i64,
    pub creates: i64,
    pub reads: i64,
    pub read_bytes: i64,
    pub read_ns: i64,
    pub writes: i64,
    pub write_bytes: i64,
    pub write_ns: i64,
    pub first_ns: i64,
    pub last_ns: i64,
    pub read_opens: i64,
    pub write_opens: i64,
}

/// What one process image did to one file, as [`AccessRow`], with the moments of reading and of
/// writing told apart. All fields but the counts are of successful calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataAccessRow {
    /// Process image.
    pub upid: i64,
    /// File.
    pub file_id: i64,
    /// Times it was opened, a creation included.
    pub opens: i64,
    /// Times it was created.
    pub creates: i64,
    /// Calls of class read.
    pub reads: i64,
    /// Bytes they returned.
    pub read_bytes: i64,
    /// Calls that wrote bytes.
    pub writes: i64,
    /// Bytes they wrote.
    pub write_bytes: i64,
    /// Calls of class write: writes, truncations, allocations.
    pub changes: i64,
    /// Truncations to nothing.
    pub truncates: i64,
    /// Opens that allowed reading.
    pub read_opens: i64,
    /// Opens that allowed writing.
    pub write_opens: i64,
    /// Begin of the first call of class read.
    pub first_read_ns: Option<i64>,
    /// End of the last one.
    pub last_read_ns: Option<i64>,
    /// Begin of the first call that created the file or changed its data.
    pub first_write_ns: Option<i64>,
    /// End of the last one.
    pub last_write_ns: Option<i64>,
    /// Begin of the first open.
    pub first_open_ns: Option<i64>,
    /// Begin of the first call of any kind.
    pub first_ns: i64,
    /// End of the last call of any kind.
    pub last_ns: i64,
    /// Calls of any kind.
    pub calls: i64,
}

/// A row of the view `losses`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "documented by the view of the same name in sql/views.sql"
)]
pub struct LossRow {
    pub source: String,
    pub counter: String,
    pub value: i64,
    pub meaning: String,
    pub severity: String,
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

    /// The file that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a flowtrace is still writing this trace.
    pub fn is_being_recorded(&self) -> bool {
        store::is_being_recorded(&self.path)
    }

    /// The recordings.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn runs(&self) -> Result<Vec<RunRow>> {
        self.rows("SELECT * FROM runs ORDER BY run_id", |r| {
            Ok(RunRow {
                run_id: r.get("run_id")?,
                host: r.get("host")?,
                command: r.get("command")?,
                cwd: r.get("cwd")?,
                version: r.get("version")?,
                file_layer: r.get("file_layer")?,
                process_layer: r.get("process_layer")?,
                started_unix_ns: r.get("started_unix_ns")?,
                end_ns: r.get("end_ns")?,
                exit_code: r.get("exit_code")?,
                exit_signal: r.get("exit_signal")?,
            })
        })
    }

    /// The directories under trace.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn traced_directories(&self) -> Result<Vec<TracedDirectoryRow>> {
        self.rows("SELECT * FROM traced_directories", |r| {
            Ok(TracedDirectoryRow {
                path: r.get("path")?,
                source: r.get("source")?,
                file_layer: r.get("file_layer")?,
                attribute_ttl_ns: r.get("attribute_ttl_ns")?,
            })
        })
    }

    /// The process images in the order of their upids.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn processes(&self) -> Result<Vec<ProcessRow>> {
        self.rows("SELECT * FROM processes ORDER BY upid", |r| {
            Ok(ProcessRow {
                upid: r.get("upid")?,
                host: r.get("host")?,
                pid: r.get("pid")?,
                parent_upid: r.get("parent_upid")?,
                prev_upid: r.get("prev_upid")?,
                origin: r.get("origin")?,
                exe: r.get("exe")?,
                command: r.get("command")?,
                cwd: r.get("cwd")?,
                rule: r.get("rule")?,
                start_ns: r.get("start_ns")?,
                end_ns: r.get("end_ns")?,
                exit_code: r.get("exit_code")?,
                exit_signal: r.get("exit_signal")?,
                user_ns: r.get("user_ns")?,
                sys_ns: r.get("sys_ns")?,
                on_cpu_ns: r.get("on_cpu_ns")?,
                run_queue_ns: r.get("run_queue_ns")?,
                tracer_ns: r.get("tracer_ns")?,
                max_rss_bytes: r.get("max_rss_bytes")?,
                read_bytes: r.get("read_bytes")?,
                write_bytes: r.get("write_bytes")?,
                threads: r.get("threads")?,
            })
        })
    }

    /// The files in the order of their ids.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn files(&self) -> Result<Vec<FileRow>> {
        self.rows("SELECT * FROM files ORDER BY file_id", |r| {
            Ok(FileRow {
                file_id: r.get("file_id")?,
                path: r.get("path")?,
                kind: r.get("kind")?,
                size_bytes: r.get("size_bytes")?,
                first_ns: r.get("first_ns")?,
                last_ns: r.get("last_ns")?,
                coverage: r.get("coverage")?,
            })
        })
    }

    /// The end of the last file call, ns; `None`: there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn last_call_ns(&self) -> Result<Option<i64>> {
        let sql = "SELECT MAX(start_ns + duration_ns) FROM call";
        Ok(self.rows(sql, |r| r.get(0))?.pop().flatten())
    }

    /// Every name of every file, in the order of time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn file_names(&self) -> Result<Vec<NameRow>> {
        self.rows("SELECT * FROM file_names ORDER BY file_id, from_ns", |r| {
            Ok(NameRow {
                file_id: r.get("file_id")?,
                path: r.get("path")?,
                from_ns: r.get("from_ns")?,
                to_ns: r.get("to_ns")?,
            })
        })
    }

    /// What each process image did to each file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn file_access(&self) -> Result<Vec<AccessRow>> {
        self.rows("SELECT * FROM file_access ORDER BY upid, file_id", |r| {
            Ok(AccessRow {
                upid: r.get("upid")?,
                file_id: r.get("file_id")?,
                relation: r.get("relation")?,
                opens: r.get("opens")?,
                creates: r.get("creates")?,
                reads: r.get("reads")?,
                read_bytes: r.get("read_bytes")?,
                read_ns: r.get("read_ns")?,
                writes: r.get("writes")?,
                write_bytes: r.get("write_bytes")?,
                write_ns: r.get("write_ns")?,
                first_ns: r.get("first_ns")?,
                last_ns: r.get("last_ns")?,
                read_opens: r.get("read_opens")?,
                write_opens: r.get("write_opens")?,
            })
        })
    }

    /// What each process image did to each file, with the times of reading and writing apart.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn data_access(&self) -> Result<Vec<DataAccessRow>> {
        // The same grouping as the view file_access; O_TRUNC is 512.
        let sql = "
            SELECT c.upid, c.file_id,
              SUM(o.class = 'open') AS opens,
              SUM(o.name IN ('create', 'mknod', 'mkdir', 'symlink')) AS creates,
              SUM(o.class = 'read') AS reads,
              SUM(CASE WHEN o.class = 'read' THEN COALESCE(c.result, c.length, 0) ELSE 0 END)
                AS read_bytes,
              SUM(o.name IN ('write', 'copy_to')) AS writes,
              SUM(CASE WHEN o.name IN ('write', 'copy_to')
                  THEN COALESCE(c.result, c.length, 0) ELSE 0 END) AS write_bytes,
              SUM(o.class = 'write') AS changes,
              SUM((o.name = 'truncate' AND COALESCE(c.length, 0) = 0)
                  OR (o.class = 'open' AND COALESCE(c.flags, 0) & 512 > 0)) AS truncates,
              COALESCE(SUM(o.class = 'open' AND c.flags & 3 IN (0, 2)), 0) AS read_opens,
              COALESCE(SUM(o.class = 'open' AND c.flags & 3 IN (1, 2)), 0) AS write_opens,
              MIN(CASE WHEN o.class = 'read' THEN c.start_ns END) AS first_read_ns,
              MAX(CASE WHEN o.class = 'read' THEN c.start_ns + c.duration_ns END) AS last_read_ns,
              MIN(CASE WHEN o.class = 'write' OR o.name IN ('create', 'mknod') THEN c.start_ns END)
                AS first_write_ns,
              MAX(CASE WHEN o.class = 'write' OR o.name IN ('create', 'mknod')
                  THEN c.start_ns + c.duration_ns END) AS last_write_ns,
              MIN(CASE WHEN o.class = 'open' THEN c.start_ns END) AS first_open_ns,
              MIN(c.start_ns) AS first_ns,
              MAX(c.start_ns + c.duration_ns) AS last_ns,
              COUNT(*) AS calls
            FROM call AS c JOIN operation AS o ON o.op = c.op
            WHERE c.upid IS NOT NULL AND c.file_id IS NOT NULL AND COALESCE(c.result, 0) >= 0
            GROUP BY c.upid, c.file_id
            ORDER BY c.upid, c.file_id";
        self.rows(sql, |r| {
            Ok(DataAccessRow {
                upid: r.get("upid")?,
                file_id: r.get("file_id")?,
                opens: r.get("opens")?,
                creates: r.get("creates")?,
                reads: r.get("reads")?,
                read_bytes: r.get("read_bytes")?,
                writes: r.get("writes")?,
                write_bytes: r.get("write_bytes")?,
                changes: r.get("changes")?,
                truncates: r.get("truncates")?,
                read_opens: r.get("read_opens")?,
                write_opens: r.get("write_opens")?,
                first_read_ns: r.get("first_read_ns")?,
                last_read_ns: r.get("last_read_ns")?,
                first_write_ns: r.get("first_write_ns")?,
                last_write_ns: r.get("last_write_ns")?,
                first_open_ns: r.get("first_open_ns")?,
                first_ns: r.get("first_ns")?,
                last_ns: r.get("last_ns")?,
                calls: r.get("calls")?,
            })
        })
    }

    /// The number of file calls.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn call_count(&self) -> Result<u64> {
        let counts = self.rows("SELECT COUNT(*) FROM call", |r| r.get::<_, i64>(0))?;
        Ok(counts[0] as u64)
    }

    /// Whether a view has any row.
    ///
    /// # Errors
    /// When the file cannot be read, or has no such view.
    pub fn is_empty(&self, view: &doc::Relation) -> Result<bool> {
        let sql = format!("SELECT NOT EXISTS (SELECT 1 FROM {})", view.name);
        Ok(self.rows(&sql, |r| r.get(0))?.pop().unwrap_or(true))
    }

    /// What is known to be missing, the worst first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn losses(&self) -> Result<Vec<LossRow>> {
        let sql = "SELECT * FROM losses ORDER BY CASE severity WHEN 'error' THEN 0
                   WHEN 'data_loss' THEN 1 WHEN 'notice' THEN 2 ELSE 3 END, source, counter";
        self.rows(sql, |r| {
            Ok(LossRow {
                source: r.get("source")?,
                counter: r.get("counter")?,
                value: r.get("value")?,
                meaning: r.get("meaning")?,
                severity: r.get("severity")?,
            })
        })
    }

    /// Runs one statement of the user and hands its rows to `table`.
    ///
    /// # Errors
    /// When the statement is wrong, would write, or is not exactly one; when `table` refuses.
    pub fn query(&self, sql: &str, table: &mut dyn Table) -> Result<()> {
        let mut statement = self.db.prepare(sql).map_err(|error| match error {
            rusqlite::Error::MultipleStatement => {
                Error::NotOneStatement("one statement at a time, please")
            }
            // A change to a view fails before it could be known as one.
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

    fn rows<T>(
        &self,
        sql: &str,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let rows = || {
            self.db
                .prepare(sql)?
                .query_map([], read)?
                .collect::<rusqlite::Result<_>>()
        };
        rows().map_err(|source| Error::Sqlite {
            what: "cannot read",
            path: self.path.clone(),
            source,
        })
    }
}

/// What SQLite said, without the statement that the user has just typed.
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
