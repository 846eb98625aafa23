//! Differences between two runs of one program.

use super::rounds::{delay_factor, rounds};
use crate::schedule::Schedule;

/// Difference between two runs of one program on a quiet machine, as a share of their length.
pub(crate) const RUN_TO_RUN: f64 = 0.02;
/// Largest addition to that share if rounds show other work.
const MOST_DELAYED: f64 = 0.04;

/// The share of its length by which a run would differ from one without a load, apart from the load.
/// Processes that share CPUs or a network delay each other in other ways when one of them is faster.
/// Some of that shows in rounds that take longer than the middle ones; rounds of unsteady work do not
/// show it.
pub(crate) fn between_runs(schedule: &Schedule) -> f64 {
    let beyond = delay_factor(&rounds(schedule)) - 1.0;
    RUN_TO_RUN + (2.0 * beyond).min(MOST_DELAYED)
}
