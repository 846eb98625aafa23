//! The files that the steps of a build read, and that no rule need declare.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::drivers::{MANAGERS, is_one_of};
use super::effects::may_read;
use super::source::Source;
use super::step::{Draft, Split};
use crate::argv::unquote;
use crate::paths::{ancestor, base as name_of, below, directory};

/// Directories of an installed program, beside each other.
const PARTS: &[&str] = &["bin", "etc", "include", "lib", "lib64", "libexec", "share"];

/// The files of installed programs, of the user's settings, and of the rules themselves.
pub(super) struct Free<'a> {
    /// Directory in which the build reads its rules.
    base: &'a str,
    /// Installed programs: those that were found by their name alone.
    programs: HashSet<&'a str>,
    /// Trees of installed programs: the directories above the `bin` of a program that ran.
    trees: BTreeSet<String>,
    /// Images that read each file.
    readers: HashMap<i64, HashSet<i64>>,
    /// Images that read the rules of the build.
    drivers: &'a HashSet<i64>,
    /// Images of workflow managers.
    managers: HashSet<i64>,
}

impl<'a> Free<'a> {
    pub(super) fn of(source: &'a Source, split: &'a Split, base: &'a str) -> Free<'a> {
        let mut free = Free {
            base,
            programs: HashSet::new(),
            trees: BTreeSet::new(),
            readers: HashMap::new(),
            drivers: &split.drivers,
            managers: HashSet::new(),
        };
        for image in source.workflow.images.iter().filter(|image| !image.is_fork) {
            let argv = image.command.as_deref().map(unquote).unwrap_or_default();
            let called = argv.first().map_or("", String::as_str);
            let exe = image.exe.as_deref().unwrap_or_default();
            if !called.contains('/') {
                free.programs.insert(exe);
            }
            // A relative path is one of the workflow.
            let is_relative = called.contains('/') && !called.starts_with('/');
            for program in [called, exe].into_iter().filter(|_| !is_relative) {
                let tree = directory(directory(program));
                let is_installed = name_of(directory(program)) == "bin" && tree.len() > 1;
                if is_installed && below(base, tree).is_none() {
                    free.trees.insert(tree.to_owned());
                }
            }
            // Jobs have their own names, and Snakemake runs itself as a module for them.
            let mut words = argv.windows(2);
            let is_module = words.any(|two| two[0] == "-m" && MANAGERS.contains(&&*two[1]));
            if is_module || is_one_of(image, MANAGERS) {
                free.managers.insert(image.upid);
            }
        }
        for action in source.actions.iter().filter(|action| may_read(action)) {
            let readers = free.readers.entry(action.file_id).or_default();
            readers.insert(action.upid);
        }
        free
    }

    /// Returns true if a file outside the build's directory belongs to an installed program, or is hidden, as
    /// settings and caches of the user are.
    pub(super) fn is_elsewhere(&self, path: &str) -> bool {
        if below(path, self.base).is_some() {
            return false;
        }
        let shared = ancestor([directory(path), self.base].into_iter());
        let is_part = |tree: &String| {
            let parts = below(path, tree).and_then(|inside| inside.split_once('/'));
            parts.is_some_and(|(first, _)| PARTS.contains(&first))
        };
        path[shared.len()..].contains("/.")
            || self.programs.contains(path)
            || self.trees.iter().any(is_part)
    }

    /// Returns true if a step read a file only to learn the rules, as the Snakemake that runs the `run:` of a
    /// rule does: the build itself read the file, too.
    pub(super) fn is_of_rules(&self, draft: &Draft, file: i64) -> bool {
        let Some(readers) = self.readers.get(&file) else {
            return false;
        };
        let is_manager = |upid: &i64| self.managers.contains(upid);
        !readers.is_disjoint(self.drivers) && readers.intersection(&draft.members).all(is_manager)
    }
}
