//! Processes that read data in a file which others had written there after the process's own first change: a
//! script that makes a file, lets a child fill it, and reads the child's data.

use std::collections::{BTreeMap, HashMap, HashSet};

use flowtrace_schema::open_flags::{O_ACCMODE, O_RDONLY, O_TRUNC};
use flowtrace_schema::{CallRow, Class, Op};

use super::tally::widen;
use crate::model::{Access, Descent, FileIndex, ProcessId, Relation, Return, Workflow};

/// No process yet.
const NOBODY: (ProcessId, i64) = (ProcessId(u32::MAX), i64::MIN);

/// The process that changed a file last, and the one before it, with the time of the last change of each, ns.
#[derive(Clone, Copy)]
struct Changers {
    last: (ProcessId, i64),
    other: (ProcessId, i64),
}

impl Changers {
    fn add(&mut self, process: ProcessId, at_ns: i64, is_emptied: bool) {
        if is_emptied {
            self.other = NOBODY;
        } else if self.last.0 != process {
            self.other = self.last;
        }
        self.last = (process, at_ns);
    }

    /// Time of the last change, by another process than this one, of the present contents.
    fn others_ns(&self, process: ProcessId) -> i64 {
        let by_other = if self.last.0 == process {
            self.other
        } else {
            self.last
        };
        by_other.1
    }
}

/// Collects the returns as the calls are read.
pub(super) struct Returns {
    changers: Vec<Changers>,
    found: BTreeMap<(ProcessId, FileIndex), Return>,
}

impl Returns {
    pub(super) fn of(files: usize) -> Returns {
        let nobody = Changers {
            last: NOBODY,
            other: NOBODY,
        };
        Returns {
            changers: vec![nobody; files],
            found: BTreeMap::new(),
        }
    }

    /// Adds a successful call; `access` has the earlier calls of its process on the file.
    pub(super) fn add(&mut self, access: &Access, call: &CallRow) {
        let Some(op) = call.op else { return };
        let flags = call.flags.unwrap_or(-1);
        let is_emptied = match op {
            Op::Create | Op::Mknod => true,
            Op::Truncate => call.length.unwrap_or(0) == 0,
            _ => op.class() == Class::Open && flags >= 0 && flags & O_TRUNC != 0,
        };
        if is_emptied || op.class() == Class::Write {
            return self.change(access, call, is_emptied);
        }
        let is_read = op.class() == Class::Read;
        // A mapped file is read without calls.
        if is_read || op.class() == Class::Open && flags & O_ACCMODE == O_RDONLY {
            self.read(access, call, is_read);
        }
    }

    fn change(&mut self, access: &Access, call: &CallRow, is_emptied: bool) {
        let end = call.start_ns.saturating_add(call.duration_ns);
        self.changers[access.file.0 as usize].add(access.process, end, is_emptied);
        if self.found.is_empty() {
            return;
        }
        if let Some(found) = self.found.get_mut(&(access.process, access.file)) {
            widen(&mut found.write_ns, call.start_ns, end);
            found.truncates += i64::from(is_emptied);
            if call.op.is_some_and(|op| op.class() == Class::Write) {
                found.write_time_ns = found.write_time_ns.saturating_add(call.duration_ns);
            }
            if matches!(call.op, Some(Op::Write | Op::CopyTo)) {
                found.writes += 1;
                found.write_bytes = found.write_bytes.saturating_add(call.result);
            }
        }
    }

    fn read(&mut self, access: &Access, call: &CallRow, is_by_call: bool) {
        if access.write_ns.is_none() && access.truncates == 0 {
            return;
        }
        let others_ns = self.changers[access.file.0 as usize].others_ns(access.process);
        if others_ns <= access.write_start() {
            return;
        }
        let end = call.start_ns.saturating_add(call.duration_ns);
        let key = (access.process, access.file);
        let found = self.found.entry(key).or_insert_with(|| Return {
            process: access.process,
            file: access.file,
            wrote_until_ns: access
                .write_ns
                .map_or(access.write_start(), |(_, last)| last),
            read_ns: (call.start_ns, end),
            ..Return::default()
        });
        found.read_ns.1 = found.read_ns.1.max(end);
        if is_by_call {
            found.reads += 1;
            found.read_bytes = found.read_bytes.saturating_add(call.result);
            found.read_time_ns = found.read_time_ns.saturating_add(call.duration_ns);
        }
    }

    pub(super) fn found(self) -> Vec<Return> {
        self.found.into_values().collect()
    }
}

/// Facts about one file that decide its returns.
#[derive(Default)]
struct OfFile<'a> {
    /// Processes that changed it.
    writers: HashSet<ProcessId>,
    /// Processes that read by a descriptor that another process has opened: their places in the order of
    /// descent, sorted.
    heirs: Vec<u32>,
    /// Accesses of processes that changed it and read it.
    readers: Vec<&'a Access>,
    /// Times at which data may have been stored through mappings, in order, ns.
    stored_ns: Vec<i64>,
}

/// Removes the returns whose reads redirections gave to another process, and adds processes that read data
/// which may have been stored through a mapping.
pub(super) fn settle(workflow: &mut Workflow) {
    let mut files: HashMap<FileIndex, OfFile<'_>> = HashMap::new();
    for found in &workflow.returns {
        files.entry(found.file).or_default();
    }
    for access in workflow.accesses.iter().filter(|a| a.is_update_unseen()) {
        let file = files.entry(access.file).or_default();
        file.stored_ns.push(access.write_start());
    }
    if files.is_empty() {
        return;
    }
    let descent = Descent::of(workflow);
    for access in &workflow.accesses {
        let Some(file) = files.get_mut(&access.file) else {
            continue;
        };
        if access.relation() >= Relation::Write {
            file.writers.insert(access.process);
        }
        if access.reads > 0 && access.read_opens == 0 {
            file.heirs.push(descent.place(access.process));
        }
        if access.write_ns.is_some() && access.read_ns.is_some() {
            file.readers.push(access);
        }
    }
    for file in files.values_mut() {
        file.heirs.sort_unstable();
    }
    let mut returns = std::mem::take(&mut workflow.returns);
    returns.retain(|found| {
        let file = &files[&found.file];
        // A shell that opens `< file` for the program that it starts reads nothing.
        let below = descent.below(found.process);
        let next = file.heirs.partition_point(|&heir| heir < below.start);
        let has_heir = || {
            file.heirs
                .get(next)
                .is_some_and(|heir| below.contains(heir))
        };
        file.writers.contains(&found.process) && (found.reads > 0 || !has_heir())
    });
    let known: HashSet<_> = returns
        .iter()
        .map(|found| (found.process, found.file))
        .collect();
    for (index, file) in &mut files {
        file.stored_ns.sort_unstable();
        for reader in &file.readers {
            if !known.contains(&(reader.process, *index)) {
                returns.extend(after_a_store(reader, &file.stored_ns));
            }
        }
    }
    returns.sort_unstable_by_key(|found| (found.process, found.file));
    workflow.returns = returns;
}

/// The reads of a process after the first of these times that follows its own last change.
fn after_a_store(access: &Access, stored_ns: &[i64]) -> Option<Return> {
    let ((_, changed), (first, last)) = (access.write_ns?, access.read_ns?);
    let next = stored_ns.partition_point(|&at| at <= changed);
    let at = stored_ns.get(next).copied().filter(|&at| at < last)?;
    Some(Return {
        process: access.process,
        file: access.file,
        wrote_until_ns: changed,
        read_ns: (first.max(at), last),
        reads: access.reads,
        read_bytes: access.read_bytes,
        read_time_ns: access.read_time_ns,
        ..Return::default()
    })
}

#[cfg(test)]
mod tests;
