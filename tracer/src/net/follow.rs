//! Tells the capture of a run where the processes of the workflow are.

use std::sync::Arc;

use super::live::Namespaces;
use crate::proc::observer::{Observer, Tracee};
use crate::proc::snapshot::ProcessSnapshot;

/// Looks at each process that begins, while it is held, so that its first packet is captured.
pub(crate) struct Follow(pub(crate) Arc<Namespaces>);

impl Observer for Follow {
    fn forked(&mut self, _: Tracee, child: Tracee, _: &dyn ProcessSnapshot, _: u64) {
        self.0.look(child.pid);
    }

    fn executed(
        &mut self,
        tracee: Tracee,
        _: Option<flowtrace_schema::Upid>,
        _: &dyn ProcessSnapshot,
        _: u64,
    ) {
        self.0.look(tracee.pid);
    }

    fn ended(&mut self, tracee: Tracee, _: u64) {
        if tracee.tid == tracee.pid {
            self.0.ended(tracee.pid);
        }
    }
}
