//! An older trace, which is kept until the trace that replaces it has begun.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::beside::{LOGS, beside};

/// Endings of the names of the file and of those that SQLite keeps beside it.
const ENDINGS: [&str; 4] = ["", LOGS[0], LOGS[1], LOGS[2]];

/// The names of all files that belong to a trace while it is recorded, those of an older trace that it
/// replaces among them.
pub fn own_files(path: &Path) -> impl Iterator<Item = PathBuf> {
    let older = older_path(path);
    let names = move |path: &Path| ENDINGS.map(|ending| beside(path, ending));
    names(path).into_iter().chain(names(&older))
}

/// The path where an older trace is kept meanwhile.
fn older_path(path: &Path) -> PathBuf {
    beside(path, &format!(".older-{}", std::process::id()))
}

/// The older trace at the path of a new one, if there was one. All clones are of the same trace.
#[derive(Clone, Debug)]
pub struct Older {
    path: Arc<Mutex<Option<PathBuf>>>,
}

impl Older {
    /// There was no older trace.
    pub(crate) fn none() -> Older {
        Older {
            path: Arc::default(),
        }
    }

    /// Renames the trace at `path`, so that a new one can be made there.
    ///
    /// # Errors
    /// If a file cannot be renamed; then all files have their names as before.
    pub(crate) fn move_away(path: &Path) -> io::Result<Older> {
        if let Err(error) = rename(path, &older_path(path)) {
            let _ = rename(&older_path(path), path);
            return Err(error);
        }
        Ok(Older {
            path: Arc::new(Mutex::new(Some(path.to_owned()))),
        })
    }

    /// True if the older trace is still there.
    pub fn is_kept(&self) -> bool {
        let path = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        path.is_some()
    }

    /// Removes the older trace: the one that replaces it has begun.
    pub fn remove(&self) {
        if let Some(path) = self.take() {
            let older = older_path(&path);
            for ending in ENDINGS {
                let _ = std::fs::remove_file(beside(&older, ending));
            }
        }
    }

    /// Gives the older trace its name again: the trace that was to replace it never began, and is gone.
    pub(crate) fn put_back(&self) {
        if let Some(path) = self.take() {
            let _ = rename(&older_path(&path), &path);
        }
    }

    fn take(&self) -> Option<PathBuf> {
        let mut path = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        path.take()
    }
}

/// Gives a trace another name.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    for ending in ENDINGS {
        match std::fs::rename(beside(from, ending), beside(to, ending)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_older_trace_comes_back_with_what_belongs_to_it_or_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.db");
        let names = || {
            let entries = fs::read_dir(directory.path()).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        };
        fs::write(&path, "old").unwrap();
        fs::write(beside(&path, "-wal"), "log").unwrap();
        let older = Older::move_away(&path).unwrap();
        assert!(!path.exists());
        let known: Vec<PathBuf> = own_files(&path).collect();
        assert!(
            names()
                .iter()
                .all(|name| known.contains(&directory.path().join(name)))
        );
        assert!(older.is_kept());
        older.put_back();
        assert!(!older.is_kept());
        assert_eq!(names(), ["t.db", "t.db-wal"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        older.remove();
        assert_eq!(
            names(),
            ["t.db", "t.db-wal"],
            "the older trace is left as it is"
        );
        Older::move_away(&path).unwrap().remove();
        assert!(names().is_empty());
        Older::none().put_back();
    }
}
