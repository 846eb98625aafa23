//! Files that a shell opened for the program it started.
//!
//! dash opens `< in > out` itself and then starts the program by vfork; what the program does with the
//! descriptors is the program's. Without this every file of a script would have been made by its shell.

use std::collections::HashMap;

use crate::model::{Access, FileIndex, ProcessId, Workflow};

/// Gives what a process opened, and did not read or write itself, to the descendant that read or wrote it
/// without opening it: of several the one that began first.
pub(super) fn hand_on(workflow: &mut Workflow) {
    let mut by_file: HashMap<FileIndex, Vec<usize>> = HashMap::new();
    for access in &workflow.accesses {
        if opens_to_write(access) && access.writes == 0
            || opens_to_read(access) && access.reads == 0
        {
            by_file.entry(access.file).or_default();
        }
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
        // Children come after their parents: who opened it nearest to the heir comes first.
        for &opener in of_file.iter().rev() {
            let opened = workflow.accesses[opener];
            let writes = opens_to_write(&opened) && opened.writes == 0;
            let reads = opens_to_read(&opened) && opened.reads == 0;
            let has_written = |access: &Access| access.writes > 0 && !opens_to_write(access);
            let has_read = |access: &Access| access.reads > 0 && !opens_to_read(access);
            let writer = writes.then(|| heirs(workflow, &of_file, &opened, has_written));
            let reader = reads.then(|| heirs(workflow, &of_file, &opened, has_read));
            if let Some((heir, count)) = writer.flatten()
                && !has_part(workflow, &of_file, &opened, count)
            {
                give_writing(workflow, opener, heir);
            }
            let reader = reader.flatten();
            let is_plain = opened.read_opens == opened.plain_read_opens && !opens_to_write(&opened);
            let reader = reader.or_else(|| match reads && is_plain {
                true => holder(workflow, &of_file, &opened).map(|heir| (heir, 1)),
                false => None,
            });
            if let Some((heir, count)) = reader {
                give_reading(workflow, opener, heir, count);
            }
        }
    }
}

fn opens_to_write(access: &Access) -> bool {
    access.creates > 0 || access.write_opens > 0
}

fn opens_to_read(access: &Access) -> bool {
    access.read_opens > 0
}

/// The descendant of an opener that used the file first, and how many did.
fn heirs(
    workflow: &Workflow,
    of_file: &[usize],
    opened: &Access,
    has_used: impl Fn(&Access) -> bool,
) -> Option<(usize, i64)> {
    let access = |at: usize| &workflow.accesses[at];
    let heirs = of_file.iter().copied().filter(|&at| {
        has_used(access(at))
            && access(at).span_ns.1 >= opened.span_ns.0
            && descends(workflow, access(at).process, opened.process)
    });
    let (first, count) = heirs.fold((None, 0), |(first, count), at| {
        let began = Some((access(at).span_ns.0, at));
        (
            first.map_or(began, |known| began.min(Some(known))),
            count + 1,
        )
    });
    first.map(|(_, at)| (at, count))
}

/// The descendant that got a file open that was opened for reading alone, and asked for its size or mapped it, where none read
/// it by calls: an open for reading counts without. Whoever got it only because it was open closes it, which is one call.
/// Of several the one with the most.
fn holder(workflow: &Workflow, of_file: &[usize], opened: &Access) -> Option<usize> {
    let access = |at: usize| &workflow.accesses[at];
    let holds = |&at: &usize| {
        let Access {
            calls,
            reads,
            writes,
            ..
        } = *access(at);
        (calls > 1 && reads == 0 && writes == 0)
            && !opens_to_read(access(at))
            && !opens_to_write(access(at))
            && opened
                .first_open_ns
                .is_some_and(|open| open <= access(at).span_ns.0)
            && descends(workflow, access(at).process, opened.process)
    };
    let holders = of_file.iter().copied().filter(holds);
    holders.max_by_key(|&at| (access(at).calls, std::cmp::Reverse(access(at).span_ns.0)))
}

/// Whether a process wrote a part of a file, of which only its opens are seen: it opened it more often than
/// for these heirs, or what is there in a file that it made is more than others are known to have written, none
/// of whom opened it.
fn has_part(workflow: &Workflow, of_file: &[usize], opened: &Access, heirs: i64) -> bool {
    let file = workflow.file(opened.file);
    let others = || {
        let others = of_file.iter().map(|&at| &workflow.accesses[at]);
        others.filter(|access| access.process != opened.process)
    };
    let is_new = opened.creates > 0 || opened.truncates > 0;
    let written = others().fold(0, |sum: i64, access| sum.saturating_add(access.write_bytes));
    let is_more =
        || file.size_bytes.is_some_and(|size| size > written) && !others().any(opens_to_write);
    file.only_opens && (opened.write_opens > heirs || is_new && is_more())
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

/// The bytes that the heir moved are known, so that it has changed nothing unseen.
fn give_writing(workflow: &mut Workflow, opener: usize, heir: usize) {
    let opened = workflow.accesses[opener];
    let only_opens = workflow.file(opened.file).only_opens;
    let heirs_end = workflow.process(workflow.accesses[heir].process).end_ns;
    let access = &mut workflow.accesses[heir];
    access.creates = opened.creates;
    access.truncates += opened.truncates;
    access.write_opens = opened.write_opens;
    access.blind_opens = 0;
    access.first_open_ns = access.first_open_ns.or(opened.first_open_ns);
    // What it opened for both, and did not read by calls, it opened for the heir, unless calls are not seen.
    let read_opens = match only_opens || opened.reads > 0 {
        true => opened.read_opens,
        false => opened.plain_read_opens,
    };
    let is_new = opened.creates > 0 || opened.truncates > 0;
    // In a file that it made itself it can only have read what the heir wrote.
    let read_ns = match (opened.read_ns, heirs_end) {
        (None, Some(end)) if only_opens && is_new && read_opens > 0 => {
            let at = end.max(opened.span_ns.1);
            Some((at, at))
        }
        (known, _) => known,
    };
    workflow.accesses[opener] = Access {
        creates: 0,
        changes: 0,
        truncates: 0,
        write_opens: 0,
        blind_opens: 0,
        read_opens,
        read_ns,
        write_ns: None,
        first_open_ns: opened.first_open_ns.filter(|_| read_opens > 0),
        ..opened
    };
}

/// Where only opens are seen, those that were for none of so many `heirs` stay the opener's.
fn give_reading(workflow: &mut Workflow, opener: usize, heir: usize, heirs: i64) {
    let opened = workflow.accesses[opener];
    let kept = match workflow.file(opened.file).only_opens {
        true => (opened.read_opens - heirs).max(0),
        false => 0,
    };
    let access = &mut workflow.accesses[heir];
    let kept_plain = kept.min(opened.plain_read_opens);
    access.read_opens = opened.read_opens - kept;
    access.plain_read_opens = opened.plain_read_opens - kept_plain;
    access.blind_opens = 0;
    access.first_open_ns = access.first_open_ns.or(opened.first_open_ns);
    let opener = &mut workflow.accesses[opener];
    (opener.read_opens, opener.plain_read_opens) = (kept, kept_plain);
    if kept == 0 && !opens_to_write(opener) {
        opener.blind_opens = 0;
        opener.first_open_ns = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{File, Process, Relation};

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

    /// A shell with two children, a stranger, and a child of the first child used one file so, and handed it on.
    fn handed(accesses: Vec<Access>) -> Workflow {
        let process = |parent: Option<u32>| Process {
            parent: parent.map(ProcessId),
            ..Process::default()
        };
        let mut workflow = Workflow {
            processes: vec![
                process(None),
                process(Some(0)),
                process(Some(0)),
                process(None),
                process(Some(1)),
            ],
            accesses,
            files: vec![File::default()],
            ..Workflow::default()
        };
        hand_on(&mut workflow);
        workflow
    }

    fn creators(accesses: Vec<Access>) -> Vec<(u32, u32)> {
        let workflow = handed(accesses);
        let created = workflow.accesses.iter().filter(|a| a.creates > 0);
        created.map(|a| (a.process.0, a.file.0)).collect()
    }

    fn readers(accesses: Vec<Access>) -> Vec<u32> {
        let workflow = handed(accesses);
        let read = workflow.accesses.iter().filter(|a| a.read_opens > 0);
        read.map(|a| a.process.0).collect()
    }

    #[test]
    fn who_only_looked_at_what_it_was_handed_is_its_reader() {
        let opened = Access {
            process: ProcessId(0),
            file: FileIndex(0),
            read_opens: 1,
            plain_read_opens: 1,
            calls: 3,
            first_open_ns: Some(1),
            span_ns: (1, 9),
            ..Access::default()
        };
        let holds = |process: u32, calls: i64, since: i64| Access {
            process: ProcessId(process),
            file: FileIndex(0),
            calls,
            span_ns: (since, 5),
            ..Access::default()
        };
        // `{ true; wc -c; } < file`: both close it.
        assert_eq!(readers(vec![opened, holds(1, 1, 2), holds(2, 2, 3)]), [2]);
        assert_eq!(
            readers(vec![opened, holds(2, 2, 0)]),
            [0],
            "used before it was opened"
        );
        assert_eq!(readers(vec![opened, holds(3, 2, 2)]), [0], "a stranger");
        let closed = readers(vec![opened, holds(1, 1, 2)]);
        assert_eq!(closed, [0], "it was only open there");
        let both = Access {
            plain_read_opens: 0,
            write_opens: 1,
            ..opened
        };
        let kept = readers(vec![both, holds(2, 2, 3)]);
        assert_eq!(kept, [0], "a file to write");
        let read = Access {
            reads: 1,
            ..holds(1, 1, 2)
        };
        assert_eq!(readers(vec![opened, read, holds(2, 9, 2)]), [1]);
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
        // What it made and read is made by who wrote it, too.
        let reads = Access {
            reads: 1,
            ..access(0, 0, opened)
        };
        assert_eq!(creators(vec![reads, access(1, 0, wrote)]), [(1, 0)]);
        // Of two above the nearer one opened it for the program.
        let far = vec![
            access(0, 0, opened),
            access(1, 0, opened),
            access(4, 0, wrote),
        ];
        assert_eq!(creators(far), [(0, 0), (4, 0)]);
        // Who opened it again needs no descriptor of another's.
        let again = vec![access(0, 0, opened), access(1, 0, both)];
        assert_eq!(creators(again), [(0, 0), (1, 0)]);
    }

    /// A file outside, of whose opener only the open is seen.
    fn outside(size_bytes: i64, opener: Access) -> Vec<Access> {
        let program = Access {
            write_bytes: 10,
            ..access(1, 0, (false, true))
        };
        outside_of(size_bytes, vec![opener, program])
    }

    fn outside_of(size_bytes: i64, accesses: Vec<Access>) -> Vec<Access> {
        let mut workflow = Workflow {
            processes: vec![
                Process::default(),
                Process {
                    parent: Some(ProcessId(0)),
                    end_ns: Some(70),
                    ..Process::default()
                },
            ],
            files: vec![File {
                only_opens: true,
                size_bytes: Some(size_bytes),
                ..File::default()
            }],
            accesses,
            ..Workflow::default()
        };
        hand_on(&mut workflow);
        workflow.accesses
    }

    #[test]
    fn who_made_a_file_outside_wrote_what_nobody_else_did() {
        let made = access(0, 0, (true, false));
        let relations = |size| {
            outside(size, made)
                .iter()
                .map(Access::relation)
                .collect::<Vec<_>>()
        };
        assert_eq!(relations(10), [Relation::None, Relation::Create]);
        assert_eq!(relations(13), [Relation::Create, Relation::Write]);
    }

    #[test]
    fn opens_of_files_outside_that_nobody_inherits_are_the_openers() {
        let opened = |read_opens| Access {
            read_opens,
            span_ns: (0, 10),
            ..Access::default()
        };
        let reads = |opens: i64| {
            let program = Access {
                reads: 1,
                ..access(1, 0, (false, false))
            };
            let opener = Access {
                process: ProcessId(0),
                file: FileIndex(0),
                ..opened(opens)
            };
            let found = outside_of(10, vec![opener, program]);
            found.iter().map(Access::is_reader).collect::<Vec<_>>()
        };
        assert_eq!(reads(1), [false, true]);
        assert_eq!(reads(2), [true, true]);
    }

    #[test]
    fn who_made_a_file_outside_for_others_reads_what_they_wrote() {
        let made = Access {
            read_opens: 1,
            ..access(0, 0, (true, false))
        };
        let [opener, program] = outside(10, made)[..] else {
            panic!();
        };
        assert_eq!(opener.relation(), Relation::Read);
        assert_eq!(opener.read_ns, Some((70, 70)));
        assert_eq!(program.relation(), Relation::Create);
    }
}
