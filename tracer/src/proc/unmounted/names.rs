//! Removals, renames and new names of unmounted files.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use flowtrace_schema::FileKind;

use super::super::near::{self, Found, There, real};
use super::UnmountedFiles;
use super::paths::full_path;
use crate::file_table::NameIn;
use crate::proc::observer::Tracee;

/// A change of names, at the entry of its call.
#[derive(Debug)]
pub(crate) enum NameChange {
    Removed(PathBuf),
    Renamed {
        from: PathBuf,
        to: PathBuf,
        exchange: bool,
        /// True if paths of the process may name other files than ours.
        is_foreign: bool,
    },
    /// A new name of a recorded file: one with the name `from`, or without one (`O_TMPFILE`).
    Linked {
        from: Option<PathBuf>,
        to: PathBuf,
    },
}

impl UnmountedFiles {
    /// The change that a removing call is going to make, if it concerns a recorded name.
    pub(crate) fn removing(
        &self,
        tracee: Tracee,
        directory: Option<i32>,
        path: &OsStr,
    ) -> Option<NameChange> {
        let path = full_path(tracee, directory, path)?;
        self.may_be_recorded(&path)
            .then_some(NameChange::Removed(path))
    }

    /// The change of a rename.
    pub(crate) fn renaming(
        &self,
        tracee: Tracee,
        from: (Option<i32>, &OsStr),
        to: (Option<i32>, &OsStr),
        exchange: bool,
    ) -> Option<NameChange> {
        let from = full_path(tracee, from.0, from.1)?;
        let to = full_path(tracee, to.0, to.1)?;
        if self.views.cover(&from) {
            return None;
        }
        Some(NameChange::Renamed {
            from,
            to,
            exchange,
            is_foreign: self.is_foreign(tracee),
        })
    }

    /// The change of a call that gives a file another name; its first name is not always known.
    pub(crate) fn linking(
        &self,
        tracee: Tracee,
        from: Option<(Option<i32>, &OsStr)>,
        to: (Option<i32>, &OsStr),
    ) -> Option<NameChange> {
        let to = full_path(tracee, to.0, to.1)?;
        if self.views.cover(&to) {
            return None;
        }
        let from = from.and_then(|(directory, path)| full_path(tracee, directory, path));
        Some(NameChange::Linked { from, to })
    }

    /// A change of names succeeded.
    pub(crate) fn changed(&mut self, change: NameChange, now: u64) {
        match change {
            NameChange::Removed(path) => {
                let path = self.recorded(path);
                self.known.unname(&path);
                self.system.remove(path.as_os_str());
                self.files.removed(NameIn::full_path(path.as_os_str()), now);
            }
            NameChange::Linked { from, to } => {
                let from = from.map(|from| real(&from).unwrap_or(from));
                let to = real(&to).unwrap_or(to);
                self.linked(from.as_deref(), &to, now);
            }
            NameChange::Renamed {
                from,
                to,
                exchange,
                is_foreign,
            } => {
                let (from, to) = (real(&from).unwrap_or(from), real(&to).unwrap_or(to));
                if is_foreign && !self.is_renamed(&from, &to, exchange) {
                    return;
                }
                self.system.remove(from.as_os_str());
                self.system.remove(to.as_os_str());
                self.renamed(&from, &to, exchange, now);
                // A file has no names below it; of a name that was not recorded it is not known what it was.
                let is_file = self
                    .known
                    .named(&to)
                    .and_then(|moved| self.known.kind(moved));
                let below = match is_file {
                    Some(FileKind::File) if !exchange => Vec::new(),
                    _ => self.known.below(&from),
                };
                for old in below {
                    let rest = old.strip_prefix(&from).unwrap_or(&old).to_owned();
                    self.renamed(&old, &to.join(rest), false, now);
                }
            }
        }
    }

    fn linked(&mut self, from: Option<&Path>, to: &Path, now: u64) {
        let known = match near::at(to) {
            // A hard link to a symbolic link does not name the target of that.
            Found::Is(there) if !there.attributes.is_regular() => None,
            Found::Is(There {
                attributes: found, ..
            }) => {
                // A file that was gone when it was read is known by the identity that the kernel reported.
                let known = self.files.known_inode(&found);
                known.or_else(|| self.known.of(&found))
            }
            // The new name is gone already, or may not be looked up.
            Found::Nothing | Found::Unknown => self.known.named(from.unwrap_or(to)),
        };
        if let Some(file) = known {
            self.known.name(to.to_owned(), file);
            let name = NameIn::full_path(to.as_os_str());
            self.files.named(file, FileKind::File, name, now);
        }
    }

    /// True if a rename that succeeded is one of the names that we have for these paths.
    fn is_renamed(&self, from: &Path, to: &Path, exchange: bool) -> bool {
        if !exchange {
            return matches!(near::at(from), Found::Nothing);
        }
        let known = self.known.named(from);
        let known = known.and_then(|file| self.known.last_seen(file));
        known.is_some_and(|(inode, _)| {
            matches!(near::at(to), Found::Is(there) if inode.number == there.attributes.ino)
        })
    }

    fn renamed(&mut self, from: &Path, to: &Path, exchange: bool, now: u64) {
        let moved = self.known.take_name(from);
        let replaced = match exchange {
            true => self.known.take_name(to),
            false => self.known.unname(to),
        };
        if moved.is_none() && replaced.is_none() {
            return;
        }
        let replaced = replaced.filter(|_| exchange);
        for (file, path) in moved
            .map(|file| (file, to))
            .into_iter()
            .chain(replaced.map(|file| (file, from)))
        {
            self.known.name(path.to_owned(), file);
            self.check_again(file, path);
        }
        self.files.renamed(
            NameIn::full_path(from.as_os_str()),
            NameIn::full_path(to.as_os_str()),
            exchange,
            now,
        );
    }

    fn is_recorded(&self, path: &Path) -> bool {
        self.known.named(path).is_some() || self.system.contains_key(path.as_os_str())
    }

    /// True if a name was recorded, as it is or with its links followed, as far as these can be followed now:
    /// after the call the kernel has them all in its cache.
    fn may_be_recorded(&self, path: &Path) -> bool {
        !self.views.cover(path)
            && (self.is_recorded(path) || real(path).is_none_or(|path| self.is_recorded(&path)))
    }

    /// The path under which it was recorded.
    fn recorded(&self, path: PathBuf) -> PathBuf {
        match self.is_recorded(&path) {
            true => path,
            false => real(&path).unwrap_or(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use std::sync::Arc;

    use flowtrace_schema::{FileId, HostId, Recorder};

    use super::*;
    use crate::file_table::FileTable;
    use crate::proc::views::Views;

    #[test]
    fn renaming_a_directory_renames_what_is_known_below() {
        let recorder = Recorder::nowhere();
        let files = Arc::new(FileTable::new(recorder.clone()));
        let mut unmounted = UnmountedFiles::new(
            HostId(1),
            files,
            &recorder,
            Views::new(iter::empty()),
            None,
            true,
        );
        unmounted.known.name("/a/b/c".into(), FileId(1));
        unmounted.known.name("/ab".into(), FileId(2));
        let change = NameChange::Renamed {
            from: "/a".into(),
            to: "/z".into(),
            exchange: false,
            is_foreign: false,
        };
        unmounted.changed(change, 5);
        assert_eq!(unmounted.known.named(Path::new("/z/b/c")), Some(FileId(1)));
        assert_eq!(unmounted.known.named(Path::new("/ab")), Some(FileId(2)));
        assert_eq!(unmounted.known.names().count(), 2);
    }
}
