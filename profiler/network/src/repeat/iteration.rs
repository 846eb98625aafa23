//! Iterations of a program, and repetitions at its pairs.

use crate::quantile;
use crate::run::Node;

/// Least number of repetitions.
pub(crate) const LEAST_COUNT: usize = 3;

/// Largest relative error of the mean length of a repetition that is regular in time.
const REGULAR: f64 = 0.5;

/// Factor of the usual length from which the first iteration is start-up.
pub(crate) const START: f64 = 4.0;

/// The repetition of one ordered pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Repetition {
    /// Sender.
    pub src: Node,
    /// Receiver.
    pub dst: Node,
    /// Bytes of one iteration.
    pub bytes: u64,
    /// Number of messages of the pair.
    pub messages: usize,
    /// Share of the messages that come again at this distance, 0 to 1. Every size has the same weight.
    pub score: f64,
    /// Instants at which the same message was sent, ns; one more than the number of iterations.
    pub times_ns: Vec<i64>,
    /// Bound of the probability that as many messages come again at one distance by chance, in any
    /// order of the messages; `None` if a single message is the iteration.
    pub p_value: Option<f64>,
    /// The loop within an iteration.
    pub inner: Option<Inner>,
}

/// A loop within each iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Inner {
    /// Mean length of one of its rounds, s.
    pub period_s: f64,
    /// 95 % range of the mean length, s.
    pub range_s: (f64, f64),
    /// Number of rounds in the whole run.
    pub count: usize,
    /// Share of the messages that come again in the next round.
    pub score: f64,
    /// As for [`Repetition::p_value`].
    pub p_value: f64,
}

impl Inner {
    /// Computed from the times between the same message in two rounds, s, and the number of these per
    /// round.
    pub(crate) fn new(
        between_s: &[f64],
        in_a_round: f64,
        score: f64,
        p_value: f64,
    ) -> Option<Inner> {
        let period_s = quantile::mean(between_s)?;
        let count = (between_s.len() as f64 / in_a_round).round() as usize;
        let squares: f64 = between_s.iter().map(|s| (s - period_s).powi(2)).sum();
        let half = 1.96 * (squares / between_s.len() as f64 / count.max(1) as f64).sqrt();
        (count >= LEAST_COUNT).then_some(Inner {
            period_s,
            range_s: ((period_s - half).max(0.0), period_s + half),
            count,
            score,
            p_value,
        })
    }
}

/// Iterations of the whole program.
#[derive(Clone, Debug, PartialEq)]
pub struct Iterations {
    /// Mean length of an iteration, s: the median over the pairs with the most iterations.
    pub period_s: f64,
    /// Range of the mean length, s: the means of those pairs, widened to 95 % of the means that the
    /// same number of equally varying iterations would have.
    pub range_s: (f64, f64),
    /// Number of iterations.
    pub count: usize,
    /// Lengths of the single iterations at the pair nearest to the median, s.
    pub lengths_s: Vec<f64>,
    /// All pairs that repeat.
    pub pairs: Vec<Repetition>,
    /// As for [`Repetition::p_value`], of that pair.
    pub p_value: Option<f64>,
    /// The loop within an iteration, at that pair.
    pub inner: Option<Inner>,
    /// True if the order of the sends repeats; else the sizes do.
    pub is_by_order: bool,
}

impl Iterations {
    /// True if the single lengths agree so well that their mean is a period. A repetition at irregular
    /// times has none.
    pub fn is_regular(&self) -> bool {
        // An order that repeats is the program's, even if a part of it was delayed.
        self.is_by_order || (self.range_s.1 - self.range_s.0) / 2.0 <= REGULAR * self.period_s
    }

    /// Instants at which an iteration began at the pair nearest to the median, ns.
    pub fn begins_ns(&self) -> &[i64] {
        let off = |pair: &Repetition| (mean_length(&pair.times_ns) - self.period_s).abs();
        let whole = self.pairs.iter().filter(|pair| {
            let count = pair.times_ns.len().saturating_sub(1);
            count * 10 >= self.count * 9
        });
        let nearest = whole.min_by(|a, b| off(a).total_cmp(&off(b)));
        nearest.map_or(&[], |pair| &pair.times_ns)
    }

    /// Widens the range of the mean length by the spread of the single lengths.
    pub(super) fn with_spread(mut self) -> Iterations {
        let n = self.lengths_s.len() as f64;
        let mean = quantile::mean(&self.lengths_s).unwrap_or(0.0);
        let squares: f64 = self.lengths_s.iter().map(|l| (l - mean).powi(2)).sum();
        if n > 1.0 {
            let half = 1.96 * (squares / (n - 1.0) / n).sqrt();
            self.range_s.0 = self.range_s.0.min(self.period_s - half).max(0.0);
            self.range_s.1 = self.range_s.1.max(self.period_s + half);
        }
        self
    }
}

pub(crate) fn lengths(times_ns: &[i64]) -> Vec<f64> {
    times_ns
        .windows(2)
        .map(|w| (w[1] - w[0]) as f64 / 1e9)
        .collect()
}

/// The times without the first iteration if processes wait in it for others that started later. All
/// others are certainly iterations, however long or short. Without them the mean and the number would
/// be wrong.
pub(crate) fn without_start(times_ns: &[i64]) -> &[i64] {
    let all = lengths(times_ns);
    let median = quantile::median(all.iter().copied()).unwrap_or(0.0);
    let is_start = all.len() > LEAST_COUNT && all[0] > START * median;
    &times_ns[usize::from(is_start)..]
}

pub(crate) fn mean_length(times_ns: &[i64]) -> f64 {
    match (times_ns.first(), times_ns.last()) {
        (Some(first), Some(last)) if times_ns.len() > 1 => {
            (last - first) as f64 / 1e9 / (times_ns.len() - 1) as f64
        }
        _ => 0.0,
    }
}
