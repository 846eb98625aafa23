//! Reports to [`Rings`] which processes make io_uring rings, and which inherit them.

use std::sync::Arc;

use flowtrace_schema::Recorder;

use super::observer::{Observer, Tracee};
use super::snapshot::ProcessSnapshot;
use super::topology::{Call, CallKind};
use crate::rings::Rings;

/// Reports rings as they are made, where processes are stopped meanwhile.
pub(crate) struct Feed {
    pub(crate) rings: Arc<Rings>,
    pub(crate) recorder: Recorder,
}

impl Observer for Feed {
    fn forked(&mut self, parent: Tracee, child: Tracee, _: &dyn ProcessSnapshot, _: u64) {
        self.rings.inherit(parent.upid, child.upid);
    }

    fn called(&mut self, tracee: Tracee, call: Call, _: u64) -> bool {
        if call.kind == CallKind::Ring {
            self.rings.made(tracee.upid, &self.recorder);
        }
        false
    }
}
