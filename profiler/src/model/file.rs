//! Files of a workflow, and the mounts through which they were used.

use std::sync::Arc;
/// Waits of calls on traced mounts, where flowtrace answers them and not the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountCosts {
    /// Shortest time of a call's way to flowtrace and back in this run, ns; `None`: not known, because too
    /// few calls followed each other.
    pub way_ns: Option<i64>,
    /// By process; empty where the kernel answers.
    pub of: Vec<MountUse>,
}

/// The calls of a process on traced mounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountUse {
    /// Number of calls.
    pub calls: i64,
    /// Time in answers that were too quick for a device to have taken part, ns.
    pub quick_ns: i64,
    /// Time in the other answers, ns.
    pub slow_ns: i64,
    /// The part of `slow_ns` in calls that end when the device has the data (`fsync(2)`), ns.
    pub sync_ns: i64,
}

/// A file: an inode.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// Id in the database.
    pub file_id: i64,
    /// Its last name; `None`: it never had a known name.
    pub path: Option<Arc<str>>,
    /// True if it contains data: it is neither directory, device nor absent.
    pub is_regular: bool,
    /// Size when last seen, bytes.
    pub size_bytes: Option<i64>,
    /// True if only its opens were recorded.
    pub only_opens: bool,
    /// True if that is so and the file belongs to the machine, not to the workflow, which has not made it:
    /// accesses to it are left out.
    pub is_system: bool,
    /// Bytes that calls read, each counted once; `None`: not known.
    pub read_once_bytes: Option<i64>,
}
