//! The symbolic links that steps make or follow. The trace does not have their targets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::super::effects::{How, Thing};
use super::super::source::Source;
use super::super::step::Draft;
use super::super::{Link, Step};
use super::{Files, Kind};
use crate::paths::below;

impl Files<'_> {
    /// The links that existed before the step and that it used. The kernel asks for the target each
    /// time that a link is followed.
    pub(in super::super) fn links(&self, step: usize, parts: &[&Draft]) -> Vec<Link> {
        let (start, end) = span(parts);
        let link = |path: &str| {
            let place = below(path, &self.source.root)?;
            let name = Thing::Name(path.into());
            let changed = self.changed.get(&name).map_or(&[][..], Vec::as_slice);
            let mut earlier = changed.iter().filter(|&&(at, by)| at <= start && by < step);
            let from = earlier.next_back().map(|&(_, by)| by);
            // The trace knows a name only from its first use on.
            let is_there = self.source.is_link_during(path, start, start)
                || changed.iter().all(|&(_, by)| by > step)
                    && self.source.is_link_during(path, start, end);
            let to_directory = match from {
                None => fs::metadata(path).ok().map(|data| data.is_dir()),
                Some(_) => None,
            };
            is_there.then(|| Link {
                path: place.into(),
                from,
                to_directory,
            })
        };
        let unseen = self.unseen(step, Kind::Link).filter_map(|path| {
            Some(Link {
                path: below(path, &self.source.root)?.into(),
                from: None,
                to_directory: fs::metadata(path).ok().map(|data| data.is_dir()),
            })
        });
        let seen = self.seen(step, start).into_iter();
        seen.filter_map(link).chain(unseen).collect()
    }

    /// The links that the step made or renamed, and left behind.
    pub(in super::super) fn made_links(&self, step: usize, parts: &[&Draft]) -> Vec<String> {
        let (_, end) = span(parts);
        let touched = self.by_step.get(&step).into_iter().flatten();
        let made = touched.filter_map(|(thing, how, ..)| match thing {
            Thing::Name(path) if *how == How::Write => below(path, &self.source.root)
                .filter(|_| self.source.is_link_during(path, end, end))
                .filter(|_| self.source.is_link_during(path, end + 1, i64::MAX)),
            _ => None,
        });
        let made: BTreeSet<&str> = made.collect();
        made.into_iter().map(String::from).collect()
    }
}

pub(super) fn span(parts: &[&Draft]) -> (i64, i64) {
    let start = parts.iter().map(|draft| draft.start_ns).min().unwrap_or(0);
    let end = parts.iter().map(|draft| draft.end_ns).max().unwrap_or(0);
    (start, end)
}

/// The targets of the links that steps made and the run left: each a file below the root. Links that
/// were changed since are left out.
pub(in super::super) fn last(source: &Source, steps: &[Step]) -> BTreeMap<String, String> {
    let made: BTreeSet<&String> = steps.iter().flat_map(|step| &step.made_links).collect();
    let until = super::listed::ended(source);
    let leads = |path: &str| {
        let place = below(path, &source.root).filter(|place| made.contains(&place.to_string()))?;
        let own = fs::symlink_metadata(path).ok()?;
        let changed = own.mtime().saturating_mul(1_000_000_000) + own.mtime_nsec();
        let target = fs::canonicalize(path).ok()?;
        let root = fs::canonicalize(Path::new(&source.root)).ok()?;
        let is_known =
            own.is_symlink() && until.is_some_and(|until| changed <= until) && target.is_file();
        let target = target.strip_prefix(root).ok()?.to_str()?;
        is_known.then(|| (place.to_owned(), target.to_owned()))
    };
    source.last_links().filter_map(leads).collect()
}
