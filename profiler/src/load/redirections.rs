//! Files that a shell opened for the program it started.
//!
//! dash opens `< in > out` itself and then starts the program by vfork; what the program does with the
//! descriptors is the program's. Without this every file of a script would have been made by its shell.

use std::collections::HashMap;

use crate::model::{Access, FileIndex, ProcessId, Workflow};

/// Gives what a process opened, and neither read nor wrote itself, to the descendant that read or wrote
/// it without opening it: of several the one that began first.
pub(super) fn hand_on(workflow: &mut Workflow) {
    let mut by_file: HashMap<FileIndex, Vec<usize>> = HashMap::new();
    for access in workflow.accesses.iter().filter(|a| opens_for_others(a)) {
        by_file.entry(access.file).or_default();
    }
    if by_file.is_empty() {
        return;
    }
    for (at, access) in workflow.accesses.iter().enumerate() {
        if let Some(of_file) = by_file.get_mut(&access.file) {
            of_file.push(at);
        }
    }
    for of_file in by_file.into_values() {
        for &opener in &of_file {
            let opened = workflow.accesses[opener];
            if !opens_for_others(&opened) {
                continue;
            }
            let heir = of_file
                .iter()
                .copied()
                .filter(|&at| inherits(&workflow.accesses[at], &opened))
                .filter(|&at| descends(workflow, workflow.accesses[at].process, opened.process))
                .min_by_key(|&at| (workflow.accesses[at].span_ns.0, at));
            if let Some(heir) = heir {
                give(workflow, opener, heir);
            }
        }
    }
}

/// Whether a process opened a file and moved no byte.
fn opens_for_others(access: &Access) -> bool {
    let has_opened = access.creates > 0 || access.write_opens > 0 || access.read_opens > 0;
    has_opened && access.reads == 0 && access.writes == 0
}

/// Whether a process used a file in a way in which the other had opened it, and never opened it itself.
fn inherits(access: &Access, opened: &Access) -> bool {
    let is_own = access.creates > 0 || access.write_opens > 0 || access.read_opens > 0;
    let writes = access.writes > 0 && (opened.creates > 0 || opened.write_opens > 0);
    let reads = access.reads > 0 && opened.read_opens > 0;
    !is_own && (writes || reads) && access.span_ns.1 >= opened.span_ns.0
}

pub(super) fn descends(workflow: &Workflow, mut id: ProcessId, from: ProcessId) -> bool {
    // Parents form no cycle, but a damaged trace may have long lines of them.
    for _ in 0..1000 {
        match workflow.process(id).parent {
            Some(parent) if parent == from => return true,
            Some(parent) => id = parent,
            None => return false,
        }
    }
    false
}

fn give(workflow: &mut Workflow, opener: usize, heir: usize) {
    let opened = workflow.accesses[opener];
    let access = &mut workflow.accesses[heir];
    access.creates = opened.creates;
    access.truncates += opened.truncates;
    access.read_opens = opened.read_opens;
    access.plain_read_opens = opened.plain_read_opens;
    access.write_opens = opened.write_opens;
    // The bytes that it moved are known.
    access.blind_opens = 0;
    access.first_open_ns = opened.first_open_ns;
    workflow.accesses[opener] = Access {
        creates: 0,
        changes: 0,
        truncates: 0,
        read_opens: 0,
        plain_read_opens: 0,
        write_opens: 0,
        blind_opens: 0,
        write_ns: None,
        first_open_ns: None,
        ..opened
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Process;

    fn access(process: u32, file: u32, (opens, moves): (bool, bool)) -> Access {
        Access {
            process: ProcessId(process),
            file: FileIndex(file),
            creates: i64::from(opens),
            write_opens: i64::from(opens),
            writes: i64::from(moves),
            changes: i64::from(moves),
            write_ns: Some((i64::from(process), i64::from(process) + 1)),
            span_ns: (i64::from(process), 10),
            ..Access::default()
        }
    }

    fn creators(accesses: Vec<Access>) -> Vec<(u32, u32)> {
        let process = |parent: Option<u32>| Process {
            parent: parent.map(ProcessId),
            ..Process::default()
        };
        // A shell with two children, and a stranger.
        let mut workflow = Workflow {
            processes: vec![
                process(None),
                process(Some(0)),
                process(Some(0)),
                process(None),
            ],
            accesses,
            ..Workflow::default()
        };
        hand_on(&mut workflow);
        let created = workflow.accesses.iter().filter(|a| a.creates > 0);
        created.map(|a| (a.process.0, a.file.0)).collect()
    }

    #[test]
    fn a_redirection_is_the_programs() {
        let (opened, wrote, both) = ((true, false), (false, true), (true, true));
        assert_eq!(
            creators(vec![access(0, 0, opened), access(1, 0, wrote)]),
            [(1, 0)]
        );
        // Two in a block share one: the first has it.
        let block = vec![
            access(0, 0, opened),
            access(1, 0, wrote),
            access(2, 0, wrote),
        ];
        assert_eq!(creators(block), [(1, 0)]);
        // What it wrote into itself, or nobody that it started wrote, stays the shell's.
        assert_eq!(
            creators(vec![access(0, 0, both), access(1, 0, wrote)]),
            [(0, 0)]
        );
        assert_eq!(
            creators(vec![access(0, 0, opened), access(3, 0, wrote)]),
            [(0, 0)]
        );
        assert_eq!(creators(vec![access(0, 0, opened)]), [(0, 0)]);
        // Who opened it again needs no descriptor of another's.
        let again = vec![access(0, 0, opened), access(1, 0, both)];
        assert_eq!(creators(again), [(0, 0), (1, 0)]);
    }
}
