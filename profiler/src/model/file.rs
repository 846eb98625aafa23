//! Files of a workflow, and the mounts through which they were used.

use std::sync::Arc;
/// What the calls on traced views waited for, where flowtrace answers them and not the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// What the way of a call to flowtrace and back takes in this run, at its quickest, ns; `None`: too few calls followed
    /// each other to tell.
    pub way_ns: Option<i64>,
    /// By process; empty where the kernel answers.
    pub of: Vec<ViewUse>,
}

/// The calls of a process on traced views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewUse {
    /// How many.
    pub calls: i64,
    /// Time in answers that were too quick for a device to have had a part in them, ns.
    pub quick_ns: i64,
    /// Time in the other answers, ns.
    pub slow_ns: i64,
    /// Of that in calls that end when the device has the data (`fsync(2)`), ns.
    pub sync_ns: i64,
}

/// A file: an inode.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// Id in the database.
    pub file_id: i64,
    /// Last name it had; `None`: never known by name.
    pub path: Option<Arc<str>>,
    /// Whether it holds data: neither directory, device nor absent.
    pub is_regular: bool,
    /// Size when last seen, bytes.
    pub size_bytes: Option<i64>,
    /// Whether only its being opened was seen.
    pub only_opens: bool,
    /// Whether that is so and it belongs to the machine, not to the workflow, which has not made it: what was
    /// done to it is left out.
    pub is_system: bool,
}
