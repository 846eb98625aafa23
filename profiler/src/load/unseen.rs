//! Times of writes that no call shows: into a file outside the traced directories, of which only the open is
//! seen.
//!
//! The open is the earliest time. Most programs open their output first, and write when they have read their
//! input: the writing is put at the end of the process, or before another process opened the file. A shell is
//! done with a redirection before it begins anything else.

use std::collections::{BTreeMap, HashMap};

use crate::managers::{Runner, runner};
use crate::model::{Access, FileIndex, ProcessId, Relation, Workflow};

/// Sets the time of writes that are known by one open alone.
pub(super) fn settle(workflow: &mut Workflow) {
    let is_unseen = |access: &Access| {
        workflow.file(access.file).only_opens
            && access.relation() >= Relation::Write
            && access.writes == 0
            && access.write_opens == 1
    };
    let accesses = workflow.accesses.iter().enumerate();
    let unseen: Vec<(usize, i64)> = accesses
        .filter(|(_, access)| is_unseen(access))
        .filter_map(|(at, access)| Some((at, access.first_open_ns?)))
        .collect();
    if unseen.is_empty() {
        return;
    }
    // Begins of each of these processes' activities, and opens of each of these files, by time.
    let mut begun: HashMap<ProcessId, Vec<i64>> = HashMap::new();
    let mut opened: BTreeMap<FileIndex, Vec<(i64, ProcessId)>> = BTreeMap::new();
    for &(at, _) in &unseen {
        let access = &workflow.accesses[at];
        begun.entry(access.process).or_default();
        opened.entry(access.file).or_default();
    }
    for access in &workflow.accesses {
        if let Some(times) = begun.get_mut(&access.process)
            && access.relation() >= Relation::Write
        {
            times.push(access.write_start());
        }
        if let Some(times) = opened.get_mut(&access.file) {
            times.push((access.span_ns.0, access.process));
        }
    }
    for id in workflow.process_ids() {
        let process = workflow.process(id);
        if let Some(times) = process.parent.and_then(|parent| begun.get_mut(&parent)) {
            times.push(process.start_ns);
        }
    }
    for times in begun.values_mut() {
        times.sort_unstable();
    }
    for times in opened.values_mut() {
        times.sort_unstable();
    }
    for (at, open_ns) in unseen {
        let Access { process, file, .. } = workflow.accesses[at];
        let times = &begun[&process];
        let next = times.get(times.partition_point(|&time| time <= open_ns));
        let next = next.filter(|_| is_shell(workflow, process, open_ns));
        let others = &opened[&file];
        let mut later = others[others.partition_point(|&(time, _)| time <= open_ns)..].iter();
        let other = later
            .find(|(_, other)| *other != process)
            .map(|(time, _)| *time);
        let end = workflow.process(process).end_ns.unwrap_or(workflow.last_ns);
        let last = other.into_iter().chain(next.copied()).min().unwrap_or(end);
        workflow.accesses[at].write_ns = Some((last.max(open_ns), last.max(open_ns)));
    }
}

/// Returns true if a process ran a shell at a time.
fn is_shell(workflow: &Workflow, id: ProcessId, ns: i64) -> bool {
    let images = workflow.images(id).iter().rev();
    let image = images.into_iter().find(|image| image.start_ns <= ns);
    let exe = image.and_then(|image| image.exe.as_deref());
    let name = exe.map(|exe| exe.rsplit('/').next().unwrap_or(exe));
    name.and_then(runner) == Some(Runner::Shell)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{File, Image, Process};

    fn written_at(exe: &str, others: Vec<Access>) -> Option<(i64, i64)> {
        let process = |parent: Option<u32>, start_ns| Process {
            images: if parent.is_none() { 0..1 } else { 0..0 },
            parent: parent.map(ProcessId),
            start_ns,
            end_ns: Some(90),
            ..Process::default()
        };
        let file = |only_opens| File {
            only_opens,
            ..File::default()
        };
        let made = Access {
            process: ProcessId(0),
            file: FileIndex(0),
            creates: 1,
            write_opens: 1,
            first_open_ns: Some(10),
            write_ns: Some((10, 10)),
            span_ns: (10, 10),
            ..Access::default()
        };
        let mut workflow = Workflow {
            processes: vec![process(None, 0), process(Some(0), 5), process(Some(0), 40)],
            images: vec![Image {
                exe: Some(exe.into()),
                ..Image::default()
            }],
            files: vec![file(true), file(false)],
            accesses: [made].into_iter().chain(others).collect(),
            ..Workflow::default()
        };
        settle(&mut workflow);
        workflow.accesses[0].write_ns
    }

    #[test]
    fn it_is_written_before_what_comes_next() {
        let access = |process, file, at| Access {
            process: ProcessId(process),
            file: FileIndex(file),
            span_ns: (at, at),
            ..Access::default()
        };
        // The end is the start of its second child, an open of the file by another process, or its next file.
        assert_eq!(written_at("/bin/bash", vec![]), Some((40, 40)));
        assert_eq!(
            written_at("/bin/bash", vec![access(2, 0, 30)]),
            Some((30, 30))
        );
        let next = Access {
            changes: 1,
            write_ns: Some((20, 25)),
            ..access(0, 1, 20)
        };
        assert_eq!(written_at("/bin/bash", vec![next]), Some((20, 20)));
        // A file that it only reads, and an open before, are no end.
        let before = vec![access(0, 1, 15), access(1, 0, 7)];
        assert_eq!(written_at("/bin/bash", before), Some((40, 40)));
        // A program writes as long as it lives.
        assert_eq!(written_at("/bin/perl", vec![next]), Some((90, 90)));
        let read = access(2, 0, 30);
        assert_eq!(written_at("/bin/perl", vec![read]), Some((30, 30)));
    }
}
