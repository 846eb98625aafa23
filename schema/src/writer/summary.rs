//! Result of a recording.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Result of a recording.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Rows stored, calls included.
    pub rows: u64,
    /// File calls stored.
    pub calls: u64,
    /// Packets stored.
    pub packets: u64,
    /// Rows that could not be stored.
    pub dropped: u64,
    /// Reason why the last attempt to write failed, if it did.
    pub write_error: Option<String>,
    /// Reason why the file is not a single file without `-wal`, if so.
    pub not_folded: Option<String>,
    /// Change by another program that moved the file from its place.
    #[serde(skip)]
    pub displaced: Option<Displaced>,
    /// The path under which the older trace is kept whose place the new one took.
    #[serde(skip)]
    pub kept: Option<PathBuf>,
}

/// The way in which a trace left its place while it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displaced {
    /// It has no name any more; its rows are lost.
    Deleted,
    /// It has another name.
    Moved,
}
