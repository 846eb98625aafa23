//! Labels that distinguish the processes of a rule.

use std::collections::{HashMap, HashSet};

use crate::argv::{path_from, unquote, without_directory};
use crate::model::{ProcessId, Workflow};
use crate::paths::base;

/// Number of arguments in the label of a process that is not the only one of its rule.
const SHOWN: usize = 2;

/// The number of processes of each rule that have an argument.
pub(super) struct Labels<'a> {
    rules: HashMap<&'a str, Rule>,
    /// Paths of the files of the trace.
    paths: HashSet<&'a str>,
}

#[derive(Default)]
struct Rule {
    processes: usize,
    /// Number of the processes that have an argument, by argument.
    arguments: HashMap<String, usize>,
}

impl<'a> Labels<'a> {
    pub(super) fn of(workflow: &'a Workflow) -> Labels<'a> {
        let mut rules: HashMap<&str, Rule> = HashMap::new();
        for id in workflow.process_ids() {
            let rule = rules.entry(workflow.rule(id).as_ref()).or_default();
            rule.processes += 1;
            let mut arguments = arguments(workflow, id);
            arguments.sort_unstable();
            arguments.dedup();
            for argument in arguments {
                *rule.arguments.entry(argument).or_default() += 1;
            }
        }
        let paths = workflow
            .files
            .iter()
            .filter_map(|file| file.path.as_deref());
        Labels {
            rules,
            paths: paths.collect(),
        }
    }

    /// An argument as in a label: the last component of a path. The text that a shell executes is no
    /// path, nor is a program of sed or awk, even if it contains slashes.
    fn shown<'b>(&self, argument: &'b str, cwd: &str) -> &'b str {
        let is_path = |word: &str| {
            let is_from_somewhere = ["/", "./", "../"]
                .iter()
                .any(|begin| word.starts_with(begin));
            is_from_somewhere && !word.contains(is_of_text)
                || self.paths.contains(path_from(cwd, word).as_str())
        };
        let value = argument.split_once('=').map(|(_, value)| value);
        let path = [Some(argument), value]
            .into_iter()
            .flatten()
            .find(|word| is_path(word));
        path.map_or(argument, |path| base(path.trim_end_matches('/')))
    }

    /// A short name. For the only process of a rule it is the command line without the program's
    /// directory, after the programs before it that worked. For one of many it is the rule with the
    /// arguments that few others have, among which is usually the name of the input.
    pub(super) fn short(&self, workflow: &Workflow, id: ProcessId) -> String {
        let last = workflow.last_image(id);
        let command = last.command.as_deref().unwrap_or(&last.rule);
        let name = workflow.rule(id);
        let before = workflow.rules_before(id);
        let whole = || format!("{before}{}", without_directory(command));
        let Some(rule) = self.rules.get(name.as_ref()) else {
            return whole();
        };
        if rule.processes == 1 {
            return whole();
        }
        let arguments = arguments(workflow, id);
        let rarity = |argument: &String| rule.arguments.get(argument).copied().unwrap_or(0);
        let mut distinct: Vec<(bool, usize, usize)> = arguments
            .iter()
            .enumerate()
            .filter(|(_, argument)| rarity(argument) < rule.processes)
            // Options distinguish less than their values, and made-up names of temporary files
            // distinguish nothing.
            .map(|(at, argument)| {
                (
                    argument.starts_with('-') || is_made_up(argument),
                    rarity(argument),
                    at,
                )
            })
            .collect();
        distinct.sort_unstable();
        let cwd = last.cwd.as_deref().unwrap_or("");
        distinct.dedup_by_key(|t| self.shown(&arguments[t.2], cwd));
        if distinct.first().is_some_and(|t| !t.0) {
            distinct.retain(|t| !t.0);
        }
        distinct.truncate(SHOWN);
        distinct.sort_unstable_by_key(|t| t.2);
        if distinct.is_empty() {
            return whole();
        }
        let mut label = name.to_string();
        for (_, _, at) in distinct {
            label.push(' ');
            label += self.shown(&arguments[at], cwd);
        }
        label
    }
}

fn arguments(workflow: &Workflow, id: ProcessId) -> Vec<String> {
    let command = workflow.last_image(id).command.as_deref();
    let mut arguments = command.map(unquote).unwrap_or_default();
    if !arguments.is_empty() {
        arguments.remove(0);
    }
    arguments.retain(|argument| !argument.is_empty());
    arguments
}

/// Returns true if a character belongs to program text rather than to a path.
fn is_of_text(c: char) -> bool {
    c.is_whitespace() || ";|&<>$`\"'(){}*".contains(c)
}

/// Returns true for a name such as `/tmp/ccXy12Ab.s`, which differs in every run.
fn is_made_up(argument: &str) -> bool {
    argument.starts_with("/tmp/") || argument.starts_with("/var/tmp/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{File, Image, Process};

    fn run(commands: &[(&str, &str)], files: &[&str]) -> Workflow {
        let at = |i: usize| Process {
            images: i..i + 1,
            ..Process::default()
        };
        let image = |(i, (rule, command)): (usize, &(&str, &str))| Image {
            command: Some((*command).into()),
            rule: (*rule).into(),
            process: ProcessId(i as u32),
            cwd: Some("/w".into()),
            ..Image::default()
        };
        let file = |path: &&str| File {
            path: Some((*path).into()),
            ..File::default()
        };
        Workflow {
            images: commands.iter().enumerate().map(image).collect(),
            processes: (0..commands.len()).map(at).collect(),
            files: files.iter().map(file).collect(),
            ..Workflow::default()
        }
    }

    /// The text that a shell executes is no path, even if it contains slashes.
    #[test]
    fn program_text_is_not_taken_for_a_path() {
        let workflow = run(
            &[
                ("sh -c", "sh -c 'sort a/b > c/d; cp c/d e'"),
                ("sh -c", "/bin/sh -c '/opt/tool x > y/z'"),
                ("sed", "sed s/a/b/g in/x.txt"),
                ("sed", "sed s/c/d/ in/y.txt"),
                ("tool", "tool --out=/w/in/x.txt"),
                ("tool", "tool /opt/data/q.bin"),
            ],
            &["/w/in/x.txt", "/w/in/y.txt"],
        );
        let labels = Labels::of(&workflow);
        let of = |id| labels.short(&workflow, ProcessId(id));
        assert_eq!(of(0), "sh -c sort a/b > c/d; cp c/d e");
        assert_eq!(of(1), "sh -c /opt/tool x > y/z");
        assert_eq!(of(2), "sed s/a/b/g x.txt");
        assert_eq!(of(3), "sed s/c/d/ y.txt");
        assert_eq!(of(4), "tool x.txt");
        assert_eq!(of(5), "tool q.bin");
    }

    #[test]
    fn siblings_are_distinguished_by_their_input() {
        let workflow = run(
            &[
                ("cc1", "/usr/lib/cc1 -quiet -imultiarch x a.c -o /tmp/cc1.s"),
                (
                    "cc1",
                    "/usr/lib/cc1 -quiet -imultiarch x lib/b.c -o /tmp/cc2.s",
                ),
                ("ld", "/usr/bin/ld -o prog a.o b.o"),
            ],
            &["/w/a.c", "/w/lib/b.c"],
        );
        let labels = Labels::of(&workflow);
        let of = |id| labels.short(&workflow, ProcessId(id));
        assert_eq!(of(0), "cc1 a.c");
        assert_eq!(of(1), "cc1 b.c");
        assert_eq!(of(2), "ld -o prog a.o b.o");
    }
}
