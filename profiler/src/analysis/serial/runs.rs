//! Kinds of processes that run steps one after another.

use super::steps::Step;
use crate::argv::unquote;
use crate::managers::{Runner, runner_of};
use crate::model::{Image, ProcessId, Workflow};
use crate::timeline::Timeline;

/// The kind of a runner of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunBy {
    /// A shell: its script decides the order.
    Shell,
    /// make without an option to run several jobs at a time.
    Make,
    /// make with that option: its makefile decides the order.
    MakeWithJobs,
    /// make, by lines of a recipe: it runs them one after another, whatever its options.
    Recipe,
    /// Snakemake with an option to run one job at a time: its rules decide the order.
    Snakemake,
}

/// The kind of process `id`, if it is a runner. `with_jobs` is the result of [`with_jobs`].
pub(super) fn run_by(
    workflow: &Workflow,
    timeline: &Timeline,
    with_jobs: &[bool],
    id: ProcessId,
) -> Option<RunBy> {
    let image = program(workflow, timeline, id);
    if &*image.rule == "snakemake" {
        let command = image.command.as_deref();
        return command
            .is_some_and(has_one_core)
            .then_some(RunBy::Snakemake);
    }
    if !is_make(image) {
        let runner = runner(workflow, timeline, id);
        return (runner == Some(Runner::Shell)).then_some(RunBy::Shell);
    }
    Some(match with_jobs[id.0 as usize] {
        true => RunBy::MakeWithJobs,
        false => RunBy::Make,
    })
}

/// For each process, true if it is a make with an option to run several jobs at a time, or runs below one:
/// a make passes the option to those that it runs.
pub(super) fn with_jobs(workflow: &Workflow, timeline: &Timeline) -> Vec<bool> {
    let mut known: Vec<Option<bool>> = vec![None; workflow.processes.len()];
    for id in workflow.process_ids() {
        let (mut at, mut line, mut has) = (Some(id), Vec::new(), false);
        while let Some(id) = at.filter(|_| !has) {
            if let Some(above) = known[id.0 as usize] {
                has = above;
                break;
            }
            let image = program(workflow, timeline, id);
            has = is_make(image) && image.command.as_deref().is_some_and(has_jobs);
            line.push(id);
            at = workflow.process(id).parent;
        }
        for below in line {
            known[below.0 as usize] = Some(has);
        }
    }
    known.into_iter().map(|has| has == Some(true)).collect()
}

/// For each of these steps of a make, true if it may be the next line of the recipe of the step before, or of
/// a target that is no file (`.PHONY`). Between the targets of files, make looks up the one that it has made
/// and those that come next.
pub(super) fn continues_recipe(workflow: &Workflow, make: ProcessId, steps: &[Step]) -> Vec<bool> {
    let accesses = workflow.accesses_of(make).iter();
    // The times of all lookups are not known, but those of the first and last of each file.
    let lookups = accesses.filter(|access| access.checks > 0 && access.writes == 0);
    let mut times: Vec<i64> = lookups
        .flat_map(|access| [access.span_ns.0, access.span_ns.1])
        .collect();
    times.sort_unstable();
    let continues = |at: usize| {
        let Some(before) = at.checked_sub(1) else {
            return false;
        };
        let next = times.partition_point(|&time| time < steps[before].to);
        times.get(next).is_none_or(|&time| time > steps[at].from)
    };
    (0..steps.len()).map(continues).collect()
}

/// True if a runner has more to run than it runs at a time: make, managers of workflows, xargs, parallel. It passes the
/// output of its steps on. In a shell, the script decides when a step begins, by what it has read.
pub(super) fn has_a_queue(workflow: &Workflow, timeline: &Timeline, id: ProcessId) -> bool {
    let runner = runner(workflow, timeline, id);
    matches!(runner, Some(Runner::Manager | Runner::Launcher))
}

fn runner(workflow: &Workflow, timeline: &Timeline, id: ProcessId) -> Option<Runner> {
    let image = program(workflow, timeline, id);
    runner_of(image.exe.as_deref(), &image.rule)
}

/// The program that a process ran for longest.
fn program<'a>(workflow: &'a Workflow, timeline: &Timeline, id: ProcessId) -> &'a Image {
    let stint = timeline.programs.longest(workflow, id);
    workflow.program(&timeline.programs.stints[stint])
}

fn is_make(image: &Image) -> bool {
    matches!(image.rule.as_ref(), "make" | "gmake")
}

/// True if a command of make asks for several jobs: `-j`, `-j8`, `-sj 8`, `--jobs=8`.
fn has_jobs(command: &str) -> bool {
    let words = unquote(command);
    let mut words = words.iter().skip(1).map(String::as_str).peekable();
    while let Some(word) = words.next() {
        let count = match word.strip_prefix("--jobs") {
            Some(rest) => rest.strip_prefix('='),
            None => match word.strip_prefix('-').filter(|rest| !rest.starts_with('-')) {
                // Options with a value take the text after them.
                Some(rest) => match rest.split_once('j') {
                    Some((before, count))
                        if !before.contains(['C', 'f', 'I', 'o', 'W', 'l', 'E']) =>
                    {
                        (!count.is_empty()).then_some(count)
                    }
                    _ => continue,
                },
                None => continue,
            },
        };
        let next = || {
            words
                .peek()
                .copied()
                .filter(|next| next.parse::<u32>().is_ok())
        };
        if count.or_else(next) != Some("1") {
            return true;
        }
    }
    false
}

/// True if a command of Snakemake allows one job at a time: `--cores 1`, `-c1`, `-j 1`, `--jobs=1`.
fn has_one_core(command: &str) -> bool {
    let words = unquote(command);
    let option = |word: &str| {
        let options = ["--cores", "--jobs", "-c", "-j"].iter();
        let mut values = options.filter_map(|option| word.strip_prefix(option));
        values
            .next()
            .map(|value| value.trim_start_matches('=').to_owned())
    };
    let mut next = words.iter().skip(1).map(String::as_str);
    words.iter().any(|word| {
        let after = next.next();
        match option(word) {
            Some(value) if value.is_empty() => after == Some("1"),
            value => value.as_deref() == Some("1"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_core_of_snakemake_is_known_from_its_command() {
        for command in [
            "snakemake --cores 1",
            "python3 /usr/bin/snakemake -c1 all",
            "snakemake -n -j 1",
            "snakemake --jobs=1",
        ] {
            assert!(has_one_core(command), "{command}");
        }
        for command in [
            "snakemake --cores",
            "snakemake --cores all 1",
            "snakemake -c 12",
            "snakemake --profile 1",
            "snakemake --config 1",
        ] {
            assert!(!has_one_core(command), "{command}");
        }
    }

    #[test]
    fn jobs_of_make_are_known_from_its_command() {
        for command in [
            "make -j",
            "make -j3",
            "make -s -kj 4 all",
            "make --jobs=2",
            "make --jobs",
            "make -C d -j2",
        ] {
            assert!(has_jobs(command), "{command}");
        }
        for command in [
            "make",
            "make all j",
            "make -j1",
            "make -j 1 all",
            "make --jobs=1",
            "make -f j.mk",
            "make -fj.mk",
            "make --just-print",
        ] {
            assert!(!has_jobs(command), "{command}");
        }
    }
}
