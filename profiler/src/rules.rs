//! Names of workflow steps, inferred from what was executed.
//!
//! A *rule* is the name under which a person knows the step: the program with its subcommand, or the script
//! that an interpreter runs; where a workflow manager ran the step, the manager's own name for it ([`jobs`]).
//! It never depends on a process id or a time, so two runs of a workflow give the same names.

use std::collections::HashMap;
use std::sync::Arc;

use flowtrace_schema::{ProcessRow, ProgramRow, Result, Trace, Upid};

use crate::argv::unquote;
use crate::jobs::{self, Records};
use crate::rules::program::LONGEST;

mod interpreter;
mod labels;
pub mod names;
mod program;
mod seen;
mod subcommands;

use interpreter::Interpreter;
pub use labels::labels;
use program::{base, sensible};
use seen::Seen;
pub(crate) use subcommands::Unseen;
use subcommands::{Call, Files, subcommands};

/// Name of an image about which nothing is known.
pub const UNKNOWN: &str = "?";
/// Programs that contain many commands and choose one by their own name, or by their first argument.
const MULTI_CALL: &[&str] = &["busybox", "coreutils", "toybox"];

/// The rule of every process image of a trace, in the order of their ids. Rules that are stored already stay.
///
/// # Errors
/// When the trace cannot be read.
pub fn infer(trace: &Trace) -> Result<Vec<(Upid, String)>> {
    infer_with(trace, None)
}

/// Like [`infer`], for a run that has just ended, with the records that workflow managers left beside it.
///
/// # Errors
/// When the trace cannot be read.
pub fn infer_at_end(trace: &Trace) -> Result<Vec<(Upid, String)>> {
    infer_with(trace, Some(&mut Records::default()))
}

fn infer_with(trace: &Trace, records: Option<&mut Records>) -> Result<Vec<(Upid, String)>> {
    let rows = trace.programs()?;
    let mut rules = of_rows(&rows, &mut Seen::in_(trace)?);
    jobs::name_jobs(&rows, &mut rules, records);
    let rule = |(row, rule): (ProgramRow, String)| {
        let upid = u32::try_from(row.upid).ok()?;
        Some((
            Upid(upid),
            row.rule.map_or(rule, |stored| stored.to_string()),
        ))
    };
    Ok(rows.into_iter().zip(rules).filter_map(rule).collect())
}

/// Gives a rule to every row of a trace that has none stored, as far as the trace shows it, and by the
/// records that workflow managers left beside the run where these are available.
///
/// # Errors
/// When the trace cannot be read.
pub(crate) fn fill_in(
    trace: &Trace,
    rows: &mut [ProcessRow],
    records: Option<&mut Records>,
) -> Result<()> {
    if rows.iter().all(|row| row.rule.is_some()) {
        return Ok(());
    }
    let rules = infer_with(trace, records)?.into_iter();
    let mut rules: HashMap<_, _> = rules.map(|(upid, rule)| (i64::from(upid), rule)).collect();
    for row in rows {
        row.rule = row
            .rule
            .take()
            .or_else(|| rules.remove(&row.upid).map(Arc::from));
    }
    Ok(())
}

/// The rule of every row by its program. A fork that did not exec runs its parent's image, and so
/// its rule.
pub(crate) fn of_rows(rows: &[ProgramRow], files: &mut dyn Files) -> Vec<String> {
    let of: HashMap<i64, usize> = rows
        .iter()
        .enumerate()
        .map(|(at, row)| (row.upid, at))
        .collect();
    let parent = |at: usize| {
        let parent = rows[at].parent_upid.filter(|_| &*rows[at].origin == "fork");
        // A parent comes first in every sound trace.
        parent
            .and_then(|upid| of.get(&upid).copied())
            .filter(|&parent| parent < at)
    };
    let call = |at: usize| match parent(at) {
        Some(_) => Call::default(),
        None => call(&rows[at]),
    };
    let calls: Vec<Call> = (0..rows.len()).map(call).collect();
    let words = subcommands(&calls, files);
    let mut rules: Vec<String> = Vec::with_capacity(rows.len());
    for (at, word) in words.into_iter().enumerate() {
        rules.push(match (parent(at), word) {
            (Some(parent), _) => rules[parent].clone(),
            (None, Some(word)) => label(&format!("{} {word}", calls[at].name)),
            (None, None) => label(&calls[at].name),
        });
    }
    rules
}

/// The call of an image's program: name and arguments.
fn call(row: &ProgramRow) -> Call {
    let argv = row.command.as_deref().map(unquote).unwrap_or_default();
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let (name, arguments) = of_argv(row.exe.as_deref().map(base), &argv);
    Call {
        name,
        arguments: arguments.iter().map(ToString::to_string).collect(),
        cwd: row.cwd.clone(),
    }
}

/// The rule of one image, from its executable and its quoted command line.
pub fn rule(exe: Option<&str>, command: Option<&str>) -> String {
    let argv = command.map(unquote).unwrap_or_default();
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    label(&of_argv(exe.map(base), &argv).0)
}

/// A name as it is stored.
fn label(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if name.is_empty() {
        UNKNOWN.into()
    } else {
        flowtrace_render::units::shorten(&name, LONGEST)
    }
}

/// The name of a program or script, and the arguments that belong to it.
fn of_argv<'a>(exe: Option<&str>, argv: &'a [&'a str]) -> (String, &'a [&'a str]) {
    // argv[0] wins over the executable: gcc is /usr/bin/x86_64-linux-gnu-gcc-12, awk is mawk.
    let name = match argv.first().map(|name| base(name)).filter(|n| sensible(n)) {
        Some(name) => name,
        None => exe.unwrap_or(""),
    };
    let rest = argv.get(1..).unwrap_or_default();
    if name == "env" {
        let command = rest
            .iter()
            .position(|a| !a.starts_with('-') && !a.contains('='));
        return match command {
            Some(at) => of_argv(None, &rest[at..]),
            None => ("env".into(), &[]),
        };
    }
    if MULTI_CALL.contains(&name) && rest.first().is_some_and(|a| sensible(a)) {
        return of_argv(None, rest);
    }
    let interpreter = Interpreter::named(name).or_else(|| exe.and_then(Interpreter::named));
    match interpreter {
        Some(interpreter) => interpreter.rule(name, rest),
        None => (name.into(), rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_a_person_would_use() {
        for (exe, command, expected) in [
            ("/usr/bin/mProject", "mProject -X a b", "mProject"),
            ("/usr/bin/dash", "/bin/sh -c 'mProject a | sort'", "sh -c"),
            ("/usr/bin/bash", "bash -ec 'set x'", "bash -c"),
            (
                "/usr/bin/bash",
                "bash --norc -o pipefail ./run.sh D 2",
                "run.sh",
            ),
            ("/usr/bin/bash", "-bash", "bash"),
            (
                "/usr/bin/python3.11",
                "python3 -W ignore /opt/bin/snakemake -j2",
                "snakemake",
            ),
            (
                "/usr/bin/python3.11",
                "/usr/bin/python3.11 -m pytest -q",
                "python3.11 -m pytest",
            ),
            (
                "/usr/bin/python3.11",
                "python3 -Bc 'import x'",
                "python3 -c",
            ),
            (
                "/usr/bin/python3.11",
                "python3 -B -c 'from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=6)' --multiprocessing-fork",
                "multiprocessing.spawn",
            ),
            (
                "/usr/bin/python3.11",
                "python3 -c 'from os import getpid'",
                "python3 -c",
            ),
            (
                "/usr/bin/python3.11",
                "python3 /w/.snakemake/scripts/tmpab12_xyz.plot.py",
                "plot.py",
            ),
            ("/usr/bin/python3.11", "python3 -", "python3"),
            ("/usr/bin/bash", "bash /dev/fd/63 x.txt", "bash"),
            ("/usr/bin/bash", "bash /dev/fd/63.sh", "63.sh"),
            (
                "/usr/bin/perl",
                "/usr/bin/perl -w /usr/bin/automake --add",
                "automake",
            ),
            ("/usr/bin/perl", "perl -ne print", "perl -e"),
            (
                "/usr/lib/R/bin/exec/R",
                "R --no-echo --file=plot.R --args 1",
                "plot.R",
            ),
            ("/usr/bin/node", "node --require x build.js", "build.js"),
            (
                "/usr/bin/java",
                "java -Xmx1g -jar /opt/gatk.jar Sort",
                "gatk.jar",
            ),
            ("/usr/bin/java", "java -cp a:b org.x.Main 1", "org.x.Main"),
            ("/usr/bin/x86_64-linux-gnu-gcc-12", "gcc -c x.c", "gcc"),
            ("/usr/bin/mawk", "awk '{print}'", "awk"),
            ("/bin/busybox", "sh -c ls", "sh -c"),
            ("/bin/busybox", "busybox tar x", "tar"),
            ("/usr/bin/env", "env -i LANG=C python3 tool.py", "tool.py"),
            ("/usr/bin/env", "env", "env"),
            ("/usr/sbin/sshd", "'sshd: joe [priv]'", "sshd"),
            ("/usr/bin/cat", "", "cat"),
            ("/tmp/a b/tool", "'/tmp/a b/tool' x", "tool"),
        ] {
            assert_eq!(rule(Some(exe), Some(command)), expected, "{exe} {command}");
        }
        let long = rule(
            Some("/bin/bash"),
            Some(&format!("bash {}.sh", "x".repeat(80))),
        );
        assert_eq!(long, "x".repeat(LONGEST - 1) + "…");
        assert_eq!(rule(None, None), UNKNOWN);
        assert_eq!(rule(None, Some("make -j2")), "make");
    }

    #[test]
    fn a_fork_has_the_rule_of_the_image_it_was_forked_from() {
        let row = |upid, parent, origin: &str, command: Option<&str>| ProgramRow {
            upid,
            parent_upid: parent,
            origin: origin.into(),
            command: command.map(Into::into),
            ..ProgramRow::default()
        };
        let rows = [
            row(1, None, "exec", Some("make")),
            row(2, Some(1), "fork", None),
            row(3, Some(1), "exec", Some("cc x.c")),
            row(4, Some(9), "fork", Some("lost")),
        ];
        assert_eq!(of_rows(&rows, &mut Unseen), ["make", "make", "cc", "lost"]);
    }
}
