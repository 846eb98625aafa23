//! Data that moves more often than needed.

use std::collections::HashMap;
use std::sync::Arc;

use super::patterns::Pattern;
use crate::model::{Access, FileIndex, ProcessId, Relation, Workflow};

/// A file that several processes of one rule read, or one process again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reread {
    /// The file.
    pub file: FileIndex,
    /// The rule.
    pub rule: Arc<str>,
    /// Its processes that read the file.
    pub readers: i64,
    /// All its processes.
    pub processes: i64,
    /// Bytes that they read together.
    pub read_bytes: i64,
    /// Bytes without those of the file, or of the process that read most if it did not read all: the saving
    /// of one read for all.
    pub again_bytes: i64,
}

/// Files that several processes of a rule read, or one process at least twice as a whole; the most bytes read
/// again first.
pub fn rereads(workflow: &Workflow) -> Vec<Reread> {
    let mut processes: HashMap<&str, i64> = HashMap::new();
    for id in workflow.process_ids() {
        *processes.entry(workflow.rule(id)).or_default() += 1;
    }
    let mut found: HashMap<(FileIndex, &str), (Reread, i64)> = HashMap::new();
    for access in workflow.accesses.iter().filter(|access| access.reads > 0) {
        if !workflow.file(access.file).is_regular {
            continue;
        }
        let rule = workflow.rule(access.process);
        let (sum, most) = found.entry((access.file, rule)).or_insert_with(|| {
            let reread = Reread {
                file: access.file,
                rule: Arc::clone(rule),
                readers: 0,
                processes: processes[rule.as_ref()],
                read_bytes: 0,
                again_bytes: 0,
            };
            (reread, 0)
        });
        sum.readers += 1;
        sum.read_bytes = sum.read_bytes.saturating_add(access.read_bytes);
        *most = (*most).max(access.read_bytes);
    }
    let mut found: Vec<Reread> = found
        .into_values()
        .filter_map(|(mut sum, most)| {
            let size = workflow.file(sum.file).size_bytes.filter(|&size| size > 0);
            let once = size.map_or(most, |size| most.min(size));
            sum.again_bytes = sum.read_bytes - once;
            (sum.readers > 1 || sum.again_bytes >= once.max(1)).then_some(sum)
        })
        .collect();
    found.sort_by(|a, b| {
        (b.again_bytes, b.readers, a.file, &a.rule).cmp(&(
            a.again_bytes,
            a.readers,
            b.file,
            &b.rule,
        ))
    });
    found
}

/// A file through which one process passed data to one other, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CouldBePipe {
    /// The file.
    pub file: FileIndex,
    /// The process that wrote it, from begin to end.
    pub writer: ProcessId,
    /// The process that read it, from begin to end.
    pub reader: ProcessId,
    /// Bytes written.
    pub bytes: i64,
    /// Time from the writer's last write to the reader's first read, ns; negative if the read came first.
    pub waited_ns: i64,
}

/// Files that one process created and wrote from begin to end, and that one other process then read from
/// begin to end, and no other process touched. A pipe would have been enough, and both processes could have
/// worked at the same time. The most bytes first. `patterns` are those of [`super::calls::gather`].
pub fn could_be_pipes(
    workflow: &Workflow,
    patterns: &[(ProcessId, FileIndex, Pattern)],
) -> Vec<CouldBePipe> {
    let mut by_file: HashMap<FileIndex, Vec<&Access>> = HashMap::new();
    for access in &workflow.accesses {
        if access.relation() != Relation::None && workflow.file(access.file).is_regular {
            by_file.entry(access.file).or_default().push(access);
        }
    }
    let pattern = |access: &Access| {
        let key = (access.process, access.file);
        let at = patterns.binary_search_by_key(&key, |&(process, file, _)| (process, file));
        at.ok().map(|at| patterns[at].2)
    };
    let in_order = |order: super::patterns::Order| {
        order.first == 1 && order.at_begin == 1 && order.regular == 0 && order.random == 0
    };
    let mut found: Vec<CouldBePipe> = by_file
        .into_iter()
        .filter_map(|(file, accesses)| {
            let [a, b] = accesses[..] else { return None };
            let (writer, reader) = if a.creates > 0 { (a, b) } else { (b, a) };
            let is_plain = writer.creates == 1
                && writer.reads == 0
                && reader.relation() == Relation::Read
                && reader.reads > 0
                && writer.write_bytes > 0
                && reader.read_bytes == writer.write_bytes;
            let wrote = pattern(writer)?.write;
            let read = pattern(reader)?.read;
            if !is_plain || !in_order(wrote) || !in_order(read) {
                return None;
            }
            let (_, last_write) = writer.write_ns?;
            let (first_read, _) = reader.read_ns?;
            Some(CouldBePipe {
                file,
                writer: writer.process,
                reader: reader.process,
                bytes: writer.write_bytes,
                waited_ns: first_read - last_write,
            })
        })
        .collect();
    found.sort_by_key(|pipe| (std::cmp::Reverse(pipe.bytes), pipe.file));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{File, Image, Process};

    #[test]
    fn what_one_process_reads_again_counts_as_what_siblings_do() {
        let file = |size: i64| File {
            is_regular: true,
            size_bytes: Some(size),
            ..File::default()
        };
        let process = |at: usize| Process {
            images: at..at + 1,
            ..Process::default()
        };
        let access = |process: u32, file: u32, read_bytes: i64| Access {
            process: ProcessId(process),
            file: FileIndex(file),
            reads: 2,
            read_bytes,
            ..Access::default()
        };
        let workflow = Workflow {
            files: vec![file(100), file(100), file(50)],
            images: vec![Image::default(); 2],
            processes: vec![process(0), process(1)],
            // Twenty times; the header twice; by each of two.
            accesses: vec![
                access(0, 0, 2_000),
                access(0, 1, 110),
                access(0, 2, 50),
                access(1, 2, 50),
            ],
            ..Workflow::default()
        };
        let found = rereads(&workflow);
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.file.0, one.readers, one.again_bytes))
            .collect();
        assert_eq!(found, [(0, 1, 1_900), (2, 2, 50)]);
    }
}
