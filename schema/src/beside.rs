//! Files beside a trace: the logs of SQLite, and files named after the trace.

use std::io;
use std::path::{Path, PathBuf};

/// Suffix of the note of [`crate::Unrecorded`].
pub(crate) const NOTE: &str = "-unrecorded";

/// Suffixes of the files that belong to a trace: those that SQLite keeps beside a database, and the note.
pub(crate) const SUFFIXES: [&str; 4] = ["-wal", "-shm", "-journal", NOTE];

/// Removes the files beside a trace that is removed.
pub(crate) fn remove_companions(path: &Path) -> io::Result<()> {
    for suffix in SUFFIXES {
        match std::fs::remove_file(beside(path, suffix)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Path of the file beside `path` whose name is that of `path` with `suffix`.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
