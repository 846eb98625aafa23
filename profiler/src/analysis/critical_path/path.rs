//! A critical path with its steps and the contribution of each rule.

use crate::analysis::critical_path::{Evidence, Network, Step};
use crate::model::{ProcessId, Programs};
/// The chain of work and waits that decided the length of a run.
#[derive(Clone, Debug)]
pub struct CriticalPath {
    /// The process whose end is the end of the run; `None`: there was no process.
    pub last: Option<ProcessId>,
    /// Begin of the path, ns: as a rule the begin of the run's first process.
    pub start_ns: i64,
    /// End of the path, ns.
    pub end_ns: i64,
    /// The path in the order of time; each step begins where the one before ends.
    pub steps: Vec<Step>,
    /// Number of different paths of the same length, a lower bound; at most [`MOST_EQUAL`](super::MOST_EQUAL).
    pub equal_paths: u64,
    /// Processes that are only on the other paths, in order.
    pub on_equal_paths: Vec<ProcessId>,
    /// For every process, the time by which it could end later without delaying the end, ns; `None`: no
    /// process waited for it.
    pub slack_ns: Vec<Option<i64>>,
    /// Time that every process worked, without waits for children and channels, ns.
    pub own_ns: Vec<i64>,
    /// Evidence for the waits.
    pub evidence: Evidence,
    pub(super) programs: Programs,
    pub(super) network: Network,
}
