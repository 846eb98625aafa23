//! The files that each step needs and the files that it leaves behind, from the files that it used.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::effects::{Effects, How, Thing};
use super::source::Source;
use super::step::Draft;
use super::words::Place;
use super::{Input, Leaf, Output};
use crate::paths::below;

mod found;
pub(super) mod links;
mod listed;

/// The uses of files by merged step.
pub(super) struct Files<'a> {
    source: &'a Source,
    effects: &'a Effects,
    of_draft: &'a HashMap<usize, usize>,
    /// Files that each step read, got new contents by it, or had their times set by it.
    reads: HashSet<(usize, i64)>,
    writes: HashSet<(usize, i64)>,
    timed: HashSet<(usize, i64)>,
    /// Steps that changed a thing, each with the instant of its last change, in the order of time.
    changed: HashMap<&'a Thing, Vec<(i64, usize)>>,
    /// Uses of things by each step.
    by_step: HashMap<usize, Vec<(&'a Thing, How, i64, i64)>>,
    /// Names that the trace does not have, by directory; for directories that existed before the run
    /// and were listed.
    unseen_in: HashMap<String, Vec<(String, Kind)>>,
    /// Directories of this kind that cannot be read now, with the reason.
    unreadable: BTreeMap<String, String>,
}

impl<'a> Files<'a> {
    pub(super) fn of(
        source: &'a Source,
        effects: &'a Effects,
        of_draft: &'a HashMap<usize, usize>,
    ) -> Files<'a> {
        let merged = |set: &HashSet<(usize, i64)>| -> HashSet<(usize, i64)> {
            let kept = set
                .iter()
                .filter_map(|(draft, file)| Some((*of_draft.get(draft)?, *file)));
            kept.collect()
        };
        let mut files = Files {
            source,
            effects,
            of_draft,
            reads: merged(&effects.reads),
            writes: merged(&effects.writes),
            timed: merged(&effects.timed),
            changed: HashMap::new(),
            by_step: HashMap::new(),
            unseen_in: HashMap::new(),
            unreadable: BTreeMap::new(),
        };
        for (thing, touches) in &effects.touches {
            for touch in touches {
                let Some(&step) = of_draft.get(&touch.step) else {
                    continue;
                };
                if touch.how == How::Write {
                    let changed = files.changed.entry(thing).or_default();
                    changed.push((touch.span.last_ns, step));
                }
                files.by_step.entry(step).or_default().push((
                    thing,
                    touch.how,
                    touch.span.first_ns,
                    touch.span.last_ns,
                ));
            }
        }
        for changed in files.changed.values_mut() {
            changed.sort_unstable();
        }
        files.read_directories();
        files
    }

    /// Directories that were listed, existed before the run, and cannot be read now, with the reason.
    pub(super) fn unreadable(&self) -> &BTreeMap<String, String> {
        &self.unreadable
    }

    /// Returns true if another step changed this thing after `step` did.
    fn changed_later(&self, thing: &Thing, step: usize) -> bool {
        let changed = self.changed.get(thing).map_or(&[][..], Vec::as_slice);
        match changed.iter().rposition(|&(_, by)| by == step) {
            Some(at) => changed[at..].iter().any(|&(_, by)| by != step),
            None => !changed.is_empty(),
        }
    }

    /// Returns true if a later step changed this thing, no matter if `step` did.
    fn is_changed_after(&self, thing: &Thing, step: usize) -> bool {
        let changed = self.changed.get(thing).map_or(&[][..], Vec::as_slice);
        changed.iter().any(|&(_, by)| by > step)
    }

    /// The files that a step leaves behind, and true if these files alone do not show that the step was
    /// done.
    pub(super) fn outputs(&self, step: usize, parts: &[&Draft]) -> (Vec<Output>, bool) {
        let source = self.source;
        let end = parts.iter().map(|draft| draft.end_ns).max().unwrap_or(0);
        let none = Vec::new();
        let touched = self.by_step.get(&step).unwrap_or(&none);
        let changed = touched.iter().filter(|(_, how, _, _)| *how == How::Write);
        let named: HashSet<&str> = changed
            .clone()
            .filter_map(|(thing, ..)| match thing {
                Thing::Name(path) => Some(path.as_str()),
                _ => None,
            })
            .collect();
        let contents: HashSet<i64> = changed
            .filter_map(|(thing, ..)| match thing {
                Thing::Content(file) => Some(*file),
                _ => None,
            })
            .collect();
        let mut files: BTreeSet<i64> = touched
            .iter()
            .filter_map(|(thing, ..)| match thing {
                Thing::Content(file) => Some(*file),
                _ => None,
            })
            .collect();
        // Files that the step only gave a name.
        files.extend(named.iter().filter_map(|path| source.file_at(path, end)));
        let mut outputs = Vec::new();
        let mut evident: HashSet<&str> = HashSet::new();
        let mut evident_contents: HashSet<i64> = HashSet::new();
        for &file in &files {
            if !source.is_regular(file) {
                continue;
            }
            let mut is_there = false;
            for name in source.names_during(file, end, end) {
                if name.to_ns == Some(end) || !source.is_traced(&name.path) {
                    continue;
                }
                is_there = true;
                if !contents.contains(&file) && !named.contains(name.path.as_str()) {
                    continue;
                }
                let lasts = name.to_ns.is_none()
                    && !self.changed_later(&Thing::Content(file), step)
                    && !self.changed_later(&Thing::Name(name.path.clone()), step);
                // Its time of change must be that of the step, or make would do the step again.
                let is_fresh =
                    self.writes.contains(&(step, file)) && !self.timed.contains(&(step, file));
                if lasts && is_fresh {
                    evident.insert(&name.path);
                    evident_contents.insert(file);
                }
                outputs.push(Output {
                    place: Place::of(&name.path, &source.root),
                    lasts: lasts && is_fresh,
                    stays: name.to_ns.is_none()
                        && !self.is_changed_after(&Thing::Content(file), step)
                        && !self.is_changed_after(&Thing::Name(name.path.clone()), step),
                });
            }
            if !is_there {
                // Made and removed within the step.
                evident_contents.insert(file);
            }
        }
        outputs.sort_by(|a, b| a.place.cmp(&b.place));
        outputs.dedup();
        let has_evident = outputs
            .iter()
            .any(|output| output.lasts && output.place.is_below());
        let is_evident = |path: &str| {
            evident.contains(path)
                || self.is_of_passage(path, step, parts)
                || self.is_new_directory(path, step)
        };
        let all_evident =
            named.iter().all(|path| is_evident(path)) && contents.is_subset(&evident_contents);
        (outputs, !(has_evident && all_evident))
    }

    /// Returns true for a name that existed neither before the step nor after it.
    fn is_of_passage(&self, path: &str, step: usize, parts: &[&Draft]) -> bool {
        let source = self.source;
        let start = parts.iter().map(|draft| draft.start_ns).min().unwrap_or(0);
        let end = parts.iter().map(|draft| draft.end_ns).max().unwrap_or(0);
        source.file_at(path, end).is_none()
            && source.file_at(path, start).is_none()
            && !self.is_new_directory(path, step)
            && !source.is_directory_at(path, start)
    }

    /// Directories, links and FIFOs below the root that the step made or named, and that stayed.
    pub(super) fn leaves(&self, step: usize, parts: &[&Draft]) -> Vec<Leaf> {
        let source = self.source;
        let start = parts.iter().map(|draft| draft.start_ns).min().unwrap_or(0);
        let touched = self.by_step.get(&step).into_iter().flatten();
        let made = touched.filter_map(|(thing, how, ..)| {
            let Thing::Name(path) = thing else {
                return None;
            };
            let is_directory = self.is_new_directory(path, step);
            let is_other =
                || source.is_link_or_fifo_at(path, i64::MAX) && !self.changed_later(thing, step);
            let stays = *how == How::Write && (is_directory || is_other());
            let path_below = below(path, &source.root).filter(|_| stays)?;
            let was_there = source.file_at(path, start).is_some()
                || source.is_directory_at(path, start)
                || source.is_link_or_fifo_at(path, start);
            let leaf = Leaf {
                path: path_below.to_owned(),
                is_directory,
                is_new: !was_there,
            };
            Some((leaf.path.clone(), leaf))
        });
        let made: BTreeMap<String, Leaf> = made.collect();
        made.into_values().collect()
    }

    /// Returns true if a step made directories that stayed, and changed nothing else.
    pub(super) fn makes_directories_only(&self, step: usize) -> bool {
        let touched = self.by_step.get(&step).into_iter().flatten();
        let mut changed = touched
            .filter(|(_, how, ..)| *how == How::Write)
            .map(|(thing, ..)| thing)
            .peekable();
        changed.peek().is_some()
            && changed.all(
                |thing| matches!(thing, Thing::Name(path) if self.is_new_directory(path, step)),
            )
    }

    /// Returns true for a directory that the step made and that stayed.
    fn is_new_directory(&self, path: &str, step: usize) -> bool {
        self.source.is_directory_at(path, i64::MAX)
            && !self.changed_later(&Thing::Name(path.into()), step)
    }

    pub(super) fn inputs(&self, step: usize) -> Vec<Input> {
        let source = self.source;
        let none = Vec::new();
        let mut inputs = Vec::new();
        for &(thing, how, first, last) in self.by_step.get(&step).unwrap_or(&none) {
            let Thing::Content(file) = thing else {
                continue;
            };
            if how != How::Read || !source.is_regular(*file) || !self.reads.contains(&(step, *file))
            {
                continue;
            }
            let changed = self.changed.get(thing).map_or(&[][..], Vec::as_slice);
            let from = changed
                .iter()
                .rev()
                .find(|&&(at, by)| at <= last && by < step)
                .map(|&(_, by)| by);
            let name = source
                .names_during(*file, first, last)
                .find(|name| source.is_traced(&name.path));
            let Some(name) = name else {
                continue;
            };
            let by_name = Thing::Name(name.path.clone());
            let from_name = self.changed.get(&by_name).map_or(&[][..], Vec::as_slice);
            let lasts = name.to_ns.is_none()
                && match from {
                    Some(from) => {
                        !self.changed_later(thing, from)
                            && from_name.iter().all(|&(_, by)| by == from)
                    }
                    None => changed.is_empty() && from_name.is_empty(),
                };
            inputs.push(Input {
                place: Place::of(&name.path, &source.root),
                from,
                lasts,
            });
        }
        for (draft, paths) in &self.effects.read_outside {
            if self.of_draft.get(draft) == Some(&step) {
                let own = self.effects.outside.get(draft);
                let others = paths
                    .iter()
                    .filter(|path| own.is_none_or(|own| !own.contains_key(*path)));
                inputs.extend(others.map(|path| Input {
                    place: Place::Elsewhere(path.clone()),
                    from: None,
                    lasts: true,
                }));
            }
        }
        inputs.sort_by(|a, b| a.place.cmp(&b.place));
        inputs.dedup();
        inputs
    }

    /// The directories below the root that were made in the run and existed at its end.
    pub(super) fn last_directories(&self) -> Vec<String> {
        let last = self.source.last_directories();
        let made = last.filter(|path| self.is_made_ever(path));
        let made: BTreeSet<&str> = made
            .filter_map(|path| below(path, &self.source.root))
            .collect();
        made.into_iter().map(String::from).collect()
    }

    /// Returns true if the step renamed or removed a directory that existed before it.
    pub(super) fn moves_directory(&self, step: usize, parts: &[&Draft]) -> bool {
        let start = parts.iter().map(|draft| draft.start_ns).min().unwrap_or(0);
        let mut touched = self.by_step.get(&step).into_iter().flatten();
        touched.any(|(thing, how, ..)| match thing {
            Thing::Name(path) => *how == How::Write && self.source.is_directory_at(path, start),
            _ => false,
        })
    }
}

/// The kind of file that has a name which no step used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Link,
}
