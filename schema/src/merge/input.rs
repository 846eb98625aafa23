//! The files to merge. Each is a whole trace, and none is there twice.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row};

use super::columns::Space;
use super::options::{ClockMethod, MergeOptions, refuse};
use crate::{Error, Result, store};

/// A machine as one file knows it.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) id: i64,
    pub(super) name: String,
    pub(super) boot: Option<String>,
    pub(super) epoch_unix_ns: i64,
    pub(super) monotonic_ns: Option<i64>,
    pub(super) wall_error_ns: Option<i64>,
    /// Result of an exchange of times; `None`: the file knows the machine without one.
    pub(super) asked: Option<Asked>,
}

/// A clock as an exchange of times found it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// Bound of the error.
    pub(super) error_ns: i64,
    /// The file's clock runs faster than this one by so many parts per billion.
    pub(super) gains_ppb: i64,
}

impl Host {
    /// Identifies a kernel: inodes and the monotonic clock are the same within one.
    pub(super) fn kernel(&self) -> &str {
        self.boot.as_deref().unwrap_or(&self.name)
    }
}

/// A recording in one file.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) host: i64,
    pub(super) job: Option<String>,
    pub(super) launcher: Option<String>,
    pub(super) recorded_unix_ns: i64,
}

/// One of the files to be merged.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) path: PathBuf,
    /// Size and time of the last change: a file that was copied in part must not have changed since.
    pub(super) state: (i64, i64),
    pub(super) hosts: Vec<Host>,
    pub(super) runs: Vec<Run>,
    /// Added to the ids of each space, in the order of [`Space::ALL`].
    pub(super) offsets: [i64; Space::ALL.len()],
}

impl Input {
    /// Opens a connection.
    ///
    /// # Errors
    /// If the file cannot be read any more.
    pub(super) fn connect(&self) -> Result<Connection> {
        let db = store::open_read_only(&self.path)?;
        // Hundreds of files may be open at once, and each is read from begin to end.
        db.execute_batch("PRAGMA cache_size = -512;")
            .map_err(|source| Error::unreadable(&self.path, source))?;
        Ok(db)
    }

    /// The columns of a table that this file has; empty if it has no such table.
    pub(super) fn columns(&self, db: &Connection, table: &str) -> Result<Vec<String>> {
        columns(db, table).map_err(|source| Error::unreadable(&self.path, source))
    }

    pub(super) fn error(&self, source: rusqlite::Error) -> Error {
        Error::unreadable(&self.path, source)
    }

    pub(super) fn host(&self, id: i64) -> Option<&Host> {
        self.hosts.iter().find(|host| host.id == id)
    }
}

/// The names of a table's columns.
pub(super) fn columns(db: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    db.prepare("SELECT name FROM pragma_table_info(?1)")?
        .query_map([table], |row| row.get(0))?
        .collect()
}

/// Opens and checks all files.
///
/// # Errors
/// The file that does not belong here, and the reason.
pub(super) fn open(options: &MergeOptions) -> Result<Vec<Input>> {
    let inode = |path: &Path| path.metadata().ok().map(|m: Metadata| (m.dev(), m.ino()));
    let output = inode(&options.output);
    let mut seen: HashMap<(u64, u64), &Path> = HashMap::new();
    let mut inputs: Vec<Input> = Vec::new();
    let mut offsets = [0i64; Space::ALL.len()];
    let mut recorded: HashMap<(String, i64), usize> = HashMap::new();
    for path in &options.inputs {
        let own = inode(path);
        if own.is_some() && own == output {
            return Err(refuse(
                format!("cannot merge {} into itself", path.display()),
                "name another file with -o",
            ));
        }
        if let Some(own) = own
            && let Some(other) = seen.insert(own, path)
        {
            return Err(refuse(
                format!(
                    "{} and {} are the same file",
                    other.display(),
                    path.display()
                ),
                "name each trace once",
            ));
        }
        let (input, highest) = open_one(path, offsets, options.unfinished)?;
        for (sum, highest) in offsets.iter_mut().zip(highest) {
            let next = highest
                .filter(|&id| id >= 0)
                .and_then(|id| sum.checked_add(id));
            *sum = next.ok_or_else(|| {
                refuse(
                    format!("{} is damaged: it has impossible ids", path.display()),
                    "record it again",
                )
            })?;
        }
        for run in &input.runs {
            let kernel = input.host(run.host).map_or("", Host::kernel).to_owned();
            let key = (kernel, run.recorded_unix_ns);
            if let Some(earlier) = recorded.insert(key, inputs.len()) {
                let earlier = inputs.get(earlier).map_or(path, |input| &input.path);
                return Err(refuse(
                    format!(
                        "{} and {} contain the same recording",
                        earlier.display(),
                        path.display()
                    ),
                    "leave one of them out: its calls would be counted twice",
                ));
            }
        }
        inputs.push(input);
    }
    if !options.mixed_jobs {
        check_jobs(&inputs)?;
    }
    Ok(inputs)
}

type Highest = [Option<i64>; Space::ALL.len()];

fn open_one(
    path: &Path,
    offsets: [i64; Space::ALL.len()],
    unfinished: bool,
) -> Result<(Input, Highest)> {
    if store::is_being_recorded(path) {
        return Err(refuse(
            format!("{} is still being recorded", path.display()),
            "wait for its end",
        ));
    }
    if store::log_bytes(path) > 0 && !unfinished {
        return Err(refuse(
            format!(
                "{} was not closed: part of it is in the -wal file beside it",
                path.display()
            ),
            "its recording goes on elsewhere, or was killed: then take what there is with --unfinished",
        ));
    }
    let metadata = path.metadata().map_err(|source| Error::Open {
        path: path.to_owned(),
        source,
    })?;
    let mut input = Input {
        path: path.to_owned(),
        state: (
            metadata.len() as i64,
            metadata
                .mtime()
                .saturating_mul(1_000_000_000)
                .saturating_add(metadata.mtime_nsec()),
        ),
        hosts: Vec::new(),
        runs: Vec::new(),
        offsets,
    };
    let db = input.connect()?;
    db.busy_timeout(Duration::from_secs(5))
        .map_err(|e| input.error(e))?;
    let (hosts, runs, highest) = describe(&db).map_err(|e| input.error(e))?;
    if runs.is_empty() {
        return Err(refuse(
            format!("{} contains no recording", path.display()),
            "leave it out: its recording ended before it began",
        ));
    }
    (input.hosts, input.runs) = (hosts, runs);
    Ok((input, highest))
}

/// A column that older files may not have.
fn optional<T: rusqlite::types::FromSql>(row: &Row<'_>, column: &str) -> Option<T> {
    row.get::<_, Option<T>>(column).ok().flatten()
}

fn describe(db: &Connection) -> rusqlite::Result<(Vec<Host>, Vec<Run>, Highest)> {
    let mut drift = match columns(db, "node")?.is_empty() {
        true => None,
        false => Some(db.prepare("SELECT drift_ppb FROM node WHERE host_id = ?1")?),
    };
    let hosts: Vec<Host> = db
        .prepare("SELECT * FROM host ORDER BY host_id")?
        .query_map([], |row| {
            let method: Option<String> = optional(row, "clock_method");
            let is_asked = method.as_deref() == Some(ClockMethod::Exchange.name());
            let error_ns: Option<i64> = optional(row, "clock_error_ns");
            let id: i64 = row.get("host_id")?;
            let gains_ppb = drift.as_mut().map(|find| {
                let found = find.query_row([id], |row| row.get(0)).optional();
                found.map(Option::unwrap_or_default)
            });
            let gains_ppb = gains_ppb.transpose()?.unwrap_or(0);
            Ok(Host {
                asked: error_ns.filter(|_| is_asked).map(|error_ns| Asked {
                    error_ns,
                    gains_ppb,
                }),
                id,
                name: row.get("name")?,
                boot: row.get("boot_id")?,
                epoch_unix_ns: row.get("epoch_unix_ns")?,
                monotonic_ns: optional(row, "monotonic_ns"),
                wall_error_ns: optional(row, "wall_error_ns"),
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let epoch = |host: i64| {
        hosts
            .iter()
            .find(|h| h.id == host)
            .map_or(0, |h| h.epoch_unix_ns)
    };
    let runs = db
        .prepare("SELECT * FROM run ORDER BY run_id")?
        .query_map([], |row| {
            let host = row.get("host_id")?;
            let start: i64 = optional(row, "start_ns").unwrap_or(0);
            Ok(Run {
                host,
                job: optional(row, "job"),
                launcher: optional(row, "launcher"),
                recorded_unix_ns: optional(row, "recorded_unix_ns")
                    .unwrap_or_else(|| epoch(host).saturating_add(start)),
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let mut highest = [None; Space::ALL.len()];
    for (place, (_, table, column)) in Space::ALL.into_iter().enumerate() {
        highest[place] = match columns(db, table)?.iter().any(|name| name == column) {
            false => Some(0),
            true => {
                let sql = format!("SELECT COALESCE(MAX({column}), 0) FROM {table}");
                db.query_row(&sql, [], |row| row.get(0)).ok()
            }
        };
    }
    Ok((hosts, runs, highest))
}

/// Recordings of two jobs of one launcher are two experiments.
fn check_jobs(inputs: &[Input]) -> Result<()> {
    let mut first: HashMap<&str, (&str, &Path)> = HashMap::new();
    for input in inputs {
        for run in &input.runs {
            let (Some(launcher), Some(job)) = (&run.launcher, &run.job) else {
                continue;
            };
            // A step is part of its job.
            let job = job.split('.').next().unwrap_or(job);
            let (known, path) = *first.entry(launcher).or_insert((job, &input.path));
            if known != job {
                return Err(refuse(
                    format!(
                        "{} is of {launcher} job {known}, {} of job {job}",
                        path.display(),
                        input.path.display()
                    ),
                    "merge the traces of one job, or say --mixed-jobs",
                ));
            }
        }
    }
    Ok(())
}
