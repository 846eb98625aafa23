//! Reading sampled call stacks.

use super::Trace;
use super::rows::{FrameRow, StackRow, StackSampleRow, StackWaitRow};
use crate::Result;

impl Trace {
    /// CPU time for which a sample of a call stack stands, ns; `None`: no stacks were sampled.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn stack_period_ns(&self) -> Result<Option<i64>> {
        self.value("SELECT (SELECT MIN(period_ns) FROM stack_sampling)")
    }

    /// The samples of call stacks in the order of time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn stack_samples(&self) -> Result<Vec<StackSampleRow>> {
        self.rows(
            "SELECT s.at * 10000 AS t_ns, t.upid AS upid, t.tid AS tid, s.stack_id AS stack_id
             FROM stack_sample AS s JOIN stack_thread AS t USING (thread_id) ORDER BY s.at",
        )
    }

    /// The samples of threads that have waited, in the order of time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn stack_waits(&self) -> Result<Vec<StackWaitRow>> {
        self.rows(
            "SELECT s.at * 10000 AS t_ns, t.upid AS upid, t.tid AS tid, s.stack_id AS stack_id,
               s.blocked_us * 1000 AS blocked_ns
             FROM stack_wait AS s JOIN stack_thread AS t USING (thread_id) ORDER BY s.at",
        )
    }

    /// The call stacks, in the order of their ids.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn stacks(&self) -> Result<Vec<StackRow>> {
        self.rows("SELECT stack_id, caller_id, frame_id FROM stack ORDER BY stack_id")
    }

    /// The functions at the places of all call stacks, in the order of places, the innermost first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn frames(&self) -> Result<Vec<FrameRow>> {
        self.rows("SELECT * FROM frames ORDER BY frame_id, depth")
    }
}
