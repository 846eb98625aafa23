//! Accesses of processes to files.

use super::{FileIndex, ProcessId};

/// All calls of one process on one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The process.
    pub process: ProcessId,
    /// The file.
    pub file: FileIndex,
    /// Times that the process created the file.
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
    /// Calls that made, moved or removed a name of the file, or changed its mode, owner, times or other
    /// attributes.
    pub alterations: i64,
    /// Opens that allowed reading.
    pub read_opens: i64,
    /// Opens for reading alone.
    pub plain_read_opens: i64,
    /// Opens that allowed writing.
    pub write_opens: i64,
    /// Those of them after which it could only add to the end: for appending, or before others wrote through
    /// the same open.
    pub append_opens: i64,
    /// Opens after which the process may have changed the file without a recorded call: through a mapping,
    /// which needs an open for both, or where only opens are recorded.
    pub blind_opens: i64,
    /// True while the last open is one of these.
    pub is_blind: bool,
    /// Calls that wait until the device has the data, as fsync(2).
    pub syncs: i64,
    /// Time in these calls, ns.
    pub sync_time_ns: i64,
    /// Calls that ask for attributes, as stat(2).
    pub checks: i64,
    /// Bytes that were mapped into memory, where calls of mmap(2) are recorded; each mapping counts.
    pub mapped_bytes: i64,
    /// Calls of any kind.
    pub calls: i64,
    /// First and last time of reading by calls, ns.
    pub read_ns: Option<(i64, i64)>,
    /// First and last time of changing or creating by calls, ns.
    pub write_ns: Option<(i64, i64)>,
    /// First open, ns.
    pub first_open_ns: Option<i64>,
    /// First and last call of any kind, ns.
    pub span_ns: (i64, i64),
}

/// The calls of one process on one file since it read data there that others had written after its own first
/// change. [`Access`] includes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Return {
    /// The process.
    pub process: ProcessId,
    /// The file.
    pub file: FileIndex,
    /// Time of its last change of the file before that, ns.
    pub wrote_until_ns: i64,
    /// First and last time of reading the data of others, ns.
    pub read_ns: (i64, i64),
    /// Read calls; 0: opened for reading only.
    pub reads: i64,
    /// Bytes read.
    pub read_bytes: i64,
    /// Time in read calls, ns.
    pub read_time_ns: i64,
    /// First and last time of changing the file afterwards, ns.
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

/// Direction of the edge between a process and a file (ParaTrac, equations 1 to 5): the strongest relation
/// that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Relation {
    /// Neither read nor changed: only its attributes, for example.
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

    /// Returns true if only the process's open shows that it may have changed the file, and read it.
    pub fn is_update_unseen(&self) -> bool {
        let has_changed = self.creates > 0 || self.changes > 0 || self.truncates > 0;
        !has_changed && self.blind_opens > 0 && self.is_reader()
    }

    /// Time at which the process began to change the file; that of an open for writing where no change was
    /// recorded.
    pub fn write_start(&self) -> i64 {
        match self.write_ns {
            Some((first, _)) => first,
            None => self.first_open_ns.unwrap_or(self.span_ns.0),
        }
    }

    /// Returns true if the process added to the end of the file and did nothing else with it. A process that
    /// inherited the open file goes on where others ended.
    pub fn only_appends(&self) -> bool {
        self.append_opens == self.write_opens
            && (self.creates == 0 || self.write_opens > 0)
            && self.changes == self.writes
            && self.alterations == 0
            && !self.is_reader()
    }

    /// Returns true if the process read the file, or may have read it through a mapping.
    pub fn is_reader(&self) -> bool {
        self.reads > 0 || self.read_opens > 0
    }
}

/// The calls on a file of a program that was not the last of its process. [`Access`] includes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Place of the image of the program in [`Workflow::images`](super::Workflow::images).
    pub image: usize,
    /// The calls.
    pub access: Access,
}
