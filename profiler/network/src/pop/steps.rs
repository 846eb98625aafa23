//! The time of each process, cut at its sends into steps that repeat.

use std::collections::BTreeMap;

use ahash::AHashMap;

use super::bounds::Bound;
use super::library::{self, Signs};
use crate::messages::Message;
use crate::quantile;
use crate::repeat::Iterations;
use crate::run::{Node, Run};

/// Least number of repetitions for which the quickest one represents all.
const LEAST_TIMES: usize = 3;
/// Most time of the library between its last sign and the send, ns.
const MOST_OVERHEAD_NS: i64 = 20_000;
/// Time after an acknowledgement within which a send may have waited for it, ns.
const LET_OUT_NS: i64 = 50_000;

/// First number of the messages before the first iteration.
const START_UP: usize = 1 << 40;

/// The time from one send of a process to the next.
#[derive(Clone, Copy, Debug)]
struct Step {
    from_ns: i64,
    to_ns: i64,
    /// Time after the last sign of the library, ns.
    behind_ns: i64,
    is_let_out: bool,
    /// Place of the step in the iteration.
    kind: usize,
}

/// Sums over the steps of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    process: Node,
    times: usize,
    sum_ns: i64,
    quickest_ns: i64,
    quickest_behind_ns: i64,
}

/// The steps of all processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    by_process: Vec<Vec<Step>>,
    kinds: Vec<Kind>,
    overhead_ns: i64,
    /// Factor of the mean over the quickest of the steps that vary least, for all processes.
    factor: f64,
    /// The factor of each process.
    factors: Vec<f64>,
}

/// Cuts the time of each process; `None` if nothing repeats often enough.
pub(super) fn steps(run: &Run, messages: &[Message], iterations: &Iterations) -> Option<Steps> {
    let nodes = run.nodes().len();
    let mut places: AHashMap<(Node, Node, usize), usize> = AHashMap::new();
    let mut numbers = Numbers::new(iterations);
    let signs: Vec<Signs> = run.all().map(|me| library::signs(run, me)).collect();
    let mut by_process: Vec<Vec<Step>> = vec![Vec::new(); nodes];
    let mut last_ns: Vec<Option<i64>> = vec![None; nodes];
    for message in messages {
        let me = usize::from(message.src);
        let (Some(signs), Some(last)) = (signs.get(me), last_ns.get_mut(me)) else {
            continue;
        };
        let number = numbers.next(message);
        let before = last.replace(message.sent_ns.1);
        let to_ns = message.sent_ns.0;
        let Some(from_ns) = before.map(|before| before.min(to_ns)) else {
            continue;
        };
        let fresh = places.len();
        let key = (message.src, message.dst, number);
        let sign = signs.last_within(from_ns, to_ns).unwrap_or(from_ns);
        by_process[me].push(Step {
            from_ns,
            to_ns,
            behind_ns: to_ns - sign,
            is_let_out: signs.is_let_out(message.dst, to_ns, LET_OUT_NS),
            kind: *places.entry(key).or_insert(fresh),
        });
    }
    let mut kinds = vec![Kind::default(); places.len()];
    for step in by_process.iter().flatten() {
        let kind = &mut kinds[step.kind];
        let (took, behind) = (
            step.to_ns - step.from_ns,
            if step.is_let_out { 0 } else { step.behind_ns },
        );
        let is_first = kind.times == 0;
        let least = |so_far: i64, now: i64| if is_first { now } else { so_far.min(now) };
        kind.quickest_ns = least(kind.quickest_ns, took);
        kind.quickest_behind_ns = least(kind.quickest_behind_ns, behind);
        kind.times += 1;
        kind.sum_ns += took;
    }
    for (&(me, ..), &place) in &places {
        kinds[place].process = me;
    }
    let of = |me: Node| factor(kinds.iter().filter(|kind| kind.process == me));
    let behind = kinds.iter().filter(|kind| kind.times >= LEAST_TIMES);
    let behind = quantile::sorted(behind.map(|kind| kind.quickest_behind_ns as f64));
    let overhead = quantile::quantile(&behind, 0.1)?;
    Some(Steps {
        factor: factor(kinds.iter())?,
        factors: run
            .all()
            .map(|me| of(me).unwrap_or(f64::INFINITY))
            .collect(),
        overhead_ns: (overhead as i64).min(MOST_OVERHEAD_NS),
        by_process,
        kinds,
    })
}

/// Mean time over quickest time, for the steps that vary least and take half of the time. Sends
/// directly after each other vary little, which says nothing about work.
fn factor<'a>(kinds: impl Iterator<Item = &'a Kind>) -> Option<f64> {
    let often = |kind: &&Kind| kind.times >= LEAST_TIMES && kind.quickest_ns > 0;
    let ratio = |kind: &Kind| kind.sum_ns as f64 / (kind.times as f64 * kind.quickest_ns as f64);
    let mut kinds: Vec<&Kind> = kinds.filter(often).collect();
    kinds.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    let whole: i64 = kinds.iter().map(|kind| kind.sum_ns).sum();
    let (mut sum, mut quickest) = (0, 0);
    for kind in kinds {
        sum += kind.sum_ns;
        quickest += kind.quickest_ns * kind.times as i64;
        if sum * 2 >= whole {
            break;
        }
    }
    (quickest > 0).then(|| sum as f64 / quickest as f64)
}

impl Steps {
    /// Bounds of the computing time of each process between two instants.
    pub(super) fn computed(&self, span_ns: (i64, i64)) -> Vec<Bound> {
        let bound = |(steps, own): (&Vec<Step>, &f64)| {
            let least = |step: &Step| (self.least_ns(step) - step.outside_ns(span_ns)).max(0);
            let unseen = unseen_s(steps, span_ns);
            Bound {
                least_s: steps.iter().map(least).sum::<i64>() as f64 / 1e9,
                most_s: self.most_s(steps, self.factor, span_ns) + unseen,
                most_alone_s: self.most_s(steps, own.max(self.factor), span_ns) + unseen,
            }
        };
        let processes = self.by_process.iter().zip(&self.factors);
        processes.map(bound).collect()
    }

    /// Least computing time of a step, ns: that after the last sign of the library in the quickest step
    /// of its kind.
    fn least_ns(&self, step: &Step) -> i64 {
        let kind = &self.kinds[step.kind];
        match kind.times < LEAST_TIMES {
            true => 0,
            false => kind.quickest_behind_ns - self.overhead_ns,
        }
    }

    /// Most time that a process computed in its steps within a span, s. For each kind of step this is
    /// `factor` times the quickest step, or the time after the last sign of the library if that is
    /// longer, but not more than the steps took.
    fn most_s(&self, steps: &[Step], factor: f64, span_ns: (i64, i64)) -> f64 {
        // In a fixed order, since a sum of fractions depends on it.
        let mut sums = vec![(0.0_f64, 0.0_f64); self.kinds.len()];
        for step in steps {
            let within = (step.took_ns() - step.outside_ns(span_ns)) as f64;
            let kind = &self.kinds[step.kind];
            let sum = &mut sums[step.kind];
            sum.0 += within;
            sum.1 += if kind.times < LEAST_TIMES {
                within
            } else if within > 0.0 {
                let usual = kind.quickest_ns as f64 * factor;
                usual.max(step.behind_ns as f64)
            } else {
                0.0
            };
        }
        let most = sums.iter().map(|(took, computed)| took.min(*computed));
        most.sum::<f64>() / 1e9
    }
}

impl Step {
    fn took_ns(&self) -> i64 {
        self.to_ns - self.from_ns
    }

    /// Time of the step outside of a span, ns.
    fn outside_ns(&self, span_ns: (i64, i64)) -> i64 {
        let within = self.to_ns.min(span_ns.1) - self.from_ns.max(span_ns.0);
        self.took_ns() - within.max(0)
    }
}

/// Time before the first send of a process and after its last one, of which nothing is known, s.
fn unseen_s(steps: &[Step], span_ns: (i64, i64)) -> f64 {
    let first = steps.first().map_or(span_ns.1, |step| step.from_ns);
    let last = steps.last().map_or(span_ns.1, |step| step.to_ns);
    let before = (first.min(span_ns.1) - span_ns.0).max(0);
    let behind = (span_ns.1 - last.max(span_ns.0)).max(0);
    (before + behind) as f64 / 1e9
}

/// Number of each message within its iteration, by sender and receiver.
struct Numbers<'a> {
    /// Begins of the iterations of a pair, or of all pairs of a sender.
    begins: BTreeMap<(Node, Option<Node>), &'a [i64]>,
    /// For each pair the number of the next message, and of the next begin.
    next: AHashMap<(Node, Node), (usize, usize)>,
}

impl<'a> Numbers<'a> {
    fn new(iterations: &'a Iterations) -> Self {
        let mut begins: BTreeMap<(Node, Option<Node>), &[i64]> = BTreeMap::new();
        for pair in &iterations.pairs {
            let of_pair = (!iterations.is_by_order).then_some(pair.dst);
            for key in [(pair.src, of_pair), (pair.src, None)] {
                let longest = begins.entry(key).or_default();
                if pair.times_ns.len() > longest.len() {
                    *longest = &pair.times_ns;
                }
            }
        }
        Numbers {
            begins,
            next: AHashMap::new(),
        }
    }

    fn next(&mut self, message: &Message) -> usize {
        let of_pair = self.begins.get(&(message.src, Some(message.dst)));
        let begins = of_pair.or_else(|| self.begins.get(&(message.src, None)));
        let Some(begins) = begins else {
            // Nothing repeats at this process, so that all its sends to a partner are of one kind.
            return 0;
        };
        let (number, at) = self.next.entry((message.src, message.dst)).or_default();
        while begins
            .get(*at)
            .is_some_and(|begin| *begin <= message.sent_ns.0)
        {
            *at += 1;
            *number = 0;
        }
        let this = *number;
        *number += 1;
        // Messages of the start-up are in no iteration.
        if *at == 0 { START_UP + this } else { this }
    }
}
