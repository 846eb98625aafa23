//! Differences between two runs of one program.

use super::rounds::{held_up, rounds};
use crate::schedule::Schedule;

/// Two runs of one program differ by this share of their length on a quiet machine, and by this much more at most
/// for what their rounds show of other work.
pub(crate) const RUN_TO_RUN: f64 = 0.02;
const MOST_HELD_UP: f64 = 0.04;

/// By which share of its length a run would differ from one without a load beside that. Processes that share
/// CPUs, or a network, hold each other up differently once one of them is faster; some of that shows in rounds
/// that take longer than the middle ones, as those of unsteady work do not.
pub(crate) fn between_runs(schedule: &Schedule) -> f64 {
    let beyond = held_up(&rounds(schedule)) - 1.0;
    RUN_TO_RUN + (2.0 * beyond).min(MOST_HELD_UP)
}
