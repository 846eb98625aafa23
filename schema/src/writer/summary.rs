//! Result of a recording.

/// Result of a recording.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Rows stored, calls included.
    pub rows: u64,
    /// File calls stored.
    pub calls: u64,
    /// Packets stored.
    pub packets: u64,
    /// Rows that could not be stored.
    pub dropped: u64,
    /// Why the last attempt to write failed, if one did.
    pub write_error: Option<String>,
    /// Why the file is not a single file without `-wal`, if so.
    pub not_folded: Option<String>,
    /// What somebody did to the file meanwhile, so that it is no longer where it was made.
    pub displaced: Option<Displaced>,
}

/// How a trace left its place while it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displaced {
    /// It has no name any more; its rows are lost.
    Deleted,
    /// It has another name.
    Moved,
}
