//! Writes a step as a line of bash: programs with their redirections, joined by pipes, one after the
//! other or at the same time.

use flowtrace_schema::{CUT, MOST_ARGUMENTS, secrets};

use super::ast::{Command, Given};
use super::redirect::pipes_between;
use super::substituted::with_commands;
use super::words::{quote, quote_rooted, relative};
use super::writer::Writer;
use crate::argv::unquote;
use crate::generate::ast::Ends;
use crate::paths::below;
use crate::signals::signal_name;

/// Words that bash does not look for in PATH when they begin a command.
const OF_BASH: &[&str] = &[
    "!",
    "[[",
    "]]",
    "{",
    "}",
    "case",
    "coproc",
    "do",
    "done",
    "elif",
    "else",
    "esac",
    "fi",
    "for",
    "function",
    "if",
    "in",
    "select",
    "then",
    "time",
    "until",
    "while",
    ".",
    ":",
    "[",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "cd",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "declare",
    "dirs",
    "disown",
    "echo",
    "enable",
    "eval",
    "exec",
    "exit",
    "export",
    "false",
    "fc",
    "fg",
    "getopts",
    "hash",
    "help",
    "history",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "test",
    "times",
    "trap",
    "true",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "wait",
];

impl Writer<'_> {
    /// The line of a step, to be run in the root directory. It succeeds if the command ends as in the
    /// trace, unless the run ended with this command.
    pub(super) fn line(&self, command: &Command, is_end: bool) -> Result<String, String> {
        let (home, umask) = self.common(command);
        let text = self.write(command, &Ends::default(), &home, umask)?;
        if text.is_empty() {
            return Ok(":".into());
        }
        let mut line = String::new();
        let are_good = |stages: &[Command]| stages.iter().all(|stage| self.status(stage) == 0);
        let is_checked = matches!(command, Command::Pipeline(stages) if are_good(stages));
        if is_checked {
            line += "set -o pipefail; ";
        }
        if home != self.source.root {
            line += &format!(
                "cd {} && ",
                quote(&relative(&home, &self.source.root, &self.source.root))
            );
        }
        if let Some(mask) = umask {
            line += &format!("umask {mask:04o} && ");
        }
        line += &text;
        if is_checked {
            // The writer to a program that stops reading, such as head, may be ended by SIGPIPE this
            // time.
            line += " || [ $? -eq 141 ]";
        }
        match self.status(command) {
            0 => {}
            _ if is_end => {}
            // The script went on although the command failed with this status.
            code => line = format!("{{ {line}; }} || [ $? -eq {code} ]"),
        }
        Ok(line)
    }

    /// Working directory and umask of all programs if they share them; else those of the root.
    fn common(&self, command: &Command) -> (String, Option<i64>) {
        let programs = command.programs();
        let home = |upid: &i64| {
            self.source
                .rows
                .get(upid)
                .and_then(|row| row.cwd.as_deref())
        };
        let mut homes = programs.iter().map(home);
        let home = match homes.next() {
            Some(Some(first)) if homes.all(|home| home == Some(first)) => first.to_owned(),
            _ => self.source.root.clone(),
        };
        let home = match below(&home, &self.source.root) {
            Some(_) => home,
            None => self.source.root.clone(),
        };
        let mut masks = programs.iter().map(|upid| self.source.other_umask(*upid));
        let mask = match masks.next() {
            Some(first) if masks.all(|mask| mask == first) => first,
            _ => None,
        };
        (home, mask)
    }

    /// The exit status as a shell reports it.
    pub(super) fn status(&self, command: &Command) -> i64 {
        match command {
            Command::Program(upid) | Command::Given(upid, _) => {
                let Some(&process) = self.source.process_of.get(upid) else {
                    return 0;
                };
                let process = self.source.workflow.process(process);
                match (process.exit_signal, process.exit_code) {
                    (Some(signal), _) => 128 + signal,
                    (None, code) => code.unwrap_or(0),
                }
            }
            Command::Pipeline(parts) | Command::Sequence(parts) => {
                parts.last().map_or(0, |last| self.status(last))
            }
            Command::AtOnce(_) | Command::Own(_) | Command::Nothing | Command::Unknown(_) => 0,
        }
    }

    /// The text of a command that starts in directory `home` under `umask`.
    fn write(
        &self,
        command: &Command,
        ends: &Ends,
        home: &str,
        umask: Option<i64>,
    ) -> Result<String, String> {
        match command {
            Command::Unknown(reason) => Err(reason.clone()),
            Command::Nothing => Ok(":".into()),
            Command::Own(text) => Ok(text.clone()),
            Command::Program(upid) => self.program(*upid, &[], ends, home, umask),
            Command::Given(upid, given) => {
                let text = self.program(*upid, given, ends, home, umask)?;
                // The shell does not wait for `>(…)`; the program that reads their output to its end
                // does.
                Ok(match given.iter().all(|one| one.is_read) {
                    true => text,
                    false => format!("( set -o pipefail; {{ {text}; }} 9>&1 | cat )"),
                })
            }
            Command::Pipeline(stages) => {
                let inner = pipes_between(self.source, stages)?;
                let count = stages.len();
                let text = stages.iter().enumerate().map(|(at, stage)| {
                    let ends = Ends {
                        input: match at {
                            0 => ends.input.clone(),
                            _ => inner.get(at - 1).cloned(),
                        },
                        output: match at + 1 == count {
                            true => ends.output.clone(),
                            false => inner.get(at).cloned(),
                        },
                    };
                    let text = self.write(stage, &ends, home, umask)?;
                    Ok(match stage {
                        Command::Sequence(_) => format!("{{ {text}; }}"),
                        Command::AtOnce(_) | Command::Pipeline(_) => format!("( {text} )"),
                        _ => text,
                    })
                });
                Ok(text.collect::<Result<Vec<_>, String>>()?.join(" | "))
            }
            Command::Sequence(parts) => {
                let mut text = String::new();
                for (at, part) in parts.iter().enumerate() {
                    let one = self.write(part, ends, home, umask)?;
                    let is_last = at + 1 == parts.len();
                    text += &match part {
                        Command::Sequence(_) | Command::AtOnce(_) => format!("{{ {one}; }}"),
                        _ => one,
                    };
                    if is_last {
                        break;
                    }
                    text += match self.status(part) {
                        0 => " && ",
                        _ => "; ",
                    };
                }
                Ok(text)
            }
            Command::AtOnce(parts) => {
                let mut text = "p=".to_owned();
                for part in parts {
                    let one = self.write(part, ends, home, umask)?;
                    text += &format!("; ( {one} ) & p=\"$p $!\"");
                }
                Ok(text + "; for p in $p; do wait \"$p\" || exit; done")
            }
        }
    }

    fn program(
        &self,
        upid: i64,
        given: &[Given<Command>],
        ends: &Ends,
        home: &str,
        umask: Option<i64>,
    ) -> Result<String, String> {
        let source = self.source;
        let row = source
            .rows
            .get(&upid)
            .ok_or("a process is not in the trace")?;
        let command = row.command.as_deref().unwrap_or_default();
        let argv = unquote(command);
        let name = argv.first().filter(|name| !name.is_empty());
        let name = name.ok_or("the arguments of a program were not seen")?;
        if command.contains('\u{fffd}') {
            return Err(format!("an argument of {name} is not UTF-8"));
        }
        if command.contains(secrets::MASK) {
            return Err(format!(
                "a password or key that {name} was given is masked in the trace; run --keep-secrets stores it"
            ));
        }
        if command.len() > MOST_ARGUMENTS / 2 && argv.last().is_some_and(|last| last == CUT) {
            return Err(format!(
                "{name} had more than {} KiB of arguments, and the trace has no more than those",
                MOST_ARGUMENTS >> 10
            ));
        }
        let cwd = row.cwd.as_deref().unwrap_or_default();
        if below(cwd, &source.root).is_none() {
            return Err(format!("{name} ran in {cwd}, outside {}", source.root));
        }
        let mut text = String::new();
        let mut is_moved = false;
        if cwd != home {
            text += &format!("cd {} && ", quote(&relative(cwd, home, &source.root)));
            is_moved = true;
        }
        let mask = source.other_umask(upid);
        if mask != umask {
            let Some(mask) = mask.or(source.first_umask()) else {
                return Err(format!(
                    "the file mode creation mask of {name} is not known"
                ));
            };
            text += &format!("umask {mask:04o} && ");
            is_moved = true;
        }
        let given = self.given(given, ends, cwd, mask)?;
        text += &self.assignments(upid, name)?;
        text += &self.words(upid, &argv, &given)?;
        text += &self.redirections(upid, name, cwd, ends, &given)?;
        Ok(if is_moved {
            format!("( {text} )")
        } else {
            text
        })
    }

    /// The text of each command that a program is given as a file; these commands start in the same
    /// directory.
    fn given(
        &self,
        given: &[Given<Command>],
        ends: &Ends,
        home: &str,
        umask: Option<i64>,
    ) -> Result<Vec<Given<String>>, String> {
        let texts = given.iter().map(|one| {
            let pipe = Some(one.pipe.clone());
            let ends = match one.is_read {
                true => Ends {
                    input: ends.input.clone(),
                    output: pipe,
                },
                false => Ends {
                    input: pipe,
                    output: ends.output.clone(),
                },
            };
            Ok(Given {
                fd: one.fd,
                pipe: one.pipe.clone(),
                is_read: one.is_read,
                command: self.write(&one.command, &ends, home, umask)?,
            })
        });
        texts.collect()
    }

    /// The words `A=1 ` for each recorded variable that the first program had not, or had with another
    /// value.
    fn assignments(&self, upid: i64, name: &str) -> Result<String, String> {
        if self.source.has_other_environment(upid) && !self.options.ignore_environment {
            return Err(format!(
                "{name} had another environment than the run (export, or A=1 {name}): name the variables when recording, flowtrace run --env 'A' ('*': all), or take them as they will be, --ignore-environment"
            ));
        }
        let variables = self.source.other_variables(upid);
        let words = variables
            .iter()
            .map(|(name, value)| format!("{name}={} ", quote_rooted(value, &self.source.root).0));
        let mut text: String = words.collect();
        let lacking: String = self
            .source
            .lacks_variables(upid)
            .map(|name| format!("-u {} ", quote(name)))
            .collect();
        if !lacking.is_empty() {
            text += &format!("env {lacking}");
        }
        Ok(text)
    }

    fn words(&self, upid: i64, argv: &[String], given: &[Given<String>]) -> Result<String, String> {
        let root = &self.source.root;
        let exe = self
            .source
            .rows
            .get(&upid)
            .and_then(|row| row.exe.as_deref());
        let name = argv[0].as_str();
        let words = argv.iter().map(|word| {
            with_commands(word, given, |text| quote_rooted(text, root).0).ok_or_else(|| format!(
                "{name} was given a descriptor as a file ({word}, a process substitution?), which leads to a command that is not in the trace"
            ))
        });
        let mut words = words.collect::<Result<Vec<String>, String>>()?;
        let own = exe.filter(|exe| below(exe, root).is_some());
        if let (true, Some(exe)) = (name.starts_with('-'), exe) {
            // A login shell has a name that begins with `-`.
            words[0] = quote(exe);
        } else if let (false, Some(exe)) = (name.contains('/'), own) {
            // The program was found through a PATH that leads into the workflow's own directory.
            words[0] = quote_rooted(exe, root).0;
        } else if OF_BASH.contains(&name) {
            words.insert(0, "env".into());
        } else if name.contains('=') {
            words[0] = format!("'{}'", name.replace('\'', r"'\''"));
        }
        Ok(words.join(" "))
    }
}

/// The ending of a program, in words.
pub(super) fn ending(status: i64) -> String {
    match status {
        ..=128 => format!("exit {status}"),
        _ => signal_name(status - 128),
    }
}
