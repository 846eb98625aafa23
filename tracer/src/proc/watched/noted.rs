//! Changes that the table keeps for observers.

use super::observations::{Observation, What};
use super::table::Table;
use crate::proc::observer::Tracee;

impl Table {
    /// Changes are kept from now on.
    pub(super) fn be_observed(&mut self) {
        self.observations = Some(Vec::new());
    }

    /// Takes the changes since the last call.
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
