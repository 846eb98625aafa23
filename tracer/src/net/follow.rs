//! Reports the network namespaces of the processes of a workflow to the capture of a run.

use std::sync::Arc;

use super::live::Namespaces;
use crate::proc::observer::{Observer, Tracee};
use crate::proc::snapshot::ProcessSnapshot;

/// Reads the namespace of each process that begins, while the process is stopped, so that its first packet is
/// captured.
pub(crate) struct Follow(pub(crate) Arc<Namespaces>);

impl Observer for Follow {
    fn forked(&mut self, _: Tracee, child: Tracee, _: &dyn ProcessSnapshot, _: u64) {
        self.0.check(child.pid);
    }

    fn executed(
        &mut self,
        tracee: Tracee,
        _: Option<flowtrace_schema::Upid>,
        _: &dyn ProcessSnapshot,
        _: u64,
    ) {
        self.0.check(tracee.pid);
    }

    fn ended(&mut self, tracee: Tracee, _: u64) {
        if tracee.tid == tracee.pid {
            self.0.ended(tracee.pid);
        }
    }
}
