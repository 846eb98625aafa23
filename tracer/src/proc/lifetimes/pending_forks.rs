//! Tasks whose fork event has not come.

use std::collections::{HashMap, HashSet};

use super::super::ptrace::Report;

/// What is known of tasks that nobody has told of.
#[derive(Default)]
pub(super) struct PendingForks {
    /// Tasks that reported before the fork event, with what they reported last: one that has not
    /// run cannot have done anything but die since its first stop.
    pub(super) early: HashMap<u32, Report>,
    /// Live processes a thread of which may have been cut off.
    pub(super) cut_off: HashSet<u32>,
    /// Children of processes that were cut off, and are gone or about to be.
    pub(super) orphans: HashMap<u32, Maker>,
}

/// Who made a task: a thread of a process.
#[derive(Clone, Copy)]
pub(super) struct Maker {
    pub(super) tid: u32,
    pub(super) pid: u32,
}
