//! A verdict on the balance of a program, with its evidence.

use crate::balance::Range;
use crate::run::Node;

/// Least number of iterations for resampling. Fewer are judged by Student's distribution.
pub const LEAST_ITERATIONS: usize = 8;

/// Least number of messages for a verdict on a run without iterations, which is cut into parts.
pub(super) const LEAST_MESSAGES: usize = 64;

/// Reason why there is no verdict if processes take turns.
pub(super) const HIDDEN: &str = "the processes take turns: the first in the order is charged for the time in which the others work too, and their work does not show";

/// Quantity that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The work of each process, in a plain exchange, where packets show it.
    Work,
    /// The work of the processes whose work shows: those that take turns and answer late.
    Rounds,
    /// The time accounting of each process, if packets alone decide nothing.
    TimeAccounting,
    /// Ball-in-the-court delays.
    Delays,
}

/// The verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// These processes hold the others up, the most loaded first.
    Loaded(Vec<Node>),
    /// No process does. A load from [`GATE`](super::balance::GATE) on would have shown.
    Balanced,
    /// The evidence is too small or of the wrong kind; the reason.
    Unsure(String),
}

/// A verdict with its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The answer.
    pub verdict: Verdict,
    /// The compared quantity.
    pub basis: Basis,
    /// The process that stands out most, loaded or not.
    pub first: Node,
    /// Value of that process over the next one; if several are loaded, of the least loaded over the
    /// largest of the others.
    pub ratio: f64,
    /// 95 % range of the ratio; `None` with too few iterations.
    pub ratio_range: Option<Range>,
    /// Confidence that the process stands out at all, 0 to 1; `None` if not known.
    pub confidence: Option<f64>,
    /// Cost of the load, s, 95 %; `None` without a load.
    pub slowdown_s: Option<Range>,
    /// Cost of the load by a replay of the messages, s, if delays were compared.
    pub replayed_s: Option<Range>,
    /// Number of iterations, or of equal parts of the run if none were found.
    pub parts: usize,
    /// True if the parts are iterations, so that start-up and the end are left out.
    pub are_iterations: bool,
    /// The interval compared, ns.
    pub span_ns: (i64, i64),
    /// Delays of each process in the interval, s.
    pub delays_s: Vec<f64>,
    /// Number of processes whose work does not show, since they answer at once.
    pub hidden: usize,
}

impl Evidence {
    /// True if iterations are too few for resampling.
    pub fn are_few(&self) -> bool {
        self.are_iterations && self.parts < LEAST_ITERATIONS
    }

    /// Cost of the load, s: the range that both the comparison of delays or work and a replay of the
    /// messages allow; `None` if there is no cost or it is not known.
    pub fn cost_s(&self) -> Option<Range> {
        let cost = self.slowdown_s?;
        Some(self.replayed_s.map_or(cost, |replayed| Range {
            low: cost.low.min(replayed.low),
            high: cost.high.max(replayed.high),
        }))
    }
}
