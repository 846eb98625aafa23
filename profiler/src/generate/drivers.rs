//! Programs that start the commands of others.

use std::collections::HashSet;

use crate::argv::unquote;
use crate::generate::source::Source;
use crate::model::Image;
/// Names of programs that start the commands of others and do no other work.
pub(super) const DRIVERS: &[&str] = &[
    "sh",
    "bash",
    "dash",
    "ash",
    "zsh",
    "ksh",
    "mksh",
    "make",
    "gmake",
    "ninja",
    "snakemake",
    "nextflow",
    "parallel",
    "xargs",
    "just",
    "scons",
    "doit",
    "chrt",
    "env",
    "ionice",
    "nice",
    "nohup",
    "setsid",
    "stdbuf",
    "taskset",
    "time",
    "timeout",
];

/// Names of make, which executes itself again after it has made a file that it includes.
pub(super) const MAKES: &[&str] = &["make", "gmake"];

/// Names of workflow managers whose own files (logs, locks, caches) say nothing about the workflow.
pub(super) const MANAGERS: &[&str] = &[
    "ninja",
    "snakemake",
    "nextflow",
    "parallel",
    "scons",
    "doit",
];

/// The images of workflow managers.
pub(super) fn managers(source: &Source) -> HashSet<i64> {
    let images = source.workflow.images.iter();
    let managers = images.filter(|image| is_one_of(image, MANAGERS));
    managers.map(|image| image.upid).collect()
}

/// Returns true if a program has one of these names, or is an interpreter that runs a script of such a
/// name.
pub(super) fn is_one_of(image: &Image, names: &[&str]) -> bool {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let argv = image.command.as_deref().map(unquote).unwrap_or_default();
    let called = argv.first().map(|name| base(name.trim_start_matches('-')));
    let exe = image.exe.as_deref().map(base);
    let is_known = |name: &str| names.contains(&name);
    called.as_deref().is_some_and(is_known)
        || is_known(&image.rule)
        || exe
            .as_deref()
            .is_some_and(|exe| is_known(exe) && called.is_none())
}
