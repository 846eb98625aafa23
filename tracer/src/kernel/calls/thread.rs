//! A thread of the tree, and the call that it is in.

use std::rc::Rc;

use flowtrace_schema::{Call, Fidelity, Op, Tid, Upid};

use super::super::sample::{FileUse, Sample};
use super::super::syscalls::Does;
use super::counts::Counts;

/// A call that is to be made once more by itself (`ERESTARTSYS` and its kin of include/linux/errno.h).
pub(super) const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;

pub(super) struct Thread {
    pub(super) pid: u32,
    pub(super) upid: Upid,
    pub(super) counts: Rc<Counts>,
    pub(super) call: Option<InFlight>,
}

/// A call that has not returned.
pub(super) struct InFlight {
    pub(super) number: u32,
    pub(super) does: Does,
    pub(super) at: u64,
    pub(super) file: FileUse,
    /// The file of its second descriptor, which it writes.
    pub(super) other: Option<FileUse>,
    /// Bytes that several messages have.
    pub(super) moved: Option<u64>,
}

impl Thread {
    /// The part of a row that is the same for all. Up to `lossy_until` records may be missing.
    pub(super) fn row(
        &self,
        sample: &Sample,
        call: &InFlight,
        result: i64,
        lossy_until: u64,
    ) -> Call {
        Call {
            start_ns: call.at,
            duration_ns: sample.at.saturating_sub(call.at),
            upid: Some(self.upid),
            tid: (sample.tid != self.pid).then_some(Tid(sample.tid)),
            op: Op::Read,
            file: None,
            offset: None,
            length: None,
            flags: None,
            result,
            fidelity: match call.at <= lossy_until {
                true => Fidelity::Lossy,
                false => Fidelity::Exact,
            },
        }
    }
}
