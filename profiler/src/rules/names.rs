//! Rules named by a small file.
//!
//! A line is `NAME: PATTERN`; the pattern is of the command line as stored, `*` any characters, `?` one. The
//! first line that fits names the process; who fits none keeps its inferred rule. `#` begins a
//! comment.

use std::collections::HashMap;
use std::sync::Arc;

use crate::graph::select::glob;
use crate::model::Workflow;

/// Names with the patterns of what they name, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Vec<(Arc<str>, String)>);

impl Names {
    /// Reads a file of names.
    ///
    /// # Errors
    /// Says which line is wrong.
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
            names.push((name.into(), pattern.to_owned()));
        }
        Ok(Names(names))
    }

    /// Names the images of a workflow. A fork that ran no program of its own has its parent's command
    /// line, and so its name.
    pub fn apply(&self, workflow: &mut Workflow) {
        let mut known: HashMap<Arc<str>, Option<Arc<str>>> = HashMap::new();
        for image in &mut workflow.images {
            let Some(command) = &image.command else {
                continue;
            };
            let name = known.entry(Arc::clone(command)).or_insert_with(|| {
                let fits = |(_, pattern): &&(Arc<str>, String)| glob(pattern, command);
                self.0.iter().find(fits).map(|(name, _)| Arc::clone(name))
            });
            if let Some(name) = name {
                image.rule = Arc::clone(name);
            }
        }
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
        assert_eq!(
            Names::parse("a: b\nnothing").unwrap_err(),
            "line 2: \"nothing\" has no name and pattern"
        );
    }
}
