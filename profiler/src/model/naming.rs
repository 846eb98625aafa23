//! Names of processes: only this module decides them.
//!
//! A process has the name of its last program. Where a program before it did work of its own, on data or on a
//! CPU, that name comes first (`w.sh → sleep`): the process read and wrote what both did. A program on the
//! way that only starts the next, as `env`, `nice` or a shell's copy, is not named. A statement about a time,
//! a call or a byte, and not about the process as a whole, names the program of that time
//! ([`super::Programs`]).

use std::collections::HashMap;
use std::sync::Arc;

use super::{Image, ProcessId, Workflow};

/// Greatest number of programs in the name of one process; of more, the first and the last are named.
const MOST: usize = 3;

impl Workflow {
    /// The images that give a process its name: those that worked before the last, and the last.
    pub fn named_images(&self, id: ProcessId) -> impl Iterator<Item = &Image> {
        let images = self.images(id);
        let last = images.len() - 1;
        let named = move |&(at, image): &(usize, &Image)| at == last || image.has_worked;
        images.iter().enumerate().filter(named).map(|(_, i)| i)
    }

    /// The name of a process: the rules of the programs that worked in it, mostly one.
    pub fn rule(&self, id: ProcessId) -> &Arc<str> {
        self.joint_rules
            .get(&id)
            .unwrap_or(&self.last_image(id).rule)
    }

    /// The part of a process's name before its last program: nothing, or `w.sh → `.
    pub fn rules_before(&self, id: ProcessId) -> &str {
        let name: &str = self.rule(id);
        name.strip_suffix(&*self.last_image(id).rule)
            .unwrap_or_default()
    }

    /// Returns true if the name of a process fits, or that of one of the programs in it.
    pub fn is_of_rule(&self, id: ProcessId, fits: impl Fn(&str) -> bool) -> bool {
        fits(self.rule(id)) || self.named_images(id).any(|image| fits(&image.rule))
    }

    /// Names a process by another property of the programs that worked in it; `None`: known of none.
    pub fn joint_name(
        &self,
        id: ProcessId,
        of: impl Fn(&Image) -> Option<Arc<str>>,
    ) -> Option<Arc<str>> {
        let mut names: Vec<Arc<str>> = self.named_images(id).filter_map(of).collect();
        names.dedup();
        match names.as_slice() {
            [] | [_] => names.pop(),
            [first, .., last] if names.len() > MOST => {
                Some(format!("{first} → +{} → {last}", names.len() - 2).into())
            }
            _ => Some(names.join(" → ").into()),
        }
    }

    /// The command lines of the programs that worked in a process; the rule where one is not known.
    pub fn joint_command(&self, id: ProcessId) -> Arc<str> {
        let command = |image: &Image| image.command.clone().or(Some(Arc::clone(&image.rule)));
        self.joint_name(id, command).unwrap_or_default()
    }

    /// Sets the names of processes, when it is known which images worked, and by what rules.
    pub(crate) fn name_processes(&mut self) {
        let mut joint = HashMap::new();
        for image in self.images.iter().filter(|image| image.has_worked) {
            let id = image.process;
            let name = self.joint_name(id, |image| Some(Arc::clone(&image.rule)));
            if let Some(name) = name.filter(|name| *name != self.last_image(id).rule) {
                joint.insert(id, name);
            }
        }
        self.joint_rules = joint;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Process;

    /// The name of a process of images (rule, worked).
    fn name(images: &[(&str, bool)]) -> String {
        let image = |&(rule, has_worked): &(&str, bool)| Image {
            rule: rule.into(),
            process: ProcessId(0),
            has_worked,
            ..Image::default()
        };
        let mut workflow = Workflow {
            images: images.iter().map(image).collect(),
            processes: vec![Process {
                images: 0..images.len(),
                ..Process::default()
            }],
            ..Workflow::default()
        };
        workflow.name_processes();
        workflow.rule(ProcessId(0)).to_string()
    }

    #[test]
    fn only_programs_that_worked_stand_before_the_last() {
        let plain = [("all.sh", false), ("env", false), ("sort", false)];
        assert_eq!(name(&plain), "sort");
        let script = [("all.sh", false), ("w.sh", true), ("sleep", false)];
        assert_eq!(name(&script), "w.sh → sleep");
        // A copy of the shell that worked, and then the shell itself once more.
        let again = [("w.sh", true), ("w.sh", true), ("sort", true)];
        assert_eq!(name(&again), "w.sh → sort");
        assert_eq!(name(&[("w.sh", true), ("w.sh", false)]), "w.sh");
        let many = ["a", "b", "c", "d"].map(|rule| (rule, true));
        assert_eq!(name(&many), "a → +2 → d");
    }

    #[test]
    fn a_process_fits_by_each_of_its_programs() {
        let image = |rule: &str, has_worked| Image {
            rule: rule.into(),
            has_worked,
            ..Image::default()
        };
        let mut workflow = Workflow {
            images: vec![
                image("w.sh", true),
                image("nice", false),
                image("sleep", false),
            ],
            processes: vec![Process {
                images: 0..3,
                ..Process::default()
            }],
            ..Workflow::default()
        };
        for image in &mut workflow.images {
            image.process = ProcessId(0);
        }
        workflow.name_processes();
        let fits = |name: &str| workflow.is_of_rule(ProcessId(0), |rule| rule == name);
        assert!(fits("w.sh") && fits("sleep") && fits("w.sh → sleep"));
        assert!(!fits("nice"));
    }
}
