//! What tells a process from others of its rule.

use std::collections::HashMap;

use crate::argv::unquote;
use crate::graph::pattern::base;
use crate::model::{ProcessId, Workflow};

/// Arguments shown of a process that has siblings.
const SHOWN: usize = 2;

/// How many processes of a rule have each argument.
pub(super) struct Labels<'a> {
    rules: HashMap<&'a str, Rule>,
}

#[derive(Default)]
struct Rule {
    processes: usize,
    /// How many of them have an argument.
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
        Labels { rules }
    }

    /// A short name: of one alone of its rule the command line without the directory of the program, behind
    /// the programs before it that worked; of one of many the rule and what few others have, which as a rule
    /// names its input.
    pub(super) fn short(&self, workflow: &Workflow, id: ProcessId) -> String {
        let last = workflow.last_image(id);
        let command = last.command.as_deref().unwrap_or(&last.rule);
        let name = workflow.rule(id);
        let before = workflow.rules_before(id);
        let whole = || match command.split_once(' ') {
            Some((program, rest)) => format!("{before}{} {rest}", base(program)),
            None => format!("{before}{}", base(command)),
        };
        let Some(rule) = self.rules.get(name.as_ref()) else {
            return whole();
        };
        if rule.processes == 1 {
            return whole();
        }
        let arguments = arguments(workflow, id);
        let rarity = |argument: &String| rule.arguments.get(argument).copied().unwrap_or(0);
        let mut telling: Vec<(bool, usize, usize)> = arguments
            .iter()
            .enumerate()
            .filter(|(_, argument)| rarity(argument) < rule.processes)
            // Options tell less than what they are for; a name made up for a temporary file nothing.
            .map(|(at, argument)| {
                (
                    argument.starts_with('-') || is_made_up(argument),
                    rarity(argument),
                    at,
                )
            })
            .collect();
        telling.sort_unstable();
        telling.dedup_by_key(|t| base(&arguments[t.2]));
        if telling.first().is_some_and(|t| !t.0) {
            telling.retain(|t| !t.0);
        }
        telling.truncate(SHOWN);
        telling.sort_unstable_by_key(|t| t.2);
        if telling.is_empty() {
            return whole();
        }
        let mut label = name.to_string();
        for (_, _, at) in telling {
            label.push(' ');
            label += base(arguments[at].trim_end_matches('/'));
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

/// `/tmp/ccXy12Ab.s`: every run has another.
fn is_made_up(argument: &str) -> bool {
    argument.starts_with("/tmp/") || argument.starts_with("/var/tmp/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Image, Process};

    #[test]
    fn siblings_are_told_apart_by_their_input() {
        let commands = [
            "/usr/lib/cc1 -quiet -imultiarch x a.c -o /tmp/cc1.s",
            "/usr/lib/cc1 -quiet -imultiarch x lib/b.c -o /tmp/cc2.s",
            "/usr/bin/ld -o prog a.o b.o",
        ];
        let rules = ["cc1", "cc1", "ld"];
        let workflow = Workflow {
            images: (0..3)
                .map(|i| Image {
                    command: Some(commands[i].into()),
                    rule: rules[i].into(),
                    process: ProcessId(i as u32),
                    ..Image::default()
                })
                .collect(),
            processes: (0..3)
                .map(|i| Process {
                    images: i..i + 1,
                    ..Process::default()
                })
                .collect(),
            ..Workflow::default()
        };
        let labels = Labels::of(&workflow);
        let of = |id| labels.short(&workflow, ProcessId(id));
        assert_eq!(of(0), "cc1 a.c");
        assert_eq!(of(1), "cc1 b.c");
        assert_eq!(of(2), "ld -o prog a.o b.o");
    }
}
