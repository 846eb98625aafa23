//! The names in a directory that a step listed. A step that lists names need not use their files, so
//! the trace may lack some names. Directories that existed before the run are therefore read again now.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::{fs, io};

use super::super::effects::Thing;
use super::super::source::Source;
use super::{Files, Kind};

impl Files<'_> {
    /// The names in a directory, as far as in the trace, when a step began.
    pub(super) fn listed<'b>(
        &'b self,
        directory: &'b str,
        step: usize,
        start: i64,
    ) -> impl Iterator<Item = &'b str> {
        let then = self.source.names_in(directory, start);
        // Names first seen later that no step up to then made: they existed.
        let is_old = move |path: &&str| {
            let changed = self.changed.get(&Thing::Name((*path).into()));
            changed.into_iter().flatten().all(|&(_, by)| by > step)
        };
        let later = self.source.names_ever_in(directory);
        then.chain(later.filter(is_old))
    }

    /// The names that a step used, changed, or saw when it listed a directory.
    pub(super) fn seen(&self, step: usize, start: i64) -> BTreeSet<&str> {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for (thing, how, ..) in self.by_step.get(&step).into_iter().flatten() {
            match thing {
                Thing::Name(path) => drop(seen.insert(path)),
                Thing::List(directory) if how.may_list() => {
                    seen.extend(self.listed(directory, step, start));
                }
                _ => {}
            }
        }
        seen
    }

    /// The names that a step saw when it listed a directory and that no step used otherwise.
    pub(super) fn unseen(&self, step: usize, kind: Kind) -> impl Iterator<Item = &str> {
        let touched = self.by_step.get(&step).into_iter().flatten();
        let lists = touched.filter_map(|(thing, how, ..)| match thing {
            Thing::List(directory) if how.may_list() => self.unseen_in.get(directory),
            _ => None,
        });
        let names = lists.flatten().filter(move |name| name.1 == kind);
        names.map(|name| name.0.as_str())
    }

    /// Reads every directory that was listed and existed before the run. If one cannot be read any
    /// more, the error is kept.
    pub(super) fn read_directories(&mut self) {
        let Some(until) = ended(self.source) else {
            return;
        };
        for (thing, touches) in &self.effects.touches {
            let Thing::List(directory) = thing else {
                continue;
            };
            let is_listed = touches.iter().any(|touch| touch.how.may_list());
            if !is_listed || self.is_made_ever(directory) || !self.source.is_traced(directory) {
                continue;
            }
            let entries =
                match fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
                    Ok(entries) => entries,
                    Err(error) => {
                        self.unreadable.insert(directory.clone(), error.to_string());
                        continue;
                    }
                };
            let unseen = entries.into_iter().filter_map(|entry| {
                let path = entry.path().into_os_string().into_string().ok()?;
                let data = entry.metadata().ok()?;
                let changed = data.ctime().saturating_mul(1_000_000_000) + data.ctime_nsec();
                let kind = match data.file_type() {
                    kind if kind.is_file() => Kind::File,
                    kind if kind.is_dir() => Kind::Directory,
                    kind if kind.is_symlink() => Kind::Link,
                    _ => return None,
                };
                (changed <= until && !self.source.is_known(&path)).then_some((path, kind))
            });
            let unseen: Vec<_> = unseen.collect();
            self.unseen_in.insert(directory.clone(), unseen);
        }
    }
}

/// End of the run, ns since 1970.
pub(super) fn ended(source: &Source) -> Option<i64> {
    let run = source.workflow.runs.first()?;
    let end_ns = run.end_ns.unwrap_or(source.workflow.last_ns);
    run.started_unix_ns?.checked_add(end_ns)
}
