//! Programs that run others: shells, launchers, workflow managers. This is the only list of them. Their own
//! work is the order of the steps, never a step.

use crate::model::{ProcessId, Workflow};

/// Kind of a program that runs others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Runner {
    /// Runs a script line by line.
    Shell,
    /// Runs one command, or the same one for many inputs.
    Launcher,
    /// Knows the steps of a workflow and what they depend on.
    Manager,
}

const SHELLS: &[&str] = &[
    "sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "rc", "busybox",
];

const LAUNCHERS: &[&str] = &[
    "xargs",
    "parallel",
    "env",
    "nice",
    "ionice",
    "nohup",
    "time",
    "timeout",
    "stdbuf",
    "sudo",
    "su",
    "setsid",
    "taskset",
    "numactl",
    "chrt",
    "unshare",
    "nsenter",
    "flock",
    "watch",
    "script",
    "find",
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "orterun",
    "prterun",
    "prun",
    "hydra_pmi_proxy",
    "orted",
    "prted",
    "srun",
    "sbatch",
    "salloc",
    "jsrun",
    "aprun",
    "flux",
    "qsub",
    "bsub",
    "condor_submit",
    "condor_run",
    "docker",
    "podman",
    "singularity",
    "apptainer",
    "bwrap",
    "tini",
    "dumb-init",
    "ssh",
    "pdsh",
    "perf",
    "strace",
];

const MANAGERS: &[&str] = &[
    "make",
    "gmake",
    "bmake",
    "ninja",
    "samu",
    "cmake",
    "ctest",
    "scons",
    "meson",
    "bazel",
    "buck2",
    "gradle",
    "mvn",
    "ant",
    "rake",
    "just",
    "task",
    "tup",
    "redo",
    "cargo",
    "snakemake",
    "nextflow",
    "cromwell",
    "cromwell.jar",
    "womtool.jar",
    "miniwdl",
    "toil",
    "toil-cwl-runner",
    "cwltool",
    "cwl-runner",
    "luigi",
    "luigid",
    "airflow",
    "prefect",
    "dagster",
    "dask-scheduler",
    "parsl",
    "swift-t",
    "makeflow",
    "work_queue_worker",
    "pegasus-run",
    "pegasus-plan",
    "pegasus-dagman",
    "pegasus-kickstart",
    "condor_dagman",
    "condor_starter",
    "balsam",
    "radical-pilot",
    "drmaa",
    "drake",
    "bpipe",
    "ruffus",
    "doit",
    "invoke",
    "fab",
    "waf",
    "galaxy",
    "kedro",
    "metaflow",
    "targets",
    "stackstorm",
    "argo",
    "planemo",
    "popper",
    "dvc",
    "couler",
    "streamflow",
    "cylc",
    "ecflow",
    "autosubmit",
    "fireworks",
    "rlaunch",
    "qlaunch",
    "merlin",
    "maestro",
];

/// Kind of a program that runs others, by the name of its file; `None`: it is not a known one. Versions
/// (`python3.11`, `make-4.3`) do not matter.
pub fn runner(name: &str) -> Option<Runner> {
    let name = name.rsplit('/').next().unwrap_or(name);
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let is_in = |list: &[&str]| list.contains(&name) || list.contains(&plain);
    if is_in(SHELLS) {
        Some(Runner::Shell)
    } else if is_in(LAUNCHERS) {
        Some(Runner::Launcher)
    } else if is_in(MANAGERS) {
        Some(Runner::Manager)
    } else {
        None
    }
}

/// Kind of a process image that runs others, from its executable and its rule, which is the script's name
/// where an interpreter runs one (`snakemake` is a Python program).
pub fn runner_of(exe: Option<&str>, rule: &str) -> Option<Runner> {
    let word = rule.split(' ').next().unwrap_or(rule);
    let module = rule.split_once(" -m ").map(|(_, module)| module);
    match runner(word).or_else(|| module.and_then(runner)) {
        // A rule with the name of a manager is that manager, whatever the executable.
        Some(Runner::Manager) => Some(Runner::Manager),
        by_rule => exe.and_then(runner).or(by_rule),
    }
}

/// Kind of a process whose last program runs others.
pub(crate) fn runner_of_process(workflow: &Workflow, id: ProcessId) -> Option<Runner> {
    let image = workflow.last_image(id);
    runner_of(image.exe.as_deref(), &image.rule)
}

/// True if a program of this rule runs the recipes of a makefile and the like: its children are steps.
pub(crate) fn is_make(rule: &str) -> bool {
    matches!(rule, "make" | "gmake" | "bmake" | "ninja" | "samu")
}

/// True if a command of this rule runs others by rules of its own.
pub(crate) fn is_build(rule: &str) -> bool {
    matches!(rule, "make" | "gmake" | "ninja" | "snakemake")
}

/// The text after `-c` of a shell.
pub(crate) fn shell_line(argv: &[String]) -> Option<&str> {
    let name = argv.first()?.rsplit('/').next()?;
    if runner(name) != Some(crate::managers::Runner::Shell) {
        return None;
    }
    let options = argv[1..]
        .iter()
        .take_while(|word| word.starts_with('-'))
        .count();
    let last = argv.get(options)?;
    let is_line = options > 0 && !last.starts_with("--") && last.ends_with('c');
    argv.get(options + 1)
        .filter(|_| is_line)
        .map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_launchers_and_managers_are_distinguished() {
        for (exe, rule, expected) in [
            (Some("/usr/bin/dash"), "sh -c", Some(Runner::Shell)),
            (Some("/usr/bin/bash"), "run.sh", Some(Runner::Shell)),
            (Some("/usr/bin/make"), "make", Some(Runner::Manager)),
            (
                Some("/usr/bin/python3.11"),
                "snakemake",
                Some(Runner::Manager),
            ),
            (
                Some("/usr/bin/python3.11"),
                "python3 -m luigi",
                Some(Runner::Manager),
            ),
            (Some("/usr/bin/perl"), "parallel", Some(Runner::Launcher)),
            (Some("/usr/bin/xargs"), "xargs", Some(Runner::Launcher)),
            (Some("/usr/bin/mProject"), "mProject", None),
            (Some("/usr/bin/python3.11"), "python3 -c", None),
            (None, "sort", None),
        ] {
            assert_eq!(runner_of(exe, rule), expected, "{rule}");
        }
    }
}
