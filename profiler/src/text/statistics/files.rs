//! Tables of files.

use std::collections::BTreeMap;

use flowtrace_render::units;
use flowtrace_render::units::Unit;

use super::shown_path;
use crate::analysis::data::{Unread, file_uses, never_read};
use crate::analysis::statistics::calls::CallStatistics;
use crate::analysis::statistics::findings::{self, CouldBePipe, Reread};
use crate::analysis::statistics::patterns::{Order, Pattern};
use crate::export::sheet::{Cell, Sheet};
use crate::model::{FileIndex, Programs, Relation, Workflow};

fn path(workflow: &Workflow, file: FileIndex) -> Cell {
    let path = workflow.file(file).path.as_deref();
    path.map(|path| shown_path(workflow, path)).into()
}

/// Files written and never read, as `summary` counts them.
pub fn unread(workflow: &Workflow) -> Sheet {
    let files = never_read(workflow, &file_uses(workflow));
    let bytes: i64 = files.iter().map(|f: &Unread| f.bytes).sum();
    let mut writers: BTreeMap<FileIndex, &str> = BTreeMap::new();
    let programs = Programs::of(workflow);
    let accesses = workflow.accesses_by_program(&programs);
    for (program, access) in accesses.filter(|(_, access)| access.relation() >= Relation::Write) {
        let rule = &workflow.program(&programs.stints[program]).rule;
        writers.insert(access.file, rule);
    }
    let mut sheet = Sheet::new(
        format!(
            "{} written and never read: {}",
            units::counted(files.len() as i64, "file", "files"),
            units::bytes(bytes)
        ),
        &[
            ("write_bytes", "written", Unit::Bytes),
            ("rule", "by", Unit::Text),
            ("path", "file", Unit::Path),
        ],
    );
    for used in &files {
        sheet.push(vec![
            used.bytes.into(),
            writers.get(&used.file).copied().into(),
            path(workflow, used.file),
        ]);
    }
    if !files.is_empty() {
        sheet
            .notes
            .push("final results are among them: what no process of the run read".into());
    }
    sheet
}

/// Files that several processes of a rule read, or one process again and again.
pub fn rereads(workflow: &Workflow) -> Sheet {
    let found = findings::rereads(workflow);
    let again: i64 = found.iter().map(|r: &Reread| r.again_bytes).sum();
    let mut sheet = Sheet::new(
        format!(
            "{} read again: {} more than once each would be",
            units::counted(found.len() as i64, "file", "files"),
            units::bytes(again)
        ),
        &[
            ("again_bytes", "again", Unit::Bytes),
            ("read_bytes", "read", Unit::Bytes),
            ("readers", "readers", Unit::Count),
            ("processes", "of", Unit::Count),
            ("rule", "rule", Unit::Text),
            ("path", "file", Unit::Path),
        ],
    );
    for reread in &found {
        sheet.push(vec![
            reread.again_bytes.into(),
            reread.read_bytes.into(),
            reread.readers.into(),
            reread.processes.into(),
            reread.rule.as_ref().into(),
            path(workflow, reread.file),
        ]);
    }
    sheet
}

/// Files that a pipe could replace.
pub fn could_be_pipes(workflow: &Workflow, calls: &CallStatistics) -> Sheet {
    let found = findings::could_be_pipes(workflow, &calls.patterns);
    let bytes: i64 = found.iter().map(|p: &CouldBePipe| p.bytes).sum();
    let mut sheet = Sheet::new(
        format!(
            "{} a pipe could replace: {}",
            units::counted(found.len() as i64, "file that", "files that"),
            units::bytes(bytes)
        ),
        &[
            ("bytes", "bytes", Unit::Bytes),
            ("writer", "written by", Unit::Text),
            ("reader", "read by", Unit::Text),
            ("after_ns", "after", Unit::Ns),
            ("path", "file", Unit::Path),
        ],
    );
    for pipe in &found {
        sheet.push(vec![
            pipe.bytes.into(),
            workflow.rule(pipe.writer).as_ref().into(),
            workflow.rule(pipe.reader).as_ref().into(),
            pipe.waited_ns.into(),
            path(workflow, pipe.file),
        ]);
    }
    if !found.is_empty() {
        sheet.notes.push(
            "one process wrote each from begin to end, one other read it so, and nobody else used it; \
             whether it is needed after the run is not known"
                .into(),
        );
    }
    sheet
}

/// Shares of accesses in sequence, by rule, process or file.
pub fn sequentiality(workflow: &Workflow, calls: &CallStatistics, by: &str) -> Sheet {
    let mut found: BTreeMap<(String, i64), Pattern> = BTreeMap::new();
    for &(process, file, pattern) in &calls.patterns {
        let key = match by {
            "file" => {
                let path = workflow.file(file).path.as_deref().unwrap_or("?");
                (
                    shown_path(workflow, path).to_owned(),
                    workflow.file(file).file_id,
                )
            }
            "process" => {
                let image = workflow.last_image(process);
                let command = image.command.as_deref().unwrap_or(&image.rule);
                (command.to_owned(), workflow.images(process)[0].upid)
            }
            _ => (workflow.rule(process).to_string(), 0),
        };
        found.entry(key).or_default().add(pattern);
    }
    let mut rows: Vec<((String, i64), Pattern)> = found.into_iter().collect();
    let requests = |p: &Pattern| p.read.requests() + p.write.requests();
    rows.sort_by(|a, b| (requests(&b.1), &a.0).cmp(&(requests(&a.1), &b.0)));
    let mut sheet = Sheet::new(
        format!("order of requests by {by}"),
        &[
            ("reads", "reads", Unit::Count),
            ("reads_sequential", "sequential", Unit::Share),
            ("reads_regular", "regular", Unit::Share),
            ("reads_random", "random", Unit::Share),
            ("writes", "writes", Unit::Count),
            ("writes_sequential", "sequential", Unit::Share),
            ("writes_regular", "regular", Unit::Share),
            ("writes_random", "random", Unit::Share),
            ("id", if by == "rule" { "" } else { "id" }, Unit::Count),
            (
                "name",
                "of",
                if by == "rule" { Unit::Text } else { Unit::Path },
            ),
        ],
    );
    for ((name, id), pattern) in rows {
        let mut row: Vec<Cell> = Vec::new();
        for order in [pattern.read, pattern.write] {
            row.push(order.requests().into());
            row.extend(shares(order));
        }
        row.push(if by == "rule" { Cell::Null } else { id.into() });
        row.push(name.into());
        sheet.push(row);
    }
    sheet.notes.push(
        "of the requests after the first of a process on a file: begins where the one before ended; at a \
         constant distance; neither"
            .into(),
    );
    sheet
}

fn shares(order: Order) -> [Cell; 3] {
    let after = order.sequential + order.regular + order.random;
    [order.sequential, order.regular, order.random].map(|n| match after {
        0 => Cell::Null,
        after => Cell::Real(n as f64 / after as f64),
    })
}
