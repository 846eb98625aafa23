//! Tasks whose fork event has not come.

use std::collections::{HashMap, HashSet};

use super::super::ptrace::Report;

/// Knowledge about tasks whose fork was not reported.
#[derive(Default)]
pub(super) struct PendingForks {
    /// Tasks that reported before the fork event, with their last report: a task that has not run cannot have
    /// done anything but die since its first stop.
    pub(super) early: HashMap<u32, Report>,
    /// Live processes of which a thread may have been cut off.
    pub(super) cut_off: HashSet<u32>,
    /// Children of processes that were cut off, and are gone or about to be.
    pub(super) orphans: HashMap<u32, Maker>,
}

/// The maker of a task: a thread of a process.
#[derive(Clone, Copy)]
pub(super) struct Maker {
    pub(super) tid: u32,
    pub(super) pid: u32,
}
