//! Shims: scripts that look for a program and then become it, as those of pyenv, rbenv and asdf.

use std::collections::HashSet;

use flowtrace_schema::ActionRow;

use super::super::drivers::{DRIVERS, MAKES, MANAGERS, is_one_of};
use super::super::effects::changes;
use super::super::source::Source;
use super::super::unit::{Unit, started_by};
use crate::model::{Image, ProcessId};

/// The make or manager that a driver becomes after it has started helpers that left no file, and the
/// images before it. `None` if the driver becomes neither, or if the helpers left a file.
pub(super) fn builder(source: &Source, unit: Unit) -> Option<(Unit, Vec<usize>)> {
    let images = &source.workflow.images;
    let end = source.workflow.process(unit.process).images.end;
    let from = (unit.from + 1..end).find(|&at| is_builder(&images[at]))?;
    let before: Vec<usize> = (unit.from..from).collect();
    let only_starts = |&at: &usize| images[at].is_fork || is_one_of(&images[at], DRIVERS);
    if is_builder(&images[unit.from]) || !before.iter().all(only_starts) {
        return None;
    }
    let helpers: Vec<Unit> = before
        .iter()
        .flat_map(|&at| started_by(source, images[at].upid, unit.process))
        .collect();
    let upids = all_below(source, &helpers);
    let until = images[from].start_ns;
    if source
        .actions
        .iter()
        .any(|action| upids.contains(&action.upid) && matters(source, &upids, action, until))
    {
        return None;
    }
    let process = unit.process;
    Some((Unit { process, from }, before))
}

/// Returns true if an image is make or a manager itself, and not a script of that name that looks for
/// it.
fn is_builder(image: &Image) -> bool {
    let exe = image.exe.as_deref().unwrap_or_default();
    let exe = exe.rsplit('/').next().unwrap_or(exe);
    let is_named = |names: &[&str]| is_one_of(image, names);
    let is_other = DRIVERS.contains(&exe) && !MAKES.contains(&exe) && !MANAGERS.contains(&exe);
    !image.is_fork && !is_other && (is_named(MAKES) || is_named(MANAGERS))
}

fn all_below(source: &Source, units: &[Unit]) -> HashSet<i64> {
    let mut left: Vec<ProcessId> = units.iter().map(|unit| unit.process).collect();
    let mut upids = HashSet::new();
    while let Some(process) = left.pop() {
        let images = source.workflow.images(process);
        upids.extend(images.iter().map(|image| image.upid));
        left.extend(&source.children[process.0 as usize]);
    }
    upids
}

/// Returns true if an action of a helper changed a file that the workflow may see. Files that helpers
/// made for themselves and removed before `until` do not count.
fn matters(source: &Source, helpers: &HashSet<i64>, action: &ActionRow, until: i64) -> bool {
    if action.failed || &*action.class != "namespace" && !changes(action) {
        return false;
    }
    let names = source.names.get(&action.file_id).into_iter().flatten();
    let mut names = names.filter(|name| source.is_traced(&name.path)).peekable();
    if names.peek().is_none() {
        return false;
    }
    let is_gone = names.all(|name| name.to_ns.is_some_and(|to_ns| to_ns <= until));
    let makes = |other: &&ActionRow| {
        let is_making = matches!(&*other.op, "create" | "mkdir" | "mknod" | "symlink");
        other.file_id == action.file_id && is_making && !other.failed
    };
    let maker = source.actions.iter().find(makes);
    !(is_gone && maker.is_some_and(|maker| helpers.contains(&maker.upid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(exe: &str, command: &str, rule: &str) -> Image {
        Image {
            exe: Some(exe.into()),
            command: Some(command.into()),
            rule: rule.into(),
            is_exec: true,
            ..Image::default()
        }
    }

    #[test]
    fn a_script_of_the_name_is_not_yet_the_program() {
        let shim = "bash /home/me/.pyenv/shims/snakemake --cores 1";
        for (exe, command, expected) in [
            (
                "/usr/bin/env",
                "/usr/bin/env bash /home/me/.pyenv/shims/snakemake",
                false,
            ),
            ("/usr/bin/bash", shim, false),
            (
                "/usr/bin/python3.11",
                "/v/bin/python3.11 /v/bin/snakemake --cores 1",
                true,
            ),
        ] {
            assert_eq!(
                is_builder(&image(exe, command, "snakemake")),
                expected,
                "{exe}"
            );
        }
        assert!(is_builder(&image("/usr/bin/make", "make -j2", "make")));
        assert!(!is_builder(&image("/usr/bin/sort", "sort make", "sort")));
    }
}
