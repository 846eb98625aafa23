//! Groups processes into tasks.

use std::collections::HashMap;

use flowtrace_schema::{Result, Trace};
use regex::Regex;

use crate::model::{Stint, Workflow};
use crate::timeline::Timeline;

/// A way to group processes.
#[derive(Clone, Debug)]
pub enum By {
    /// By the name of the workflow step.
    Rule,
    /// By executable file.
    Exe,
    /// By exact command line.
    Command,
    /// By machine.
    Host,
    /// By working directory.
    Directory,
    /// By the value of a recorded environment variable, such as a job id.
    Environment(String),
    /// By the part of the command line that a pattern matches: its first group, or all of the match.
    Pattern(Regex),
}

impl By {
    /// Reads `rule`, `exe`, `command`, `host`, `dir`, `env:NAME` or `regex:PATTERN`.
    ///
    /// # Errors
    /// Returns a message that says what is wrong with the text.
    pub fn parse(text: &str) -> std::result::Result<By, String> {
        match text.split_once(':') {
            Some(("env", name)) if !name.is_empty() => Ok(By::Environment(name.into())),
            Some(("regex", pattern)) => Regex::new(pattern).map(By::Pattern).map_err(|error| {
                let text = error.to_string();
                let last = text
                    .lines()
                    .last()
                    .unwrap_or("it cannot be read")
                    .to_owned();
                format!("the pattern is wrong: {last}")
            }),
            _ => match text {
                "rule" => Ok(By::Rule),
                "exe" => Ok(By::Exe),
                "command" => Ok(By::Command),
                "host" => Ok(By::Host),
                "dir" => Ok(By::Directory),
                _ => Err(
                    "it is one of rule, exe, command, host, dir, env:NAME, regex:PATTERN".into(),
                ),
            },
        }
    }

    /// True if a group that stands at several places of the graph becomes several tasks. A group by host,
    /// directory, variable or pattern stays one.
    pub fn is_split(&self) -> bool {
        matches!(self, By::Rule | By::Exe | By::Command)
    }

    /// The name of the group of every program of every process; `?` if it has none.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn names(
        &self,
        trace: &Trace,
        workflow: &Workflow,
        timeline: &Timeline,
    ) -> Result<Vec<String>> {
        let values: HashMap<i64, String> = match self {
            By::Environment(name) => trace.environment(name)?.into_iter().collect(),
            _ => HashMap::new(),
        };
        let name = |stint: &Stint| {
            let image = workflow.program(stint);
            let instance = timeline.instance(stint.process);
            let found = match self {
                By::Rule => Some(image.rule.to_string()),
                By::Exe => image.exe.as_deref().map(str::to_owned),
                By::Command => image.command.as_deref().map(str::to_owned),
                By::Host => instance.host.as_deref().map(str::to_owned),
                By::Directory => instance.cwd.as_deref().map(str::to_owned),
                By::Environment(_) => values.get(&image.upid).cloned(),
                By::Pattern(pattern) => {
                    let command = image.command.as_deref().unwrap_or_default();
                    match pattern.captures(command) {
                        Some(found) => {
                            let part = found.get(1).or_else(|| found.get(0));
                            part.map(|part| part.as_str().to_owned())
                        }
                        None => Some(image.rule.to_string()),
                    }
                }
            };
            found.unwrap_or_else(|| "?".into())
        };
        Ok(timeline.programs.stints.iter().map(name).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_group() {
        assert!(matches!(By::parse("rule"), Ok(By::Rule)));
        assert!(matches!(By::parse("env:JOB"), Ok(By::Environment(name)) if name == "JOB"));
        assert!(matches!(By::parse("regex:a:(b)"), Ok(By::Pattern(_))));
        assert!(
            By::parse("regex:(")
                .unwrap_err()
                .starts_with("the pattern is wrong: ")
        );
        assert!(By::parse("colour").is_err());
    }
}
