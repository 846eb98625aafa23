//! The verdicts by each compared quantity: work, the rounds of processes that take turns, delays.

use super::lead::{LEAST_LEAD, Lead};
use super::{Basis, Evidence, HIDDEN, Verdict, bootstrap, parts};
use crate::balance::{GATE, Gate, Range};
use crate::run::Node;
use crate::schedule::Schedule;
use crate::slowdown::turns::Turns;
use crate::slowdown::{self, Slowdown};
use crate::wording;

/// Factor of the work of rounds over that of quiet ones from which noise hides a load.
const NOISY: f64 = 1.5;
/// Largest certain factor between processes that are still balanced.
const MOST_OF_EQUALS: f64 = 1.03;

/// Reason why no process is named although the shown rounds of one are longer.
const RARELY_SHOWN: &str = "the processes take turns, and the one with the longest shown rounds hides its work in too many others, which may be shorter";

/// The verdict by the work in a plain exchange.
pub(super) fn of_work(
    evidence: &mut Evidence,
    schedule: &Schedule,
    found: &Slowdown,
    parts: &[Vec<f64>],
) {
    evidence.basis = Basis::Work;
    evidence.ratio = found.ratio;
    evidence.hidden = found.hidden.len();
    let mut shown = parts.to_vec();
    for part in &mut shown {
        for &node in found.hidden.iter().chain(&found.apart) {
            part[usize::from(node)] = 0.0;
        }
    }
    let sums = parts::sums(&shown, schedule.nodes);
    let busiest = (0..sums.len()).reduce(|a, b| if sums[b] > sums[a] { b } else { a });
    let ahead: Vec<usize> = match found.loaded.as_slice() {
        [] => busiest.into_iter().collect(),
        loaded => loaded.iter().map(|&node| usize::from(node)).collect(),
    };
    evidence.first = ahead.first().map_or(0, |&node| node as Node);
    let lead = Lead::of(&shown, &ahead);
    let range = lead.range;
    evidence.ratio_range = Some(range);
    evidence.confidence = Some(lead.confidence);
    if !found.loaded.is_empty() && lead.is_clear() {
        evidence.slowdown_s = Some(found.slowdown_s);
        evidence.verdict = Verdict::Loaded(found.loaded.clone());
        return;
    }
    let noise = found.noise;
    evidence.verdict = if noise > NOISY {
        Verdict::Unsure(format!(
            "rounds take {} times the work of quiet ones, as on shared CPUs, which hides a load",
            wording::number(noise)
        ))
    } else if !found.loaded.is_empty() || range.high >= slowdown::shown_at(noise) {
        Verdict::Unsure(open(range))
    } else if let Some((several, ratio)) = several_apart(&sums) {
        Verdict::Unsure(format!(
            "{several} processes work {} times as much as the next, which may be loads or their usual work",
            wording::number(ratio)
        ))
    } else if evidence.hidden > 0 {
        Verdict::Unsure(HIDDEN.into())
    } else if found.most_ratio() >= GATE {
        Verdict::Unsure(format!(
            "the messages for which the sends waited are not known well enough: the factor to the next process may be {}, which would be a load",
            wording::number(found.most_ratio())
        ))
    } else if range.low > MOST_OF_EQUALS {
        Verdict::Unsure(format!(
            "one process certainly works more than the next ({} to {} times as much), by less than a load, but rounds include time in the library and waits for a CPU",
            wording::number(range.low),
            wording::number(range.high)
        ))
    } else {
        Verdict::Balanced
    };
}

/// The number of processes, at most half of them, that work more than all others by the factor of a
/// load, and that factor. The first of them does not stand out from the second.
fn several_apart(sums: &[f64]) -> Option<(usize, f64)> {
    let mut sums: Vec<f64> = sums.iter().copied().filter(|sum| *sum > 0.0).collect();
    sums.sort_by(|a, b| b.total_cmp(a));
    let ratio = |k: usize| (k, sums[k - 1] / sums[k]);
    (2..=sums.len() / 2)
        .map(ratio)
        .find(|(_, ratio)| *ratio >= GATE)
}

/// The verdict by the rounds of processes that take turns.
pub(super) fn of_turns(evidence: &mut Evidence, found: &Turns) {
    evidence.basis = Basis::Rounds;
    (evidence.first, evidence.ratio) = (found.first, found.ratio);
    evidence.ratio_range = Some(found.ratio_range);
    evidence.hidden = found.hidden;
    let range = found.ratio_range;
    evidence.verdict = if !found.loaded.is_empty() && range.low >= LEAST_LEAD {
        evidence.first = found.loaded[0];
        evidence.slowdown_s = Some(found.slowdown_s);
        Verdict::Loaded(found.loaded.clone())
    } else if found.hidden == 0 && range.high < GATE {
        Verdict::Balanced
    } else if found.hidden > 0 && range.high < GATE {
        Verdict::Unsure(HIDDEN.into())
    } else if range.low >= GATE {
        Verdict::Unsure(RARELY_SHOWN.into())
    } else {
        Verdict::Unsure(open(range))
    };
}

/// The verdict by the delays.
pub(super) fn of_delays(evidence: &mut Evidence, parts: &[Vec<f64>], gate: &Gate) {
    let lead = Lead::of(parts, &[gate.loaded]);
    let range = lead.range;
    evidence.ratio_range = Some(range);
    evidence.confidence = Some(lead.confidence);
    if gate.is_open && lead.is_clear() {
        let (from, to) = evidence.span_ns;
        let cost = bootstrap::slowdown(parts, gate.loaded);
        evidence.slowdown_s = Some(cost.clamped((to - from) as f64 / 1e9));
        evidence.verdict = Verdict::Loaded(vec![gate.loaded as Node]);
    } else if range.high >= GATE {
        evidence.verdict = Verdict::Unsure(open(range));
    }
}

fn open(range: Range) -> String {
    format!(
        "the factor to the next process lies between {} and {}, which fits both a load and none",
        wording::number(range.low),
        wording::number(range.high)
    )
}
