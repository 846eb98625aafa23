//! A thread of the tree, and the call that it is in.

use std::rc::Rc;

use flowtrace_schema::{Call, Fidelity, Op, Tid, Upid};

use super::super::sample::Sample;
use super::super::table::SharedTable;
use super::counts::Counts;
use super::under_way::UnderWay;

pub(super) struct Thread {
    pub(super) counts: Rc<Counts>,
    pub(super) pid: u32,
    pub(super) upid: Upid,
    pub(super) foreign: bool,
    pub(super) table: SharedTable,
    pub(super) under_way: Option<UnderWay>,
    /// When it began to make a process or a thread last.
    pub(super) forks_at: Option<u64>,
}

impl Thread {
    /// The part of a row that is the same for all.
    pub(super) fn row(&self, sample: &Sample, call: &UnderWay, result: i64) -> Call {
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
            fidelity: Fidelity::Exact,
        }
    }
}
