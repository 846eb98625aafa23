//! Data that may have gone on as arguments: a shell that gets an answer, as from `$(…)`, and starts a program
//! afterwards, may have passed it as an argument (`cp $(cat list) there`). No call shows that, so there is no
//! edge for it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::managers::{Runner, runner_of};
use crate::model::{ProcessId, Workflow};

/// Data that a shell may have passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOn {
    /// The shell.
    pub by: ProcessId,
    /// Processes that had answered it by then.
    pub from: BTreeSet<ProcessId>,
    /// Processes that it started afterwards.
    pub to: BTreeSet<ProcessId>,
}

/// Data that shells may have passed on to some of `processes` as arguments, where the shells are not among
/// these themselves.
pub fn passed_on(workflow: &Workflow, processes: &HashSet<ProcessId>) -> Vec<PassedOn> {
    let is_shell = |id: ProcessId| {
        let mut images = workflow.images(id).iter();
        images.any(|image| runner_of(image.exe.as_deref(), &image.rule) == Some(Runner::Shell))
    };
    let mut found: BTreeMap<ProcessId, PassedOn> = BTreeMap::new();
    for &to in processes {
        let process = workflow.process(to);
        let by = process.parent.filter(|by| !processes.contains(by));
        let Some(by) = by.filter(|&by| is_shell(by)) else {
            continue;
        };
        let answers = workflow.streams.iter().filter(|stream| {
            stream.to == by && !stream.is_socket && stream.last_ns <= process.start_ns
        });
        let from: BTreeSet<ProcessId> = answers.map(|stream| stream.from).collect();
        if from.is_empty() {
            continue;
        }
        let passed = found.entry(by).or_insert_with(|| PassedOn {
            by,
            from: BTreeSet::new(),
            to: BTreeSet::new(),
        });
        passed.from.extend(from);
        passed.to.insert(to);
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Image, Process, Stream, Way};

    #[test]
    fn what_a_shell_starts_after_an_answer_may_have_it_as_an_argument() {
        let process = |at: usize, parent, start_ns| Process {
            images: at..at + 1,
            parent,
            start_ns,
            ..Process::default()
        };
        let image = |at: u32, rule: &str| Image {
            process: ProcessId(at),
            rule: rule.into(),
            exe: Some(format!("/bin/{rule}").into()),
            ..Image::default()
        };
        let shell = Some(ProcessId(0));
        let workflow = Workflow {
            images: vec![
                image(0, "sh"),
                image(1, "sort"),
                image(2, "cat"),
                image(3, "cp"),
            ],
            processes: vec![
                process(0, None, 0),
                process(1, shell, 10),
                process(2, shell, 20),
                process(3, shell, 40),
            ],
            streams: vec![Stream {
                from: ProcessId(2),
                to: ProcessId(0),
                is_socket: false,
                way: Way::Forth,
                moved: None,
                at_most_bytes: None,
                is_exact: false,
                captured: None,
                first_ns: 20,
                last_ns: 30,
            }],
            ..Workflow::default()
        };
        let of = |ids: &[u32]| passed_on(&workflow, &ids.iter().map(|&id| ProcessId(id)).collect());
        let expected = PassedOn {
            by: ProcessId(0),
            from: BTreeSet::from([ProcessId(2)]),
            to: BTreeSet::from([ProcessId(3)]),
        };
        assert_eq!(of(&[1, 3]), [expected]);
        // No answer yet; the shell is among the processes already.
        assert_eq!(of(&[1]), []);
        assert_eq!(of(&[0, 3]), []);
    }
}
