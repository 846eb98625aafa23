//! Result of a run, and the processes that outlive it.

use flowtrace_schema::Summary;

use super::super::mounts::Mounts;
use super::super::serving::Served;
use crate::proc::lifetimes::End;

/// Result of a run.
#[derive(Debug)]
pub struct RunReport {
    /// End of the command.
    pub end: End,
    /// Summary of the trace; `None` without recording.
    pub trace: Option<Summary>,
    /// Mounts that detached processes still use.
    pub background: Option<Background>,
}

/// The mounts of a run that is over, for the processes that live on in them.
#[derive(Debug)]
pub struct Background {
    pub(super) mounts: Mounts,
    pub(super) served: Served,
}

impl Background {
    /// Serves the mounts until no process can reach them any more.
    pub fn serve(mut self) {
        self.mounts.unmount_when_unused();
        self.served.join();
    }
}
