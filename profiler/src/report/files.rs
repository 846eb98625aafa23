//! The files, and the processes that used each.

use std::cmp::Reverse;
use std::collections::HashMap;

use flowtrace_render::units::plain;
use serde::Serialize;

use super::processes;
use crate::analysis::data::{FileUse, file_uses};
use crate::model::{Access, FileIndex, Relation, Workflow};
use crate::paths::{base, directory};

/// The files shown one by one: all that were used, or those through which most bytes moved.
#[derive(Debug)]
pub(super) struct Kept {
    uses: Vec<FileUse>,
    places: HashMap<FileIndex, u32>,
    used: usize,
}

impl Kept {
    pub(super) fn of(workflow: &Workflow, most: usize) -> Kept {
        let mut uses = file_uses(workflow);
        let used = uses.len();
        if used > most {
            uses.sort_by_key(|u| (Reverse(u.moved()), Reverse(u.calls), u.file));
            uses.truncate(most);
            uses.sort_by_key(|u| u.file);
        }
        let places = uses.iter().map(|u| u.file).zip(0..).collect();
        Kept { uses, places, used }
    }

    /// The place of a file among those kept.
    pub(super) fn place(&self, file: FileIndex) -> Option<u32> {
        self.places.get(&file).copied()
    }
}

/// Files in columns.
#[derive(Debug, Default, Serialize)]
pub(super) struct Files {
    file_id: Vec<i64>,
    /// Place of the directory in `directories`.
    directory: Vec<usize>,
    name: Vec<String>,
    size_bytes: Vec<Option<i64>>,
    read_bytes: Vec<i64>,
    write_bytes: Vec<i64>,
    calls: Vec<i64>,
    /// Sum of 1: read, 2: written, 4: created, 8: only its opens were recorded.
    flags: Vec<u8>,
    directories: Vec<String>,
    access: Accesses,
    /// Number of files used that are not shown.
    left_out: usize,
}

/// Accesses of processes to files, in columns; places of processes and files.
#[derive(Debug, Default, Serialize)]
struct Accesses {
    process: Vec<u32>,
    file: Vec<u32>,
    read_bytes: Vec<i64>,
    write_bytes: Vec<i64>,
    calls: Vec<i64>,
    /// 0: neither read nor changed, 1: read, 2: written, 3: created.
    relation: Vec<u8>,
    left_out: usize,
}

pub(super) fn of(
    workflow: &Workflow,
    processes: &processes::Kept,
    kept: &Kept,
    most_accesses: usize,
) -> Files {
    let mut files = Files {
        left_out: kept.used - kept.uses.len(),
        ..Files::default()
    };
    let mut directories: HashMap<&str, usize> = HashMap::new();
    for used in &kept.uses {
        let file = workflow.file(used.file);
        let path = file.path.as_deref().unwrap_or("?");
        let (above, name) = match directory(path) {
            "" => ("", path),
            above => (above, base(path)),
        };
        let next = directories.len();
        let place = *directories.entry(above).or_insert_with(|| {
            files.directories.push(plain(above));
            next
        });
        files.file_id.push(file.file_id);
        files.directory.push(place);
        files.name.push(plain(name));
        files.size_bytes.push(file.size_bytes);
        files.read_bytes.push(used.read_bytes);
        files.write_bytes.push(used.write_bytes);
        files.calls.push(used.calls);
        files.flags.push(
            u8::from(used.is_read)
                | u8::from(used.is_written) << 1
                | u8::from(used.is_created) << 2
                | u8::from(file.only_opens) << 3,
        );
    }
    files.access = accesses(workflow, processes, kept, most_accesses);
    files
}

fn accesses(
    workflow: &Workflow,
    processes: &processes::Kept,
    kept: &Kept,
    most: usize,
) -> Accesses {
    let mut shown: Vec<(u32, u32, &Access)> = workflow
        .accesses
        .iter()
        .filter_map(|a| Some((processes.place(a.process)?, kept.place(a.file)?, a)))
        .collect();
    let all = shown.len();
    if all > most {
        let moved = |a: &Access| a.read_bytes.saturating_add(a.write_bytes);
        shown.sort_by_key(|&(p, f, a)| (Reverse(moved(a)), p, f));
        shown.truncate(most);
        shown.sort_by_key(|&(p, f, _)| (p, f));
    }
    let mut accesses = Accesses {
        left_out: all - shown.len(),
        ..Accesses::default()
    };
    for (process, file, access) in shown {
        accesses.process.push(process);
        accesses.file.push(file);
        accesses.read_bytes.push(access.read_bytes);
        accesses.write_bytes.push(access.write_bytes);
        accesses.calls.push(access.calls);
        accesses.relation.push(match access.relation() {
            Relation::None => 0,
            Relation::Read => 1,
            Relation::Write => 2,
            Relation::Create => 3,
        });
    }
    accesses
}
