//! A dataset of Parquet files for engines that work on many machines: every view is a directory,
//! partitioned as Hive does it, `VIEW/run=R/host=H/part*.parquet`.
//!
//! `run` is the start of the recording in ns since 1970; for a merged trace, that of its earliest part.
//! So datasets of many traces can be in one directory; ids are unique within one `run`. `host` is the
//! machine to which a row belongs, and replaces the column of that name. Rows of no machine are in the
//! partition that Hive uses for NULL.
//!
//! Rows of a view are read on the caller's thread and encoded on another. Calls are by far the most
//! rows. They are read and encoded by as many threads as there are CPUs, each of which writes parts of
//! its own.

mod accesses;
mod calls;
mod column;
mod layout;
mod part;

use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread;

use column::Column;
use flowtrace_schema::{Trace, Value, doc};
pub use layout::Error;
use layout::{Hosts, Layout, Rows};
use part::Parts;

use crate::export::parquet::layout::{Batch, MOST_WAITING};

/// The view with by far the most rows.
const CALLS: &str = "calls";

/// The amount written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Number of rows of all views.
    pub rows: u64,
    /// Number of files.
    pub files: u64,
    /// Size of all files, bytes.
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
    // A connection of its own, since it is to see other tables than those in the file.
    let summed = Trace::open(trace.path())?;
    let mut views: Vec<String> = doc::views().into_iter().map(|view| view.name).collect();
    // The view from which others are computed comes first.
    views.sort_by_key(|view| view != CALLS);
    let mut written = Written::default();
    for view in views {
        let layout = Layout::of(trace, view)?;
        let dataset = directory
            .join(&layout.view)
            .join(format!("run={}", started.unwrap_or(0)));
        let (rows, files) = if layout.view == CALLS {
            let calls = calls::write(trace, &hosts, &layout, &dataset)?;
            summed.sum_accesses(&calls.accesses.into_rows())?;
            (calls.rows, calls.files)
        } else {
            write_view(&summed, &hosts, &layout, &dataset)?
        };
        written.rows += rows;
        written.files += files.len() as u64;
        let sizes = files.iter().filter_map(|path| path.metadata().ok());
        written.bytes += sizes.map(|metadata| metadata.len()).sum::<u64>();
        part::remove_others(&dataset, &files.into_iter().collect())?;
    }
    Ok(written)
}

fn write_view(
    trace: &Trace,
    hosts: &Hosts,
    layout: &Layout,
    dataset: &Path,
) -> Result<(u64, Vec<PathBuf>), Error> {
    thread::scope(|scope| {
        let (filled, batches) = sync_channel::<Batch<'_>>(2);
        let encoder = scope.spawn(move || -> Result<Vec<PathBuf>, Error> {
            let name = "part.parquet".to_owned();
            let mut parts = Parts::new(dataset, name, &layout.view, &layout.columns);
            for batch in batches {
                match batch {
                    Batch::Group(host, columns) => parts.write(host, &columns)?,
                    Batch::Complete => {
                        parts.close()?;
                        return parts.publish();
                    }
                }
            }
            Ok(Vec::new())
        });
        let mut rows = Rows::new(layout, MOST_WAITING, |host, columns| {
            let group = Batch::Group(host, std::mem::take(columns));
            filled.send(group).is_ok()
        });
        let read = read_view(trace, hosts, &mut rows);
        let count = match read {
            Ok(()) => {
                let count = rows.finish(true);
                // If the encoder has ended, its own result gives the reason.
                let _ = filled.send(Batch::Complete);
                count
            }
            Err(_) => 0,
        };
        drop(filled);
        let written = encoder.join().unwrap_or_else(|panic| {
            std::panic::resume_unwind(panic);
        });
        // If the encoder stopped, its error is the one that matters.
        let written = written?;
        read?;
        Ok((count, written))
    })
}

fn read_view<'a, W: FnMut(Option<&'a str>, &mut Vec<Column>) -> bool>(
    trace: &Trace,
    hosts: &'a Hosts,
    rows: &mut Rows<'a, W>,
) -> Result<(), Error> {
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

/// Reads the rows of any view.
struct Reader<'r, 'a, W> {
    rows: &'r mut Rows<'a, W>,
    hosts: &'a Hosts,
    failed: Option<Error>,
}

impl<'a, W> flowtrace_schema::Table for Reader<'_, 'a, W>
where
    W: FnMut(Option<&'a str>, &mut Vec<Column>) -> bool,
{
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
            Some(Value::Text(name)) => self.hosts.by_id.values().find(|host| ***host == **name),
            _ => id(layout.upid_at)
                .and_then(|upid| self.hosts.of_process.get(&upid))
                .or_else(|| id(layout.host_id_at).and_then(|id| self.hosts.by_id.get(&id))),
        };
        let host = named.map(|host| &**host);
        let values = values
            .into_iter()
            .enumerate()
            .filter(|(at, _)| Some(*at) != layout.host_at);
        let place = self.rows.place(host);
        for ((_, value), column) in values.zip(self.rows.at(place)) {
            if let Err(value) = column.push(value) {
                self.failed = Some(Error::Type {
                    view: layout.view.clone(),
                    column: column.name.clone(),
                    value,
                });
                return Err(std::io::Error::other("a value of a wrong type"));
            }
        }
        if self.rows.added(place) {
            return Ok(());
        }
        Err(std::io::Error::other("the rows cannot be written"))
    }
}
