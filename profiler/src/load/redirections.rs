//! Files that a shell opened for the program it started.
//!
//! dash opens `< in > out` itself and then starts the program by vfork; the calls of the program on the
//! descriptors are the program's. Without this module every file of a script would have been made by its
//! shell.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::ranked::Ranked;
use crate::model::{Access, Descent, FileIndex, Workflow};

/// Gives the files that a process opened, and did not read or write itself, to the descendant that read or
/// wrote them without opening them: of several to the one that began first.
pub(super) fn pass_on(workflow: &mut Workflow) {
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
    let descent = Descent::of(workflow);
    for of_file in by_file.into_values() {
        // A single user has nobody to give the file to.
        if of_file.len() < 2 {
            continue;
        }
        let mut users = Users::of(workflow, &descent, of_file);
        // Children come after their parents: the nearest opener above the heir comes first.
        for number in (0..users.of_file.len()).rev() {
            let opener = users.of_file[number];
            let opened = workflow.accesses[opener];
            let below = descent.below(opened.process);
            let writes = opens_to_write(&opened) && opened.writes == 0;
            let reads = opens_to_read(&opened) && opened.reads == 0;
            let since = opened.span_ns.0;
            let writer = writes.then(|| users.writers.greatest(below.clone(), since));
            let reader = reads.then(|| users.readers.greatest(below.clone(), since));
            if let Some((count, Some(Reverse((_, heir))))) = writer
                && !users.has_part(workflow, &opened, i64::from(count))
            {
                give_writing(workflow, opener, heir);
                if count > 1 && opened.write_opens == 1 {
                    // The opener may have emptied the file, but before any of them wrote.
                    let heir = &mut workflow.accesses[heir];
                    heir.append_opens = heir.write_opens;
                }
                users.update(workflow, &[opener, heir]);
            }
            let reader = reader.and_then(|(count, first)| Some((first?.0.1, i64::from(count))));
            let is_plain = opened.read_opens == opened.plain_read_opens && !opens_to_write(&opened);
            let reader = reader.or_else(|| {
                let open_ns = opened.first_open_ns.filter(|_| reads && is_plain)?;
                let (_, most) = users.holders.greatest(below, open_ns);
                most.map(|(.., heir)| (heir, 1))
            });
            if let Some((heir, count)) = reader {
                give_reading(workflow, opener, heir, count);
                users.update(workflow, &[opener, heir]);
            }
        }
    }
}

/// The processes that used one file. Accesses are known by their place in [`Workflow::accesses`].
struct Users {
    of_file: Vec<usize>,
    /// For each access, in the same order, the number of its process in the order of descent.
    numbers: Vec<usize>,
    /// Accesses that wrote without opening the file to write; the greatest is the one that used it first.
    /// Their times are those of the last use.
    writers: Ranked<Reverse<(i64, usize)>>,
    /// Likewise for reading.
    readers: Ranked<Reverse<(i64, usize)>>,
    /// Processes that inherited the open file and asked for its size or mapped it. A process that inherited
    /// it by chance closes it, which is one call. The greatest has the most calls; the times are those of the
    /// first use. Where the file was opened for reading alone and no process read it by calls, this one is
    /// taken for its reader.
    holders: Ranked<(i64, Reverse<i64>, usize)>,
    /// Bytes that all of them wrote.
    written: i128,
    /// True for those that opened it to write; and their number.
    opens: Vec<bool>,
    openers: usize,
}

impl Users {
    fn of(workflow: &Workflow, descent: &Descent, of_file: Vec<usize>) -> Users {
        let place = |number: usize| descent.place(workflow.accesses[of_file[number]].process);
        let mut order: Vec<usize> = (0..of_file.len()).collect();
        order.sort_unstable_by_key(|&number| place(number));
        let places: Vec<u32> = order.iter().map(|&number| place(number)).collect();
        let mut numbers = vec![0; of_file.len()];
        for (place, number) in order.into_iter().enumerate() {
            numbers[number] = place;
        }
        let written = of_file
            .iter()
            .map(|&at| i128::from(workflow.accesses[at].write_bytes));
        let mut users = Users {
            numbers,
            writers: Ranked::new(places.clone()),
            readers: Ranked::new(places.clone()),
            holders: Ranked::new(places),
            written: written.sum(),
            opens: vec![false; of_file.len()],
            openers: 0,
            of_file: Vec::new(),
        };
        users.of_file = of_file;
        for number in 0..users.of_file.len() {
            users.set(workflow, number);
        }
        users
    }

    /// Updates the use of the file by an opener and its heir.
    fn update(&mut self, workflow: &Workflow, changed: &[usize]) {
        for at in changed {
            if let Ok(number) = self.of_file.binary_search(at) {
                self.set(workflow, number);
            }
        }
    }

    fn set(&mut self, workflow: &Workflow, number: usize) {
        let at = self.of_file[number];
        let access = &workflow.accesses[at];
        let place = self.numbers[number];
        let (writes, reads) = (opens_to_write(access), opens_to_read(access));
        self.openers -= usize::from(self.opens[number]);
        self.openers += usize::from(writes);
        self.opens[number] = writes;
        let used = (Reverse((access.span_ns.0, at)), access.span_ns.1);
        let has_written = access.writes > 0 && !writes;
        let has_read = access.reads > 0 && !reads;
        self.writers.set(place, has_written.then_some(used));
        self.readers.set(place, has_read.then_some(used));
        let holds =
            access.calls > 1 && access.reads == 0 && access.writes == 0 && !writes && !reads;
        let holder = (
            (access.calls, Reverse(access.span_ns.0), at),
            access.span_ns.0,
        );
        self.holders.set(place, holds.then_some(holder));
    }

    /// Returns true if a process wrote a part of the file, of which only its opens are seen: it opened the
    /// file more often than for these heirs, or it made the file and this contains more bytes than others are
    /// known to have written, none of whom opened it.
    fn has_part(&self, workflow: &Workflow, opened: &Access, heirs: i64) -> bool {
        let file = workflow.file(opened.file);
        let written = self.written - i128::from(opened.write_bytes);
        let others = self.openers - usize::from(opens_to_write(opened));
        let is_new = opened.creates > 0 || opened.truncates > 0;
        let is_more = file
            .size_bytes
            .is_some_and(|size| i128::from(size) > written)
            && others == 0;
        file.only_opens && (opened.write_opens > heirs || is_new && is_more)
    }
}

fn opens_to_write(access: &Access) -> bool {
    access.creates > 0 || access.write_opens > 0
}

fn opens_to_read(access: &Access) -> bool {
    access.read_opens > 0
}

/// The bytes that the heir moved are known, so that it has no unseen changes.
fn give_writing(workflow: &mut Workflow, opener: usize, heir: usize) {
    let opened = workflow.accesses[opener];
    let only_opens = workflow.file(opened.file).only_opens;
    let heirs_end = workflow.process(workflow.accesses[heir].process).end_ns;
    let access = &mut workflow.accesses[heir];
    access.creates = opened.creates;
    access.truncates += opened.truncates;
    access.write_opens = opened.write_opens;
    access.append_opens = opened.append_opens;
    access.blind_opens = 0;
    access.first_open_ns = access.first_open_ns.or(opened.first_open_ns);
    // A file that it opened for both, and did not read by calls, it opened for the heir, unless calls are not
    // seen.
    let read_opens = match only_opens || opened.reads > 0 {
        true => opened.read_opens,
        false => opened.plain_read_opens,
    };
    let is_new = opened.creates > 0 || opened.truncates > 0;
    // From a file that it made itself it can only have read data that the heir wrote.
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
        append_opens: 0,
        blind_opens: 0,
        read_opens,
        read_ns,
        write_ns: None,
        first_open_ns: opened.first_open_ns.filter(|_| read_opens > 0),
        ..opened
    };
}

/// If only opens are seen, those that were for none of the `heirs` stay with the opener.
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
    use crate::model::{File, Process, ProcessId, Relation};

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

    /// A shell with two children, an unrelated process, and a child of the first child used one file as
    /// given, and the shell passed it on.
    fn passed_on(accesses: Vec<Access>) -> Workflow {
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
        pass_on(&mut workflow);
        workflow
    }

    fn creators(accesses: Vec<Access>) -> Vec<(u32, u32)> {
        let workflow = passed_on(accesses);
        let created = workflow.accesses.iter().filter(|a| a.creates > 0);
        created.map(|a| (a.process.0, a.file.0)).collect()
    }

    fn readers(accesses: Vec<Access>) -> Vec<u32> {
        let workflow = passed_on(accesses);
        let read = workflow.accesses.iter().filter(|a| a.read_opens > 0);
        read.map(|a| a.process.0).collect()
    }

    #[test]
    fn a_process_that_only_asked_for_the_size_of_its_input_is_its_reader() {
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
        assert_eq!(readers(vec![opened, holds(3, 2, 2)]), [0], "unrelated");
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
        // Two in a block share one open: the first has it.
        let block = vec![
            access(0, 0, opened),
            access(1, 0, wrote),
            access(2, 0, wrote),
        ];
        assert_eq!(creators(block), [(1, 0)]);
        // The shell keeps what it wrote itself, and what no process that it started wrote.
        assert_eq!(
            creators(vec![access(0, 0, both), access(1, 0, wrote)]),
            [(0, 0)]
        );
        assert_eq!(
            creators(vec![access(0, 0, opened), access(3, 0, wrote)]),
            [(0, 0)]
        );
        assert_eq!(creators(vec![access(0, 0, opened)]), [(0, 0)]);
        // A file that the shell made and read is made by its writer, too.
        let reads = Access {
            reads: 1,
            ..access(0, 0, opened)
        };
        assert_eq!(creators(vec![reads, access(1, 0, wrote)]), [(1, 0)]);
        // Of two openers above, the nearer one opened it for the program.
        let far = vec![
            access(0, 0, opened),
            access(1, 0, opened),
            access(4, 0, wrote),
        ];
        assert_eq!(creators(far), [(0, 0), (4, 0)]);
        // A process that opened it again needs no inherited descriptor.
        let again = vec![access(0, 0, opened), access(1, 0, both)];
        assert_eq!(creators(again), [(0, 0), (1, 0)]);
    }

    /// A file outside the traced directories: only the open of its opener is seen.
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
        pass_on(&mut workflow);
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
