//! A critical path with its steps and what each rule contributes.

use crate::analysis::critical_path::{Evidence, Network, Step};
use crate::model::{ProcessId, Programs};
/// What decided how long a run took.
#[derive(Clone, Debug)]
pub struct CriticalPath {
    /// The process whose end is the end of the run; `None`: there was no process.
    pub last: Option<ProcessId>,
    /// Begin of the path, ns: that of the run's first process, as a rule.
    pub start_ns: i64,
    /// End of the path, ns.
    pub end_ns: i64,
    /// The path in the order of time; each step begins where the one before ends.
    pub steps: Vec<Step>,
    /// How many different paths take equally long, at least.
    pub equal_paths: u64,
    /// Processes on the other ones only, in order.
    pub on_equal_paths: Vec<ProcessId>,
    /// Of every process how much later it could end without delaying the end, ns; `None`: nobody
    /// waited for it.
    pub slack_ns: Vec<Option<i64>>,
    /// Time that every process worked, waits for children and channels left out, ns.
    pub own_ns: Vec<i64>,
    /// How the waits are known.
    pub evidence: Evidence,
    pub(super) programs: Programs,
    pub(super) network: Network,
}
