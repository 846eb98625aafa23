//! Names of workflow steps, inferred from what was executed.
//!
//! A *rule* is the name under which a person knows the step: the program, or the script that an
//! interpreter runs; where a workflow manager ran it, the manager's own name of the step
//! ([`jobs`]). It never depends on a process id or a time, so two runs of a workflow give the same
//! names.

use std::collections::HashMap;

use flowtrace_schema::{ProcessRow, Result, Trace, Upid};

use crate::argv::unquote;
use crate::jobs::{self, Records};

mod labels;
pub mod names;

pub use labels::labels;

/// Name of an image about which nothing is known.
pub const UNKNOWN: &str = "?";
/// Longest name kept, in characters: a rule is a label.
const LONGEST: usize = 64;
/// Programs that hold many commands and look at their own name, or at their first argument.
const MULTI_CALL: &[&str] = &["busybox", "coreutils", "toybox"];

/// The rule of every process image of a trace, in the order of their ids. Those that are stored
/// already stay.
///
/// # Errors
/// When the trace cannot be read.
pub fn infer(trace: &Trace) -> Result<Vec<(Upid, String)>> {
    infer_with(trace, None)
}

/// The same when the run has just ended, with what workflow managers left beside it.
///
/// # Errors
/// When the trace cannot be read.
pub fn infer_at_end(trace: &Trace) -> Result<Vec<(Upid, String)>> {
    infer_with(trace, Some(&mut Records::default()))
}

fn infer_with(trace: &Trace, records: Option<&mut Records>) -> Result<Vec<(Upid, String)>> {
    let rows = trace.processes()?;
    let mut rules = of_rows(&rows);
    jobs::name_jobs(&rows, &mut rules, records);
    for (rule, row) in rules.iter_mut().zip(&rows) {
        if let Some(stored) = &row.rule {
            rule.clone_from(stored);
        }
    }
    Ok(rows
        .iter()
        .zip(rules)
        .filter_map(|(row, rule)| Some((Upid(u32::try_from(row.upid).ok()?), rule)))
        .collect())
}

/// The rule of every row, as far as the trace tells.
pub fn infer_rows(rows: &[ProcessRow]) -> Vec<String> {
    let mut rules = of_rows(rows);
    jobs::name_jobs(rows, &mut rules, None);
    rules
}

/// The rule of every row by its program. A fork that did not exec runs its parent's image, and so
/// its rule.
pub(crate) fn of_rows(rows: &[ProcessRow]) -> Vec<String> {
    let mut of: HashMap<i64, usize> = HashMap::with_capacity(rows.len());
    let mut rules: Vec<String> = Vec::with_capacity(rows.len());
    for (at, row) in rows.iter().enumerate() {
        let parent = row.parent_upid.filter(|_| row.origin == "fork");
        let inherited = parent.and_then(|upid| of.get(&upid));
        rules.push(match inherited {
            Some(&parent) => rules[parent].clone(),
            None => rule(row.exe.as_deref(), row.command.as_deref()),
        });
        of.insert(row.upid, at);
    }
    rules
}

/// The rule of one image, from its executable and its quoted command line.
pub fn rule(exe: Option<&str>, command: Option<&str>) -> String {
    let argv = command.map(unquote).unwrap_or_default();
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let name = of_argv(exe.map(base), &argv);
    let name: String = name
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if name.is_empty() {
        UNKNOWN.into()
    } else {
        crate::text::units::shorten(&name, LONGEST)
    }
}

fn of_argv(exe: Option<&str>, argv: &[&str]) -> String {
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
            None => "env".into(),
        };
    }
    if MULTI_CALL.contains(&name) && rest.first().is_some_and(|a| sensible(a)) {
        return of_argv(None, rest);
    }
    let interpreter = Interpreter::named(name).or_else(|| exe.and_then(Interpreter::named));
    match interpreter {
        Some(interpreter) => interpreter.rule(name, rest),
        None => name.into(),
    }
}

/// The last component of a path; a login shell's leading `-` is not part of its name.
fn base(path: &str) -> &str {
    let name = path
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or(path);
    name.strip_prefix('-').unwrap_or(name)
}

/// The name of a script. Snakemake runs copies, under names that no two runs share.
fn script_name(path: &str) -> &str {
    let name = base(path);
    if !path.contains("/.snakemake/scripts/") && !path.starts_with(".snakemake/scripts/") {
        return name;
    }
    let is_random = |word: &str| word.len() == 11 && word.starts_with("tmp");
    match name.split_once('.') {
        Some((word, rest)) if is_random(word) => rest,
        _ => name,
    }
}

/// Whether argv[0] is a name, not a title that the program gave itself (`sshd: user@pts/0`).
fn sensible(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= LONGEST
        && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == ':')
}

/// How a program that runs scripts is told which.
struct Interpreter {
    /// Options that take the program text itself.
    code: &'static [&'static str],
    /// Options whose next argument is not the script.
    with_value: &'static [&'static str],
    /// Options whose next argument is the script.
    script: &'static [&'static str],
    /// The option that runs a module by its name.
    module: Option<&'static str>,
    /// One-letter options that may stand in one argument, as in `bash -ec`. The last of them
    /// takes the program text itself.
    letters: &'static str,
}

impl Interpreter {
    fn named(name: &str) -> Option<&'static Interpreter> {
        const SHELL: &Interpreter = &Interpreter {
            code: &["-c"],
            with_value: &["-o", "+o", "-O", "+O", "--rcfile", "--init-file"],
            script: &[],
            module: None,
            letters: "abefhiklmnprtuvxBCEHPsc",
        };
        const PYTHON: &Interpreter = &Interpreter {
            code: &["-c"],
            with_value: &["-W", "-X", "--check-hash-based-pycs"],
            script: &[],
            module: Some("-m"),
            letters: "bBdEiIOPqRsSuvxc",
        };
        const PERL: &Interpreter = &Interpreter {
            code: &["-e", "-E"],
            with_value: &["-I", "-M", "-r"],
            script: &[],
            module: None,
            letters: "acilnpstTuUwWe",
        };
        const R: &Interpreter = &Interpreter {
            code: &["-e"],
            with_value: &[],
            script: &["-f"],
            module: None,
            letters: "",
        };
        const NODE: &Interpreter = &Interpreter {
            code: &["-e", "--eval", "-p", "--print"],
            with_value: &["-r", "--require", "--import", "-C", "--conditions"],
            script: &[],
            module: None,
            letters: "",
        };
        const JAVA: &Interpreter = &Interpreter {
            code: &[],
            with_value: &["-cp", "-classpath", "--class-path", "-p", "--module-path"],
            script: &["-jar", "-m"],
            module: None,
            letters: "",
        };
        const TCL: &Interpreter = &Interpreter {
            code: &[],
            with_value: &[],
            script: &[],
            module: None,
            letters: "",
        };
        // python3.11, perl5.36, ruby3.1, lua5.4
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        match plain {
            "sh" | "bash" | "dash" | "ash" | "zsh" | "ksh" | "mksh" => Some(SHELL),
            "python" | "pypy" => Some(PYTHON),
            "perl" | "ruby" | "lua" => Some(PERL),
            "Rscript" | "R" => Some(R),
            "node" | "nodejs" => Some(NODE),
            "java" => Some(JAVA),
            "tclsh" | "wish" | "expect" => Some(TCL),
            _ => None,
        }
    }

    fn rule(&self, name: &str, arguments: &[&str]) -> String {
        let mut rest = arguments.iter().copied();
        while let Some(argument) = rest.next() {
            if argument == "--" {
                return rest.next().map_or(name, base).into();
            }
            if self.code.contains(&argument) {
                return format!("{name} {argument}");
            }
            if let Some(letter) = self.code_letter(argument) {
                return format!("{name} -{letter}");
            }
            if Some(argument) == self.module {
                return match rest.next() {
                    Some(module) => format!("{name} -m {module}"),
                    None => name.into(),
                };
            }
            if self.script.contains(&argument) {
                return rest.next().map_or(name, base).into();
            }
            if let Some(script) = argument.strip_prefix("--file=") {
                return base(script).into();
            }
            if self.with_value.contains(&argument) {
                rest.next();
            } else if argument == "-" {
                // The program comes through standard input.
                return name.into();
            } else if !argument.starts_with(['-', '+']) && !argument.is_empty() {
                return script_name(argument).into();
            }
        }
        name.into()
    }

    /// The option for program text at the end of a bundle of options.
    fn code_letter(&self, argument: &str) -> Option<char> {
        let bundle = argument.strip_prefix('-')?;
        let letter = self.letters.chars().last()?;
        (bundle.contains(letter) && bundle.chars().all(|c| self.letters.contains(c)))
            .then_some(letter)
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
                "python3 /w/.snakemake/scripts/tmpab12_xyz.plot.py",
                "plot.py",
            ),
            ("/usr/bin/python3.11", "python3 -", "python3"),
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
        let row = |upid, parent, origin: &str, command: Option<&str>| ProcessRow {
            upid,
            parent_upid: parent,
            origin: origin.into(),
            command: command.map(Into::into),
            ..ProcessRow::default()
        };
        let rows = [
            row(1, None, "exec", Some("make")),
            row(2, Some(1), "fork", None),
            row(3, Some(1), "exec", Some("cc x.c")),
            row(4, Some(9), "fork", Some("lost")),
        ];
        assert_eq!(infer_rows(&rows), ["make", "make", "cc", "lost"]);
    }
}
