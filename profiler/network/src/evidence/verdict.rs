//! A verdict on the balance of a program, with its evidence.

use crate::balance::Range;
use crate::run::Node;

/// Iterations from which others are drawn of them; fewer are judged by Student's distribution.
pub const LEAST_ITERATIONS: usize = 8;

/// Messages from which a run without iterations is cut into parts, and a verdict is given.
pub(super) const LEAST_MESSAGES: usize = 64;

/// Why nothing is said where processes take turns.
pub(super) const HIDDEN: &str = "the processes take turns: whoever is first in the order answers for the time in which the others work as well, and what they work does not show";

/// Quantity that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The work of each process: a plain exchange, where packets show it.
    Work,
    /// The work of the processes whose work shows: of those that take turns, and answer late.
    Rounds,
    /// The time accounting of each process, where packets alone decide nothing.
    TimeAccounting,
    /// Ball-in-the-court delays.
    Delays,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// These processes hold the others up, the most loaded first.
    Loaded(Vec<Node>),
    /// None does: a load from [`GATE`](super::balance::GATE) upwards would have shown.
    Balanced,
    /// The evidence is too small or of the wrong kind; why.
    Unsure(String),
}

/// A verdict with its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The answer.
    pub verdict: Verdict,
    /// Quantity that was compared.
    pub basis: Basis,
    /// The process that stands out most, loaded or not.
    pub first: Node,
    /// Its value over that of the next (of the least loaded over the busiest other, where several are).
    pub ratio: f64,
    /// Within what that lies, 95 %; `None` with too few iterations.
    pub ratio_range: Option<Range>,
    /// Confidence that it stands out at all, 0 to 1; `None` where that is not known.
    pub confidence: Option<f64>,
    /// Cost of the load, s, 95 %; `None` without a load.
    pub slowdown_s: Option<Range>,
    /// Cost of the load by a replay of the messages, s; where delays were compared.
    pub replayed_s: Option<Range>,
    /// Iterations, or equal parts of the run where none were found.
    pub parts: usize,
    /// True if the parts are iterations: then start-up and the end are left out.
    pub are_iterations: bool,
    /// The interval compared, ns.
    pub span_ns: (i64, i64),
    /// Delays of each process in it, s.
    pub delays_s: Vec<f64>,
    /// Processes whose work does not show, for they answer at once.
    pub hidden: usize,
}

impl Evidence {
    /// True if iterations are so few that no others can be drawn of them.
    pub fn are_few(&self) -> bool {
        self.are_iterations && self.parts < LEAST_ITERATIONS
    }

    /// Cost of the load, s: the range that both the difference of the delays or the work and a replay of the messages allow;
    /// `None`: nothing, or not known.
    pub fn cost_s(&self) -> Option<Range> {
        let cost = self.slowdown_s?;
        Some(self.replayed_s.map_or(cost, |replayed| Range {
            low: cost.low.min(replayed.low),
            high: cost.high.max(replayed.high),
        }))
    }
}
