//! Bytes that file calls moved, by step and by file.

use std::collections::HashMap;

use flowtrace_schema::open_flags::{O_ACCMODE, O_RDONLY};
use flowtrace_schema::{Class, DataRow, Op};

use super::images::Images;
use super::rates::Rate;
use super::steps::Steps;

/// Most files with sums of their own.
const MOST: usize = 100_000;
/// Most steps that are kept for a file.
const MOST_STEPS: usize = 8;

/// The bytes of all file calls.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) files: HashMap<i64, File>,
    /// Files without sums of their own.
    pub(super) left_out: usize,
    pub(super) read_bytes: i64,
    pub(super) write_bytes: i64,
    pub(super) reading: Rate,
    pub(super) writing: Rate,
}

/// A file.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    pub(super) read_bytes: i64,
    pub(super) write_bytes: i64,
    pub(super) reading: Rate,
    pub(super) writing: Rate,
    /// The last call, ns.
    pub(super) last_ns: i64,
    writers: Vec<usize>,
    readers: Vec<usize>,
}

impl File {
    /// The step that wrote last, else the one that read last.
    pub(super) fn step(&self) -> Option<usize> {
        self.writers.last().or(self.readers.last()).copied()
    }
}

impl Traffic {
    /// Adds a call.
    pub(super) fn add(&mut self, call: &DataRow, images: &Images, steps: &mut Steps) {
        let class = call.op.class();
        let (read, written) = match (class, call.op) {
            (Class::Read, _) => (call.bytes, 0),
            (_, Op::Write | Op::CopyTo) => (0, call.bytes),
            _ => (0, 0),
        };
        let at = call.start_ns;
        add(&mut self.read_bytes, &mut self.reading, at, read);
        add(&mut self.write_bytes, &mut self.writing, at, written);
        let image = images.place(call.upid).map(|place| images.get(place));
        let step = image.map(|image| image.step);
        if let Some(step) = step {
            let row = &mut steps.rows[step];
            add(&mut row.read_bytes, &mut row.reading, at, read);
            add(&mut row.write_bytes, &mut row.writing, at, written);
        }
        if !self.files.contains_key(&call.file_id) && self.files.len() >= MOST {
            self.left_out += 1;
            return;
        }
        let file = self.files.entry(call.file_id).or_default();
        file.last_ns = file.last_ns.max(at);
        add(&mut file.read_bytes, &mut file.reading, at, read);
        add(&mut file.write_bytes, &mut file.writing, at, written);
        let Some(step) = step else { return };
        if class == Class::Write || call.op == Op::Create {
            note(&mut file.writers, step);
        } else if class == Class::Read || is_opened_to_read(call) {
            let is_new = note(&mut file.readers, step);
            if is_new {
                for &writer in file.writers.iter().filter(|&&writer| writer != step) {
                    if let Some(edge) = steps.edge(writer, step) {
                        edge.files += 1;
                    }
                }
            }
            let writer = file.writers.iter().rev().find(|&&writer| writer != step);
            if read > 0
                && let Some(edge) = writer.and_then(|&writer| steps.edge(writer, step))
            {
                edge.bytes = edge.bytes.saturating_add(read);
            }
        }
    }
}

fn is_opened_to_read(call: &DataRow) -> bool {
    let is_to_read = |flags: i64| flags & O_ACCMODE == O_RDONLY;
    call.op == Op::Open && call.flags.is_some_and(is_to_read)
}

fn add(sum: &mut i64, rate: &mut Rate, at: i64, bytes: i64) {
    if bytes > 0 {
        *sum = sum.saturating_add(bytes);
        rate.add(at, bytes);
    }
}

/// Adds a step; true if it is new.
fn note(steps: &mut Vec<usize>, step: usize) -> bool {
    let is_new = !steps.contains(&step) && steps.len() < MOST_STEPS;
    if is_new {
        steps.push(step);
    }
    is_new
}
