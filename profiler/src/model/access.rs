//! What processes did to files.

use super::{FileIndex, ProcessId};

/// What one process did to one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The process.
    pub process: ProcessId,
    /// The file.
    pub file: FileIndex,
    /// Times it created it.
    pub creates: i64,
    /// Read calls.
    pub reads: i64,
    /// Bytes read.
    pub read_bytes: i64,
    /// Write calls.
    pub writes: i64,
    /// Time in read calls, ns.
    pub read_time_ns: i64,
    /// Bytes written.
    pub write_bytes: i64,
    /// Time in calls that changed data, ns.
    pub write_time_ns: i64,
    /// Calls that changed data: writes, truncations, allocations.
    pub changes: i64,
    /// Truncations to nothing.
    pub truncates: i64,
    /// Calls that made, moved or removed a name of it, or changed its mode, owner, times or other attributes.
    pub alterations: i64,
    /// Opens that allowed reading.
    pub read_opens: i64,
    /// Of them those for reading alone.
    pub plain_read_opens: i64,
    /// Opens that allowed writing.
    pub write_opens: i64,
    /// Opens after which it may have changed the file without a call that is seen: through a mapping, which
    /// needs an open for both, or where nothing but opens is known.
    pub blind_opens: i64,
    /// Whether the last open is one of them so far.
    pub is_blind: bool,
    /// Calls of any kind.
    pub calls: i64,
    /// First and last moment of reading by calls, ns.
    pub read_ns: Option<(i64, i64)>,
    /// First and last moment of changing or creating by calls, ns.
    pub write_ns: Option<(i64, i64)>,
    /// First open, ns.
    pub first_open_ns: Option<i64>,
    /// First and last call of any kind, ns.
    pub span_ns: (i64, i64),
}

/// What one process did to one file from when it read there what others had written after its own first
/// change. [`Access`] has all of it, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Return {
    /// The process.
    pub process: ProcessId,
    /// The file.
    pub file: FileIndex,
    /// When it had changed the file last before, ns.
    pub wrote_until_ns: i64,
    /// First and last moment of reading what others wrote, ns.
    pub read_ns: (i64, i64),
    /// Read calls; 0: opened for reading only.
    pub reads: i64,
    /// Bytes read.
    pub read_bytes: i64,
    /// Time in read calls, ns.
    pub read_time_ns: i64,
    /// First and last moment of changing the file afterwards, ns.
    pub write_ns: Option<(i64, i64)>,
    /// Write calls afterwards.
    pub writes: i64,
    /// Bytes written afterwards.
    pub write_bytes: i64,
    /// Time in calls that changed data afterwards, ns.
    pub write_time_ns: i64,
    /// Truncations to nothing afterwards.
    pub truncates: i64,
}

/// What decides the direction of the edge between a process and a file (ParaTrac, equations
/// 1 to 5): the strongest that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Relation {
    /// Only looked at.
    None,
    /// Read, or opened for reading.
    Read,
    /// Changed, or perhaps changed unseen.
    Write,
    /// Created.
    Create,
}

impl Access {
    /// The strongest relation: create > write > read.
    pub fn relation(&self) -> Relation {
        if self.creates > 0 {
            Relation::Create
        } else if self.changes > 0 || self.truncates > 0 || self.blind_opens > 0 {
            Relation::Write
        } else if self.is_reader() {
            Relation::Read
        } else {
            Relation::None
        }
    }

    /// Whether nothing but its open tells that it may have changed the file, and read it.
    pub fn is_update_unseen(&self) -> bool {
        let has_changed = self.creates > 0 || self.changes > 0 || self.truncates > 0;
        !has_changed && self.blind_opens > 0 && self.is_reader()
    }

    /// When it began to change the file; an open for writing stands in where no change was seen.
    pub fn write_start(&self) -> i64 {
        match self.write_ns {
            Some((first, _)) => first,
            None => self.first_open_ns.unwrap_or(self.span_ns.0),
        }
    }

    /// Whether it read, or may have read through a mapping.
    pub fn is_reader(&self) -> bool {
        self.reads > 0 || self.read_opens > 0
    }
}

/// What a program that was not the last of its process did to a file. [`Access`] has all of it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Place of the image of the program in [`Workflow::images`](super::Workflow::images).
    pub image: usize,
    /// What it did.
    pub access: Access,
}
