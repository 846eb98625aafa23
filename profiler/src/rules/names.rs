//! Rules named by a small file.
//!
//! A line is `NAME: PATTERN`. The pattern must fit the command line as stored, with `*` for any
//! characters and `?` for one. The first line that fits names the process; a process that none fits
//! keeps its inferred rule. `#` begins a comment.

use std::collections::HashMap;
use std::sync::Arc;

use regex::Regex;

use crate::model::Workflow;
use crate::paths::glob;

/// Names with the patterns of the command lines that get them, in order.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<(Arc<str>, Pattern)>);

/// A condition on a command line.
#[derive(Clone, Debug)]
enum Pattern {
    /// A pattern of the whole command line: `*` for any characters, `?` for one.
    Glob(String),
    /// A pattern of any part of it.
    Regex(Regex),
}

impl Pattern {
    /// Reads a pattern; one between slashes is a regular expression.
    fn parse(text: &str) -> Result<Pattern, String> {
        let inside = text.strip_prefix('/').and_then(|t| t.strip_suffix('/'));
        match inside.filter(|inside| !inside.is_empty()) {
            Some(inside) => Regex::new(inside).map(Pattern::Regex).map_err(|error| {
                let text = error.to_string();
                text.lines()
                    .last()
                    .unwrap_or("it cannot be read")
                    .to_owned()
            }),
            None => Ok(Pattern::Glob(text.to_owned())),
        }
    }

    fn fits(&self, command: &str) -> bool {
        match self {
            Pattern::Glob(pattern) => glob(pattern, command),
            Pattern::Regex(pattern) => pattern.is_match(command),
        }
    }
}

impl Names {
    /// Reads a file of names.
    ///
    /// # Errors
    /// The message names the line that is wrong.
    pub fn parse(text: &str) -> Result<Names, String> {
        let mut names = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, pattern) = line
                .split_once(':')
                .map(|(name, pattern)| (name.trim(), pattern.trim()))
                .filter(|(name, pattern)| !name.is_empty() && !pattern.is_empty())
                .ok_or_else(|| format!("line {}: {line:?} has no name and pattern", number + 1))?;
            let pattern = Pattern::parse(pattern)
                .map_err(|error| format!("line {}: {pattern}: {error}", number + 1))?;
            names.push((name.into(), pattern));
        }
        Ok(Names(names))
    }

    /// Names the images of a workflow. A fork that executed no program has its parent's command line,
    /// and so its parent's name.
    pub fn apply(&self, workflow: &mut Workflow) {
        let mut known: HashMap<Arc<str>, Option<Arc<str>>> = HashMap::new();
        for image in &mut workflow.images {
            let Some(command) = &image.command else {
                continue;
            };
            let name = known.entry(Arc::clone(command)).or_insert_with(|| {
                let fits = |(_, pattern): &&(Arc<str>, Pattern)| pattern.fits(command);
                self.0.iter().find(fits).map(|(name, _)| Arc::clone(name))
            });
            if let Some(name) = name {
                image.rule = Arc::clone(name);
            }
        }
        workflow.name_processes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Image;

    #[test]
    fn the_first_that_fits_names_it() {
        let names = Names::parse("# steps\nalign: bwa mem *\nbwa: bwa*\n").unwrap();
        let image = |command: &str, rule: &str| Image {
            command: Some(command.into()),
            rule: rule.into(),
            ..Image::default()
        };
        let mut workflow = Workflow {
            images: vec![
                image("bwa mem a b", "x"),
                image("bwa index", "x"),
                image("ls", "ls"),
            ],
            ..Workflow::default()
        };
        names.apply(&mut workflow);
        let rules: Vec<&str> = workflow.images.iter().map(|i| i.rule.as_ref()).collect();
        assert_eq!(rules, ["align", "bwa", "ls"]);
        let names = Names::parse("ref: /\\bindex$/\nmem: /mem (a|c)/").unwrap();
        names.apply(&mut workflow);
        let rules: Vec<&str> = workflow.images.iter().map(|i| i.rule.as_ref()).collect();
        assert_eq!(rules, ["mem", "ref", "ls"]);
        let wrong = Names::parse("a: b\nc: /(/").unwrap_err();
        assert!(wrong.starts_with("line 2: /(/: "), "{wrong}");
        assert_eq!(
            Names::parse("a: b\nnothing").unwrap_err(),
            "line 2: \"nothing\" has no name and pattern"
        );
    }
}
