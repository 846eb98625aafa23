//! What happened to recorded processes, for others to learn of it: noted while the table is locked, told when it is not, by the
//! watching thread, which alone may read /proc.

use std::sync::Arc;

use flowtrace_schema::{Upid, Usage};

use super::table::Table;
use crate::proc::observer::Tracee;
use crate::proc::tracepoints::{Called, Told};

/// A change, in the words of [`crate::proc::observer::Observer`]. Times are on the recording's clock, ns.
pub(in super::super) struct Observation {
    pub(in super::super) at: u64,
    pub(in super::super) tracee: Tracee,
    pub(in super::super) what: What,
}

/// Kinds of it.
pub(in super::super) enum What {
    /// This one forked it, and had this then.
    Forked(Tracee, Option<Box<Told>>),
    ThreadBegan,
    Executed(Box<Executed>),
    ImageOver {
        usage: Box<Usage>,
        exec: Option<Arc<Told>>,
        by_exec: bool,
    },
    Exiting(Box<Told>),
    Ended,
    Stopped,
    Called(Box<Called>),
}

/// A program began.
pub(in super::super) struct Executed {
    pub(in super::super) prev: Option<Upid>,
    /// Its environment, of which nothing may be kept but what is asked for.
    pub(in super::super) environ: Option<Vec<u8>>,
    pub(in super::super) moment: Option<Arc<Told>>,
}

impl Table {
    /// From now on changes are noted.
    pub(super) fn be_observed(&mut self) {
        self.observations = Some(Vec::new());
    }

    /// What was noted since the last time.
    pub(super) fn take_observations(&mut self) -> Vec<Observation> {
        let noted = self.observations.as_mut();
        noted.map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn note(&mut self, tracee: Tracee, at: u64, what: What) {
        if let Some(noted) = &mut self.observations {
            noted.push(Observation { at, tracee, what });
        }
    }

    /// Thread `tid`, if its process is recorded.
    pub(super) fn tracee(&self, tid: u32) -> Option<Tracee> {
        let pid = self.process_of(tid)?;
        let upid = self.processes.get(&pid)?.row.as_ref()?.upid;
        Some(Tracee { tid, pid, upid })
    }
}
