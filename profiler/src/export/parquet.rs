//! A dataset of Parquet files for engines that work on many machines: every view is a directory,
//! partitioned as Hive does it, `VIEW/run=R/host=H/part.parquet`.
//!
//! `run` is the start of the recording (of a merged trace: of its earliest), in ns since 1970, so
//! that datasets of many traces can stand in one directory; ids are unique within one `run`. `host`
//! is the machine that a row is of, and replaces the column of that name. Rows of no machine have the
//! partition that Hive gives NULL.
//!
//! Rows are read on the caller's thread and encoded on another.

mod calls;
mod column;
mod part;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use flowtrace_schema::{Trace, Value, doc};

use column::Column;
use part::Parts;

/// Rows of a row group: what engines read at once.
const GROUP: usize = 1 << 17;
/// Most rows held back for all partitions of a view.
const MOST_HELD: usize = 1 << 19;
/// What Hive calls the partition of NULL.
const NO_HOST: &str = "__HIVE_DEFAULT_PARTITION__";

/// Why a dataset could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] flowtrace_schema::Error),
    /// A file cannot be written.
    #[error("cannot write {path}: {reason}")]
    Output {
        /// Which.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A value is of another type than its column.
    #[error("column {column} of {view} holds {value:?}, which its type does not allow")]
    Type {
        /// The view.
        view: String,
        /// The column.
        column: String,
        /// The value.
        value: Value,
    },
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Rows of all views.
    pub rows: u64,
    /// Files.
    pub files: u64,
    /// Size of all files.
    pub bytes: u64,
}

/// Writes every view of a trace below `directory`. Files appear when they are complete, and replace
/// those of the same run.
///
/// # Errors
/// When the trace cannot be read, or a file not be written.
pub fn write(trace: &Trace, directory: &Path) -> Result<Written, Error> {
    let started = trace
        .runs()?
        .iter()
        .filter_map(|run| run.started_unix_ns)
        .min();
    let hosts = Hosts::of(trace)?;
    let mut written = Written::default();
    for view in doc::views() {
        let layout = Layout::of(trace, view.name)?;
        let dataset = directory
            .join(&layout.view)
            .join(format!("run={}", started.unwrap_or(0)));
        let of_view = write_view(trace, &hosts, &layout, &dataset)?;
        written.rows += of_view.rows;
        written.files += of_view.files;
        written.bytes += of_view.bytes;
    }
    Ok(written)
}

/// The columns of a view, and how the machine of a row is found.
struct Layout {
    view: String,
    columns: Vec<Column>,
    host_at: Option<usize>,
    upid_at: Option<usize>,
    host_id_at: Option<usize>,
}

impl Layout {
    fn of(trace: &Trace, view: String) -> Result<Layout, Error> {
        let kinds = trace.column_kinds(&view)?;
        let at = |name: &str| kinds.iter().position(|(column, _)| column == name);
        let (host_at, upid_at, host_id_at) = (at("host"), at("upid"), at("host_id"));
        let kept = kinds.into_iter().filter(|(name, _)| name != "host");
        Ok(Layout {
            view,
            columns: kept.map(|(name, kind)| Column::new(name, kind)).collect(),
            host_at,
            upid_at,
            host_id_at,
        })
    }
}

/// Names of machines, by what refers to them.
struct Hosts {
    of_process: HashMap<i64, String>,
    by_id: HashMap<i64, String>,
}

impl Hosts {
    fn of(trace: &Trace) -> Result<Hosts, Error> {
        let processes = trace.processes()?.into_iter();
        let hosts = trace.hosts()?.into_iter();
        Ok(Hosts {
            of_process: processes
                .filter_map(|row| Some((row.upid, row.host?)))
                .collect(),
            by_id: hosts.map(|row| (row.host_id, row.host)).collect(),
        })
    }
}

/// What the encoder is told.
enum Batch<'a> {
    /// A row group of a machine.
    Group(Option<&'a str>, Vec<Column>),
    /// That was all. Without this, the files are not completed.
    Complete,
}

/// Rows that wait to be written, by the machine that they are of.
struct Rows<'a> {
    layout: &'a Layout,
    waiting: HashMap<Option<&'a str>, Vec<Column>>,
    held: usize,
    filled: SyncSender<Batch<'a>>,
    count: u64,
}

impl<'a> Rows<'a> {
    /// The columns of a partition, to which one value each is to be added.
    fn of(&mut self, host: Option<&'a str>) -> &mut [Column] {
        let Rows {
            waiting, layout, ..
        } = self;
        waiting
            .entry(host)
            .or_insert_with(|| layout.columns.iter().map(Column::emptied).collect())
    }

    /// A row was added to a partition. False: nobody takes rows any more.
    fn added(&mut self, host: Option<&'a str>) -> bool {
        self.count += 1;
        self.held += 1;
        let full = self.waiting[&host].first().map_or(0, Column::len) >= GROUP;
        if full {
            return self.send(host);
        }
        if self.held < MOST_HELD {
            return true;
        }
        let largest = self
            .waiting
            .iter()
            .max_by_key(|(_, columns)| columns.first().map_or(0, Column::len));
        match largest.map(|(host, _)| *host) {
            Some(host) => self.send(host),
            None => true,
        }
    }

    fn send(&mut self, host: Option<&'a str>) -> bool {
        let Some(columns) = self.waiting.remove(&host) else {
            return true;
        };
        self.held -= columns.first().map_or(0, Column::len);
        self.filled.send(Batch::Group(host, columns)).is_ok()
    }

    fn finish(mut self) -> u64 {
        if self.count == 0 {
            // A view without rows is still a view.
            self.of(None);
        }
        let hosts: Vec<_> = self.waiting.keys().copied().collect();
        for host in hosts {
            if !self.send(host) {
                break;
            }
        }
        // Who does not listen any more says why.
        let _ = self.filled.send(Batch::Complete);
        self.count
    }
}

fn write_view(
    trace: &Trace,
    hosts: &Hosts,
    layout: &Layout,
    dataset: &Path,
) -> Result<Written, Error> {
    thread::scope(|scope| {
        let (filled, batches) = sync_channel::<Batch<'_>>(2);
        let schema = part::schema(&layout.view, &layout.columns);
        let encoder = scope.spawn(move || -> Result<Written, Error> {
            let mut parts = Parts::new(dataset, schema);
            for batch in batches {
                match batch {
                    Batch::Group(host, columns) => parts.write(host, &columns)?,
                    Batch::Complete => return parts.finish(),
                }
            }
            Ok(Written::default())
        });
        let mut rows = Rows {
            layout,
            waiting: HashMap::new(),
            held: 0,
            filled,
            count: 0,
        };
        let read = match &*layout.view {
            "calls" => calls::read(trace, hosts, &mut rows),
            _ => read_view(trace, hosts, &mut rows),
        };
        let count = match read {
            Ok(()) => rows.finish(),
            Err(_) => {
                drop(rows);
                0
            }
        };
        let written = encoder.join().unwrap_or_else(|panic| {
            std::panic::resume_unwind(panic);
        });
        // Why the encoder stopped taking rows is what matters.
        let written = written?;
        read?;
        Ok(Written {
            rows: count,
            ..written
        })
    })
}

fn read_view<'a>(trace: &Trace, hosts: &'a Hosts, rows: &mut Rows<'a>) -> Result<(), Error> {
    let layout = rows.layout;
    let mut table = Reader {
        rows,
        hosts,
        failed: None,
    };
    let read = trace.query(&format!("SELECT * FROM {}", layout.view), &mut table);
    match table.failed {
        Some(error) => Err(error),
        None => Ok(read?),
    }
}

/// Takes the rows of any view.
struct Reader<'r, 'a> {
    rows: &'r mut Rows<'a>,
    hosts: &'a Hosts,
    failed: Option<Error>,
}

impl flowtrace_schema::Table for Reader<'_, '_> {
    fn columns(&mut self, _names: &[String]) -> std::io::Result<()> {
        Ok(())
    }

    fn row(&mut self, values: Vec<Value>) -> std::io::Result<()> {
        let layout = self.rows.layout;
        let id = |at: Option<usize>| match at.map(|at| &values[at]) {
            Some(Value::Integer(id)) => Some(*id),
            _ => None,
        };
        let named = match layout.host_at.map(|at| &values[at]) {
            Some(Value::Text(name)) => self.hosts.by_id.values().find(|host| *host == name),
            _ => id(layout.upid_at)
                .and_then(|upid| self.hosts.of_process.get(&upid))
                .or_else(|| id(layout.host_id_at).and_then(|id| self.hosts.by_id.get(&id))),
        };
        let host = named.map(String::as_str);
        let values = values
            .into_iter()
            .enumerate()
            .filter(|(at, _)| Some(*at) != layout.host_at);
        let columns = self.rows.of(host);
        for ((_, value), column) in values.zip(columns) {
            if let Err(value) = column.push(value) {
                self.failed = Some(Error::Type {
                    view: layout.view.clone(),
                    column: column.name.clone(),
                    value,
                });
                return Err(std::io::Error::other("a value of a wrong type"));
            }
        }
        if self.rows.added(host) {
            return Ok(());
        }
        Err(std::io::Error::other("the rows cannot be written"))
    }
}
