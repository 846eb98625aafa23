//! The files that existed when a step began, and that a directory of its own must have for it.

use std::collections::{BTreeSet, HashMap};

use super::super::effects::{How, Thing};
use super::super::step::Draft;
use super::super::words::Place;
use super::super::{Output, Take};
use super::links::span;
use super::{Files, Kind};
use crate::paths::below;

impl Files<'_> {
    /// The files that existed before the step and that it used or changed, under any name.
    pub(in super::super) fn takes(&self, step: usize, parts: &[&Draft]) -> Vec<Take> {
        let source = self.source;
        let (start, _) = span(parts);
        // Every path, with true if the step changed it.
        let seen = self.seen(step, start).into_iter();
        let mut paths: HashMap<&str, bool> = seen.map(|path| (path, false)).collect();
        for &(thing, how, first, last) in self.by_step.get(&step).into_iter().flatten() {
            let changes = how == How::Write;
            match thing {
                Thing::Name(path) => *paths.entry(path).or_default() |= changes,
                Thing::Content(file) => {
                    for name in source.names_during(*file, first, last) {
                        *paths.entry(&name.path).or_default() |= changes;
                    }
                }
                Thing::List(_) | Thing::Outside(_) | Thing::Fifo(_) => {}
            }
        }
        let take = |(path, changes): (&str, bool)| {
            let file = self.before(path, step, parts)?;
            if !source.is_traced(path) {
                return None;
            }
            let thing = [Thing::Content(file), Thing::Name(path.into())];
            let changed = thing
                .iter()
                .filter_map(|thing| self.changed.get(thing))
                .flatten();
            let before = changed.filter(|&&(at, by)| at <= start && by < step);
            Some(Take {
                place: Place::of(path, &source.root),
                from: before.max().map(|&(_, by)| by),
                changes,
            })
        };
        let mut takes: Vec<Take> = paths.into_iter().filter_map(take).collect();
        takes.extend(self.unseen(step, Kind::File).map(|path| Take {
            place: Place::of(path, &source.root),
            from: None,
            changes: false,
        }));
        takes.sort_by(|a, b| a.place.cmp(&b.place));
        takes
    }

    /// The regular file that had this name when the step began. The trace knows a name only from its
    /// first use on: the file that the step used first existed before, unless the step made it.
    fn before(&self, path: &str, step: usize, parts: &[&Draft]) -> Option<i64> {
        let source = self.source;
        let (start, end) = span(parts);
        if let Some(file) = source.file_at(path, start) {
            return Some(file);
        }
        let name = Thing::Name(path.into());
        let changed = self.changed.get(&name).map_or(&[][..], Vec::as_slice);
        // A name that an earlier step had made or removed has no file unless one was seen.
        if changed.iter().any(|&(_, by)| by < step) || self.is_moved(path, step) {
            return None;
        }
        // A name that no step ever made or removed had its file, even if only a later step used it.
        let until = if changed.is_empty() { i64::MAX } else { end };
        let file = source.first_file(path, start, until)?;
        // The step wrote the file, or renamed a known file to this name.
        let is_made = self.writes.contains(&(step, file)) || source.is_renamed(file, path);
        let is_own = changed.iter().any(|&(_, by)| by == step) && is_made;
        (!is_own).then_some(file)
    }

    /// Directories that existed when the step began, and that it used, ran in or leaves files in.
    pub(in super::super) fn directories(
        &self,
        step: usize,
        parts: &[&Draft],
        outputs: &[Output],
    ) -> Vec<String> {
        let source = self.source;
        let (start, _) = span(parts);
        let members = parts.iter().flat_map(|draft| &draft.members);
        let cwds = members.filter_map(|upid| source.rows.get(upid)?.cwd.as_deref());
        let cwds = cwds.filter_map(|cwd| below(cwd, &source.root));
        let above = outputs.iter().filter(|output| output.place.is_below());
        let links = self.made_links(step, parts);
        let above = above.map(|output| output.place.path());
        let above = above.chain(links.iter().map(String::as_str));
        let above = above.flat_map(|path| path.match_indices('/').map(|(at, _)| &path[..at]));
        let is_made = |path: &str| self.is_made_since(path, step, start);
        let is_old = |path: &&str| {
            let whole = format!("{}/{path}", source.root);
            !path.is_empty() && (source.is_directory_at(&whole, start) || !is_made(&whole))
        };
        let mut found: BTreeSet<&str> = cwds.chain(above).filter(is_old).collect();
        let was_there = |path: &&str| {
            source.is_directory_at(path, start)
                || !self.is_made_ever(path) && source.is_directory_during(path, start, i64::MAX)
        };
        let seen = self.seen(step, start).into_iter().filter(was_there);
        let seen = seen.chain(self.unseen(step, Kind::Directory));
        found.extend(
            seen.filter_map(|path| below(path, &source.root))
                .filter(|path| !path.is_empty()),
        );
        found.into_iter().map(String::from).collect()
    }

    /// Returns true if this step or a later one made this name, or one above it, what it is.
    fn is_made_since(&self, path: &str, step: usize, start: i64) -> bool {
        self.changes_above(path)
            .any(|(at, by)| by == step || at > start)
    }

    /// Returns true if the directory, or one that it lies in, was made or renamed in the run.
    pub(super) fn is_made_ever(&self, path: &str) -> bool {
        self.changes_above(path).next().is_some()
    }

    /// Returns true if a directory above `path` was made, renamed or removed by this step or an earlier
    /// one.
    fn is_moved(&self, path: &str, step: usize) -> bool {
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        self.changes_above(above).any(|(_, by)| by <= step)
    }

    /// The changes of a name and of the names above it. With a directory, the files in it move.
    fn changes_above<'b>(&'b self, path: &'b str) -> impl Iterator<Item = (i64, usize)> + 'b {
        let paths = path.match_indices('/').map(|(at, _)| &path[..at]);
        let paths = paths
            .chain([path])
            .filter(|path| self.source.is_traced(path));
        paths.flat_map(|path| {
            let changed = self.changed.get(&Thing::Name(path.into()));
            changed.into_iter().flatten().copied()
        })
    }
}
