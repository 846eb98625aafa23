//! Errors of a trace file.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rusqlite::types::Type;
use serde::{Deserialize, Serialize};

use crate::carried::{self, Constant, io_error, sqlite_error};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a trace could not be created, opened or queried. The text says what failed, on which file
/// and why; it fits on one line.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
pub enum Error {
    /// The output exists and may not be replaced.
    #[error("{0} exists already")]
    Exists(#[serde(with = "carried::path")] PathBuf),
    /// The output is a trace that another flowtrace is writing.
    #[error("{0} is being recorded by another flowtrace")]
    Recording(#[serde(with = "carried::path")] PathBuf),
    /// An older trace cannot get the name under which it is kept.
    #[error(
        "{path} exists already, and cannot be kept as {kept}: a file of that name is there that is no finished trace"
    )]
    Occupied {
        /// The older trace.
        #[serde(with = "carried::path")]
        path: PathBuf,
        /// The name that is taken.
        #[serde(with = "carried::path")]
        kept: PathBuf,
    },
    /// There is no such file, or it cannot be read.
    #[error("cannot open {path}: {source}")]
    Open {
        /// The file to open.
        #[serde(with = "carried::path")]
        path: PathBuf,
        /// Error of the system.
        #[serde(with = "io_error")]
        source: std::io::Error,
    },
    /// The output cannot be written at the path asked for.
    #[error("cannot create {path}: {source}")]
    Create {
        /// The file to create.
        #[serde(with = "carried::path")]
        path: PathBuf,
        /// Error of the system.
        #[serde(with = "io_error")]
        source: std::io::Error,
    },
    /// The output is a symbolic link that leads nowhere.
    #[error("cannot create {path}: it is a symbolic link to {target}, which does not exist")]
    Dangling {
        /// The link.
        #[serde(with = "carried::path")]
        path: PathBuf,
        /// Path that the link contains.
        #[serde(with = "carried::path")]
        target: PathBuf,
    },
    /// The file is not a SQLite database.
    #[error("{0} is not a flowtrace database (no SQLite header)")]
    NotDatabase(#[serde(with = "carried::path")] PathBuf),
    /// The file is empty: a recording was killed before its first commit.
    #[error("{0} is empty: its recording ended before anything was stored")]
    Empty(#[serde(with = "carried::path")] PathBuf),
    /// A SQLite database of some other program.
    #[error("{path} is a SQLite database, but not of flowtrace (application id {found:#010x})")]
    Foreign {
        /// The file to open.
        #[serde(with = "carried::path")]
        path: PathBuf,
        /// Its `application_id`.
        found: u32,
    },
    /// Written by an older flowtrace.
    #[error("{path} has schema version {found}, this flowtrace knows {known} and no older ones")]
    Older {
        /// The file to open.
        #[serde(with = "carried::path")]
        path: PathBuf,
        /// Its `user_version`.
        found: i64,
        /// The version of this program.
        known: i64,
    },
    /// Written by a newer flowtrace.
    #[error("{path} has schema version {found}, this flowtrace knows up to {known}")]
    Newer {
        /// Path asked for.
        #[serde(with = "carried::path")]
        path: PathBuf,
        /// Its `user_version`.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// The file is shorter than its own header says.
    #[error("{path} is truncated: {found} bytes of {expected}")]
    Truncated {
        /// The file to open.
        #[serde(with = "carried::path")]
        path: PathBuf,
        /// Bytes there are.
        found: u64,
        /// Bytes there should be.
        expected: u64,
    },
    /// The file is a trace, but parts of it are not as a recording makes them.
    #[error("{path} is damaged: {what}")]
    Damaged {
        /// The file to open.
        #[serde(with = "carried::path")]
        path: PathBuf,
        /// The damaged part, and what is in its place.
        what: String,
    },
    /// SQLite refused an operation on the file.
    #[error("{what} {path}: {source}")]
    Sqlite {
        /// The operation that failed, as a verb: "cannot read".
        #[serde(deserialize_with = "carried::constant")]
        what: Constant,
        /// The file of the operation.
        #[serde(with = "carried::path")]
        path: PathBuf,
        /// Error of SQLite.
        #[serde(with = "sqlite_error")]
        source: rusqlite::Error,
    },
    /// Files that cannot be merged.
    #[error("{what}")]
    Merge {
        /// The files, and the reason.
        what: String,
        /// The action that helps.
        hint: String,
    },
    /// A query of the user is wrong.
    #[error("query failed: {0}")]
    Query(String),
    /// A query would change the trace.
    #[error("query refused: a trace is opened read-only, and this statement would write")]
    Writes,
    /// The query text contains more than one statement, or none.
    #[error("query refused: {0}")]
    NotOneStatement(#[serde(deserialize_with = "carried::constant")] Constant),
    /// A sink given by the caller failed while it was given rows.
    #[error("{0}")]
    Sink(
        #[from]
        #[serde(with = "io_error")]
        std::io::Error,
    ),
}

impl Error {
    /// A trace that cannot be read, or has a value that no recording stores.
    pub(crate) fn unreadable(path: &Path, source: rusqlite::Error) -> Error {
        let what = match source {
            rusqlite::Error::Utf8Error(..) => "a text in it is not UTF-8".to_owned(),
            rusqlite::Error::InvalidColumnType(_, name, Type::Null) => {
                format!("a value of {name} is missing")
            }
            rusqlite::Error::InvalidColumnType(_, name, found) => {
                format!("a value of {name} has the wrong type ({found})")
            }
            rusqlite::Error::IntegralValueOutOfRange(_, number) => {
                format!("the number {number} in it is out of range")
            }
            rusqlite::Error::FromSqlConversionFailure(_, _, reason) => reason.to_string(),
            rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error {
                    code: ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch,
                    ..
                },
                Some(reason),
            ) => format!("a row does not fit into its table: {reason}"),
            source => {
                return Error::Sqlite {
                    what: "cannot read",
                    path: path.to_owned(),
                    source,
                };
            }
        };
        let path = path.to_owned();
        Error::Damaged { path, what }
    }

    /// True if the disk is full, or the user's share of it.
    pub fn is_for_want_of_space(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Error::Create { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded),
            Error::Sqlite { source, .. } => source.sqlite_error_code() == Some(ErrorCode::DiskFull),
            _ => false,
        }
    }
}
