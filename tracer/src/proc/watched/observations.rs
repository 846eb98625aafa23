//! Changes of recorded processes for observers: kept while the table is locked, and reported when it is not,
//! by the watching thread, which alone may read /proc.

use std::sync::Arc;

use flowtrace_schema::{Upid, Usage};

use crate::proc::observer::Tracee;
use crate::proc::tracepoints::{BpfSnapshot, Called};

/// A change, in the words of [`crate::proc::observer::Observer`]. Times are on the recording's clock, ns.
pub(in super::super) struct Observation {
    pub(in super::super) at: u64,
    pub(in super::super) tracee: Tracee,
    pub(in super::super) what: What,
}

/// Kind of a change.
pub(in super::super) enum What {
    /// The first process forked this one; its snapshot at the fork.
    Forked(Tracee, Option<Box<BpfSnapshot>>),
    ThreadBegan,
    Executed(Box<Executed>),
    ImageOver {
        usage: Box<Usage>,
        exec: Option<Arc<BpfSnapshot>>,
        by_exec: bool,
    },
    Exiting(Box<BpfSnapshot>),
    Ended,
    Stopped,
    Called(Box<Called>),
}

/// A program began.
pub(in super::super) struct Executed {
    pub(in super::super) prev: Option<Upid>,
    /// Its environment, of which only the selected variables may be kept.
    pub(in super::super) environ: Option<Vec<u8>>,
    pub(in super::super) snapshot: Option<Arc<BpfSnapshot>>,
}
