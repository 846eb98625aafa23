//! An older trace, which stays complete until the trace that takes its place has begun.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::beside::{LOGS, beside};

/// Endings of the names of the file and of those that SQLite keeps beside it.
const ENDINGS: [&str; 4] = ["", LOGS[0], LOGS[1], LOGS[2]];

/// The names of all files that belong to a trace while it is recorded, those of the older trace among them.
pub fn own_files(path: &Path) -> impl Iterator<Item = PathBuf> {
    let (older, kept) = (older_path(path), kept_path(path));
    let names = move |path: &Path| ENDINGS.map(|ending| beside(path, ending));
    names(path)
        .into_iter()
        .chain(names(&older))
        .chain(names(&kept))
}

/// The path under which the trace at `path` is kept when the next one is recorded there.
pub fn kept_path(path: &Path) -> PathBuf {
    beside(path, ".old")
}

/// The path where an older trace is kept meanwhile.
fn older_path(path: &Path) -> PathBuf {
    beside(path, &format!(".older-{}", std::process::id()))
}

/// What becomes of an older trace when the new one has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// It is removed.
    Remove,
    /// It is kept under the name of [`kept_path`].
    Keep,
}

/// The place of an older trace.
#[derive(Debug, Default)]
enum Place {
    /// There is none, or it has its own name.
    #[default]
    Own,
    /// Under the name of [`older_path`]; this is its own path.
    Aside(PathBuf),
    /// Under this name, for good.
    Kept(PathBuf),
}

/// The older trace at the path of a new one, if there was one. All clones are of the same trace.
#[derive(Clone, Debug)]
pub struct Older {
    place: Arc<Mutex<Place>>,
    after: After,
}

impl Older {
    /// There was no older trace.
    pub(crate) fn none() -> Older {
        Older {
            place: Arc::default(),
            after: After::Remove,
        }
    }

    /// Renames the trace at `path`, so that a new one can be made there.
    ///
    /// # Errors
    /// If a file cannot be renamed; then all files have their names as before.
    pub(crate) fn move_away(path: &Path, after: After) -> io::Result<Older> {
        if let Err(error) = rename(path, &older_path(path)) {
            let _ = rename(&older_path(path), path);
            return Err(error);
        }
        Ok(Older {
            place: Arc::new(Mutex::new(Place::Aside(path.to_owned()))),
            after,
        })
    }

    /// True if the older trace may have to come back.
    pub fn is_pending(&self) -> bool {
        matches!(*self.place(), Place::Aside(_))
    }

    /// Removes the older trace, or gives it the name under which it is kept: the new one has begun.
    pub fn settle(&self) {
        let mut place = self.place();
        let Place::Aside(path) = &*place else { return };
        let (older, kept) = (older_path(path), kept_path(path));
        *place = match self.after {
            After::Remove => {
                remove(&older);
                Place::Own
            }
            After::Keep => {
                // No log of an earlier one may stay beside it.
                remove(&kept);
                match rename(&older, &kept) {
                    Ok(()) => Place::Kept(kept),
                    Err(_) => Place::Kept(older),
                }
            }
        };
    }

    /// The path of the older trace, if it is kept beside the new one.
    pub fn kept(&self) -> Option<PathBuf> {
        match &*self.place() {
            Place::Kept(path) => Some(path.clone()),
            Place::Own | Place::Aside(_) => None,
        }
    }

    /// Gives the older trace its name again: the trace that was to take its place never began, and is gone.
    pub(crate) fn put_back(&self) {
        let mut place = self.place();
        if let Place::Aside(path) = &*place {
            let _ = rename(&older_path(path), path);
            *place = Place::Own;
        }
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remove(path: &Path) {
    for ending in ENDINGS {
        let _ = std::fs::remove_file(beside(path, ending));
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
        let older = Older::move_away(&path, After::Remove).unwrap();
        assert!(!path.exists());
        let known: Vec<PathBuf> = own_files(&path).collect();
        assert!(
            names()
                .iter()
                .all(|name| known.contains(&directory.path().join(name)))
        );
        assert!(older.is_pending());
        older.put_back();
        assert!(!older.is_pending());
        assert_eq!(names(), ["t.db", "t.db-wal"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        older.settle();
        assert_eq!(
            names(),
            ["t.db", "t.db-wal"],
            "the older trace is left as it is"
        );
        fs::write(beside(&kept_path(&path), "-shm"), "of an earlier one").unwrap();
        let older = Older::move_away(&path, After::Keep).unwrap();
        older.settle();
        assert_eq!(older.kept(), Some(kept_path(&path)));
        assert_eq!(names(), ["t.db.old", "t.db.old-wal"]);
        assert!(own_files(&path).any(|own| own == kept_path(&path)));
        remove(&kept_path(&path));
        fs::write(&path, "old").unwrap();
        Older::move_away(&path, After::Remove).unwrap().settle();
        assert!(names().is_empty());
        Older::none().put_back();
    }
}
