//! An older trace, which stays complete until the trace that takes its place has begun.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::beside::{SUFFIXES, beside};
use crate::carried;

/// Endings of the names of the file and of those beside it.
const ENDINGS: [&str; 5] = ["", SUFFIXES[0], SUFFIXES[1], SUFFIXES[2], SUFFIXES[3]];

/// The names of all files that belong to a trace while it is recorded, those of the older trace among them.
pub fn own_files(path: &Path) -> impl Iterator<Item = PathBuf> {
    let (older, kept) = (older_path(path, std::process::id()), kept_path(path));
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

/// The path where an older trace is kept meanwhile; `recording`: the process whose recording takes its place.
fn older_path(path: &Path, recording: u32) -> PathBuf {
    beside(path, &format!(".older-{recording}"))
}

/// What becomes of an older trace when the new one has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum After {
    /// It is removed.
    Remove,
    /// It is kept under the name of [`kept_path`].
    Keep,
}

/// The place of an older trace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) enum Place {
    /// There is none, or it has its own name.
    #[default]
    Own,
    /// Under another name for the time being.
    Aside {
        /// Its own path.
        #[serde(with = "carried::path")]
        own: PathBuf,
        /// That of [`older_path`].
        #[serde(with = "carried::path")]
        aside: PathBuf,
    },
    /// Under this name, for good.
    Kept(#[serde(with = "carried::path")] PathBuf),
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

    /// Renames the trace at `path`, so that process `recording` can make a new one there.
    ///
    /// # Errors
    /// If a file cannot be renamed; then all files have their names as before.
    pub(crate) fn move_away(path: &Path, after: After, recording: u32) -> io::Result<Older> {
        let aside = older_path(path, recording);
        if let Err(error) = rename(path, &aside) {
            let _ = rename(&aside, path);
            return Err(error);
        }
        let own = path.to_owned();
        Ok(Older::of(Place::Aside { own, aside }, after))
    }

    /// An older trace at this place.
    pub(crate) fn of(place: Place, after: After) -> Older {
        Older {
            place: Arc::new(Mutex::new(place)),
            after,
        }
    }

    /// Its place, and what becomes of it, for another process that is to decide.
    pub(crate) fn parts(&self) -> (Place, After) {
        (self.place().clone(), self.after)
    }

    /// True if the older trace may have to come back.
    pub fn is_pending(&self) -> bool {
        matches!(*self.place(), Place::Aside { .. })
    }

    /// Removes the older trace, or gives it the name under which it is kept: the new one has begun.
    pub fn settle(&self) {
        let mut place = self.place();
        let Place::Aside { own, aside } = &*place else {
            return;
        };
        let kept = kept_path(own);
        *place = match self.after {
            After::Remove => {
                remove(aside);
                Place::Own
            }
            After::Keep => {
                // No log of an earlier one may stay beside it.
                remove(&kept);
                match rename(aside, &kept) {
                    Ok(()) => Place::Kept(kept),
                    Err(_) => Place::Kept(aside.clone()),
                }
            }
        };
    }

    /// The path of the older trace, if it is kept beside the new one.
    pub fn kept(&self) -> Option<PathBuf> {
        match &*self.place() {
            Place::Kept(path) => Some(path.clone()),
            Place::Own | Place::Aside { .. } => None,
        }
    }

    /// Gives the older trace its name again: the trace that was to take its place never began, and is gone.
    pub(crate) fn put_back(&self) {
        let mut place = self.place();
        if let Place::Aside { own, aside } = &*place {
            let _ = rename(aside, own);
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
        let older = Older::move_away(&path, After::Remove, std::process::id()).unwrap();
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
        let older = Older::move_away(&path, After::Keep, std::process::id()).unwrap();
        older.settle();
        assert_eq!(older.kept(), Some(kept_path(&path)));
        assert_eq!(names(), ["t.db.old", "t.db.old-wal"]);
        assert!(own_files(&path).any(|own| own == kept_path(&path)));
        remove(&kept_path(&path));
        fs::write(&path, "old").unwrap();
        Older::move_away(&path, After::Remove, std::process::id())
            .unwrap()
            .settle();
        assert!(names().is_empty());
        Older::none().put_back();
    }
}
