//! Parallel efficiency in the terms of the POP centre, from packets: intervals, because packets
//! show when a process sent and not when it computed.
//!
//! `parallel = load balance × communication`, `communication = serialisation × transfer`.

use std::collections::BTreeMap;

use super::quantile;
use super::replay::{Change, Reading, replay};
use super::run::Node;
use super::schedule::Schedule;

/// Widest interval whose middle is given as a number.
pub const NARROW: f64 = 0.2;

/// An interval of a share, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Least.
    pub low: f64,
    /// Most.
    pub high: f64,
}

impl Share {
    fn of(a: f64, b: f64) -> Share {
        let clean = |x: f64| {
            if x.is_finite() {
                x.clamp(0.0, 1.0)
            } else {
                1.0
            }
        };
        Share {
            low: clean(a.min(b)),
            high: clean(a.max(b)),
        }
    }

    /// Widened to hold one more reading.
    fn and(self, other: f64) -> Share {
        if !other.is_finite() {
            return self;
        }
        let other = other.clamp(0.0, 1.0);
        Share {
            low: self.low.min(other),
            high: self.high.max(other),
        }
    }

    /// The middle, where the interval is narrow enough to be called a value.
    pub fn point(&self) -> Option<f64> {
        (self.high - self.low <= NARROW).then_some((self.low + self.high) / 2.0)
    }
}

/// The efficiencies of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Pop {
    /// Work of each process, least and most, s.
    pub work_s: Vec<(f64, f64)>,
    /// Length that the efficiencies refer to, s.
    pub run_s: f64,
    /// Length on a network without latency and transfer time, s: the two readings.
    pub ideal_s: (f64, f64),
    /// Mean work over largest work.
    pub load_balance: Share,
    /// Largest work over the run.
    pub communication: Share,
    /// Largest work over the ideal run.
    pub serialisation: Share,
    /// Ideal run over the run.
    pub transfer: Share,
    /// Mean work over the run.
    pub parallel: Share,
}

/// The efficiencies of a schedule over a run of `run_s`; `None` without messages, or where it is no
/// plain exchange.
pub fn efficiencies(schedule: &Schedule, run_s: f64) -> Option<Pop> {
    if !schedule.is_exchange {
        return None;
    }
    let work_s = schedule.work_s();
    let ideal = Change {
        no_latency: true,
        no_transfer: true,
        ..Change::default()
    };
    let seconds = |reading: Reading| {
        let whole = replay(schedule, &Change::default(), reading)?.seconds;
        let best = replay(schedule, &ideal, reading)?.seconds;
        // What the replay does not cover (before the first and after the last message) stays.
        Some((run_s - whole).max(0.0) + best)
    };
    let ideal_s = (seconds(Reading::Waiting)?, seconds(Reading::Working)?);
    let least: Vec<f64> = work_s.iter().map(|work| work.0).collect();
    let most: Vec<f64> = work_s.iter().map(|work| work.1).collect();
    let mean = |values: &[f64]| quantile::mean(values).unwrap_or(0.0);
    let top = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    if run_s <= 0.0 || top(&most) <= 0.0 {
        return None;
    }
    let (a, b) = ((mean(&least), top(&least)), (mean(&most), top(&most)));
    // What iterations have above the quietest of their kind may be work as well as waiting for a
    // processor: packets do not tell, so that both are readings.
    let quiet = quiet_work_s(schedule);
    let c = (mean(&quiet), top(&quiet));
    let ideal = (ideal_s.0 + ideal_s.1) / 2.0;
    Some(Pop {
        run_s,
        ideal_s,
        load_balance: Share::of(a.0 / a.1, b.0 / b.1).and(c.0 / c.1),
        communication: Share::of(a.1 / run_s, b.1 / run_s).and(c.1 / run_s),
        serialisation: Share::of(a.1 / ideal_s.0, b.1 / ideal_s.1).and(c.1 / ideal),
        transfer: Share::of(ideal_s.0 / run_s, ideal_s.1 / run_s),
        parallel: Share::of(a.0 / run_s, b.0 / run_s).and(c.0 / run_s),
        work_s,
    })
}

/// The work that each process has if every step takes as long as the quietest tenth of its kind, s.
fn quiet_work_s(schedule: &Schedule) -> Vec<f64> {
    let mut kinds: BTreeMap<(Node, Node), Vec<i64>> = BTreeMap::new();
    for step in &schedule.steps {
        let to = schedule.messages[step.message].dst;
        let (_, most) = schedule.work_ns(step);
        kinds.entry((step.process, to)).or_default().push(most);
    }
    let mut sums = vec![0.0; schedule.nodes];
    for ((process, _), mut works) in kinds {
        let at = works.len() / 10;
        let quiet = *works.select_nth_unstable(at).1;
        if let Some(sum) = sums.get_mut(usize::from(process)) {
            *sum += quiet as f64 / 1e9 * works.len() as f64;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::messages;
    use crate::network::schedule;
    use crate::network::testing::{Bsp, Style, bsp};

    #[test]
    fn the_truth_lies_in_the_intervals() {
        let mut unknown = 0;
        for (style, work_s) in [
            (Style::AllFirst, vec![0.004; 4]),
            (Style::ByEdge, vec![0.004, 0.004, 0.002, 0.008]),
            (Style::Turns, vec![0.004, 0.004, 0.002, 0.008]),
        ] {
            let made = bsp(&Bsp {
                style,
                work_s,
                latency_s: 0.001,
                ..Bsp::ring(4)
            });
            let found = messages::messages(&made.run).unwrap();
            let schedule = schedule::schedule(&found, 4);
            let pop = efficiencies(&schedule, made.seconds);
            if style == Style::Turns {
                assert_eq!(pop, None, "work hides in waiting");
                continue;
            }
            // Strong imbalance edge by edge can look like taking turns: then nothing is claimed.
            let Some(pop) = pop else {
                unknown += 1;
                continue;
            };
            let mean = made.work_s.iter().sum::<f64>() / 4.0;
            let most = made.work_s.iter().copied().fold(0.0, f64::max);
            for (name, share, truth) in [
                ("parallel", pop.parallel, mean / made.seconds),
                ("load balance", pop.load_balance, mean / most),
                ("communication", pop.communication, most / made.seconds),
            ] {
                assert!(
                    share.low - 0.05 <= truth && truth <= share.high + 0.05,
                    "{style:?}, {name}: {truth} not in {share:?}"
                );
                assert!(share.point().is_some(), "{name}: {share:?}");
            }
            // The product of the parts is the whole, for both readings.
            let product = pop.load_balance.high * pop.communication.high;
            assert!((product - pop.parallel.high).abs() < 0.02);
        }
        assert!(unknown <= 1);
    }

    #[test]
    fn nothing_has_no_efficiency() {
        assert_eq!(efficiencies(&schedule::schedule(&[], 2), 1.0), None);
    }
}
