//! Files beside a trace: the logs of SQLite, and files named after the trace.

use std::io;
use std::path::{Path, PathBuf};

/// Suffixes of the files that SQLite keeps beside a database.
pub(crate) const LOGS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Removes the files that SQLite keeps beside a database that is removed.
pub(crate) fn remove_logs(path: &Path) -> io::Result<()> {
    for suffix in LOGS {
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
