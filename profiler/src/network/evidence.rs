//! How sure it is that a process holds the others up.
//!
//! The delays of a whole run say which process answers for most of the time, start-up included, and
//! nothing of how they vary. Here the part of the run that iterates is cut at its iterations; how
//! the verdict would come out had other iterations been seen (a bootstrap over them) is its
//! uncertainty. A verdict is given only where that leaves one, and where delays can be compared at
//! all: between processes that do alike and do not take turns.

use std::collections::BTreeMap;

use super::balance::{self, GATE, Gate, Range};
use super::ball;
use super::messages::{self, Message};
use super::quantile;
use super::repeat::{self, Iterations};
use super::replay::{Change, Reading, replay};
use super::run::{Node, Run, Unknown};
use super::schedule::{self, Schedule};
use super::slowdown;
use super::turns::{self, Turns};

mod books;
mod bootstrap;

/// Iterations from which their spread is known.
pub const LEAST_ITERATIONS: usize = 8;
/// Parts that a run without iterations is cut into, and messages from which that is done.
const PARTS: usize = 16;
const LEAST_MESSAGES: usize = 64;
/// Parts at most; iterations are put together to as many.
const MOST_PARTS: usize = 500;
/// The process with the longest delays leads by this factor at least, in 97.5 % of the resamples.
const LEAST_LEAD: f64 = 1.1;
/// Processes that do alike send numbers of messages within this factor.
const ALIKE: usize = 2;
/// Rounds that take so many times the work of quiet ones hide a load.
const NOISY: f64 = 1.5;
/// Processes that work alike may differ by this factor for certain, and are balanced still.
const MOST_OF_EQUALS: f64 = 1.03;
/// Messages that a schedule is made of at most.
const MOST_MESSAGES: usize = 200_000;

/// Why nothing is said where processes take turns.
const HIDDEN: &str = "the processes take turns: whoever is first in the order answers for the time in which the others work as well, and what they work does not show";

/// Why equal delays alone do not make a balance.
const EQUAL_DELAYS: &str = "what the sends waited for is not known, and where messages come while the others still work, delays are alike though the work is not";

/// Why the longest delays alone are no load: where a message comes while its receiver still works, it cuts the
/// delay of the slower one, and the faster one has the longer delays.
const CONTRADICTED: &str = "the process with the longest delays works no longer than the others when the messages are replayed, so that the two contradict each other";

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The work of each process: a plain exchange, where packets show it.
    Work,
    /// The work of the processes whose work shows: of those that take turns, and answer late.
    Rounds,
    /// What the process tracer saw them do, where packets alone do not tell.
    Books,
    /// Ball-in-the-court delays.
    Delays,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// These processes hold the others up, the most loaded first.
    Loaded(Vec<Node>),
    /// None does: a load from [`GATE`] upwards would have shown.
    Balanced,
    /// The evidence is too small or of the wrong kind; why.
    Unsure(String),
}

/// What a verdict rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The answer.
    pub verdict: Verdict,
    /// What is compared.
    pub basis: Basis,
    /// The process that stands out most, loaded or not.
    pub first: Node,
    /// Its value over that of the next (of the least loaded over the busiest other, where several are).
    pub ratio: f64,
    /// Within what that lies, 95 %; `None` with too few iterations.
    pub ratio_range: Option<Range>,
    /// What the load cost, s, 95 %; nothing without a load.
    pub slowdown_s: Option<Range>,
    /// What a replay of the messages says that the load cost, s; where delays were compared.
    pub replayed_s: Option<Range>,
    /// Iterations, or equal parts of the run where none were found.
    pub parts: usize,
    /// Whether they are iterations: then start-up and the end are left out.
    pub are_iterations: bool,
    /// The interval compared, ns.
    pub span_ns: (i64, i64),
    /// Delays of each process in it, s.
    pub delays_s: Vec<f64>,
    /// Processes whose work does not show, for they answer at once.
    pub hidden: usize,
}

/// Weighs what a run says of its balance.
///
/// # Errors
/// When fewer than two processes sent packets.
pub fn weigh(run: &Run) -> Result<Evidence, Unknown> {
    match run.memo() {
        Some(memo) => memo.evidence.get_or_init(|| weighed(run)).clone(),
        None => weighed(run),
    }
}

fn weighed(run: &Run) -> Result<Evidence, Unknown> {
    let found = messages::messages(run)?;
    let (mut evidence, schedule) = of_packets(run, &found)?;
    if let (Some(schedule), Verdict::Unsure(_)) = (schedule, &evidence.verdict) {
        books::decide(run, &schedule, &mut evidence);
    }
    Ok(evidence)
}

/// What the packets alone say, and how the messages hang together where that was worked out.
fn of_packets(run: &Run, found: &[Message]) -> Result<(Evidence, Option<Schedule>), Unknown> {
    let iterations = repeat::of_run(run)?;
    let (cuts, are_iterations) = cuts(found, iterations.as_deref(), run);
    let parts = delays(run, &cuts);
    let delays_s = sums(&parts, run.nodes().len());
    let none = || Unknown::new("fewer than two processes sent packets in this interval");
    let gate = balance::gate(&delays_s).ok_or_else(none)?;
    if delays_s.iter().filter(|delay| **delay > 0.0).count() < 2 {
        return Err(none());
    }
    let mut evidence = Evidence {
        verdict: Verdict::Balanced,
        basis: Basis::Delays,
        first: gate.loaded as Node,
        ratio: gate.ratio,
        ratio_range: None,
        slowdown_s: None,
        replayed_s: None,
        parts: parts.len(),
        are_iterations,
        span_ns: (cuts[0], cuts[cuts.len() - 1]),
        delays_s,
        hidden: 0,
    };
    if let Some(reason) = too_few(&evidence, found.len()) {
        evidence.verdict = Verdict::Unsure(reason);
        return Ok((evidence, None));
    }
    let part = match iterations {
        // A cut in the middle of a round would put the counts of both directions out of step.
        Some(iterations) if iterations.is_by_order => &found[..found.len().min(MOST_MESSAGES)],
        _ => within(found, evidence.span_ns),
    };
    let unequal = unequal(part, run.nodes().len());
    if let Some(reason) = &unequal
        && run.all().any(|node| run.books(node).is_none())
        && schedule::shows_nothing(part)
    {
        // Of many processes the schedule takes longer than all the rest.
        of_delays(&mut evidence, &parts, &gate);
        evidence.verdict = Verdict::Unsure(reason.clone());
        evidence.slowdown_s = None;
        return Ok((evidence, None));
    }
    let schedule = schedule::schedule(part, run.nodes().len());
    if let Some(found) = slowdown::slowdown(&schedule) {
        of_work(&mut evidence, &schedule, &found, &work(&schedule, &cuts));
        return Ok((evidence, Some(schedule)));
    }
    let is_plain = schedule.takes_turns && schedule.are_alike && schedule.certainty.loose == 0;
    if let Some(found) = is_plain.then(|| turns::weigh(&schedule)).flatten() {
        of_turns(&mut evidence, &found);
        return Ok((evidence, Some(schedule)));
    }
    of_delays(&mut evidence, &parts, &gate);
    if let Some(reason) = unequal.or(schedule.takes_turns.then(|| HIDDEN.into())) {
        evidence.verdict = Verdict::Unsure(reason);
        evidence.slowdown_s = None;
    } else if matches!(evidence.verdict, Verdict::Loaded(_)) {
        evidence.replayed_s = replayed(&schedule, evidence.first);
        let (from, to) = evidence.span_ns;
        let least = slowdown::RUN_TO_RUN * (to - from) as f64 / 1e9;
        if evidence.replayed_s.is_none_or(|gain| gain.low < least) {
            evidence.verdict = Verdict::Unsure(CONTRADICTED.into());
            (evidence.slowdown_s, evidence.replayed_s) = (None, None);
        }
    } else if evidence.verdict == Verdict::Balanced {
        evidence.verdict = Verdict::Unsure(EQUAL_DELAYS.into());
    }
    Ok((evidence, Some(schedule)))
}

/// Moments that cut the run: the begins of its iterations, or equal parts where none were found.
fn cuts(found: &[Message], iterations: Option<&Iterations>, run: &Run) -> (Vec<i64>, bool) {
    if let Some(iterations) = iterations {
        let begins = iterations.begins_ns();
        let step = begins.len().div_ceil(MOST_PARTS).max(1);
        let cuts: Vec<i64> = begins.iter().copied().step_by(step).collect();
        if cuts.len() >= 2 {
            return (cuts, true);
        }
    }
    let (from, to) = match (found.first(), found.last()) {
        (Some(first), Some(last)) if last.sent_ns.0 > first.sent_ns.0 => {
            (first.sent_ns.0, last.sent_ns.0)
        }
        _ => run.span_ns(),
    };
    let parts = if found.len() < LEAST_MESSAGES {
        1
    } else {
        PARTS
    };
    let at = |k: usize| from + (to - from).max(1) / parts as i64 * k as i64;
    let mut cuts: Vec<i64> = (0..parts).map(at).collect();
    cuts.push(to.max(from + 1));
    (cuts, false)
}

/// The delays of each process in each part, s: a gap belongs to the part in which it ends.
fn delays(run: &Run, cuts: &[i64]) -> Vec<Vec<f64>> {
    let mut parts = vec![vec![0.0; run.nodes().len()]; cuts.len() - 1];
    for me in run.all() {
        let mut before: Option<i64> = None;
        let mut at = 0;
        for record in ball::records(run, me) {
            while cuts.get(at).is_some_and(|cut| *cut <= record.t_ns) {
                at += 1;
            }
            if let (Some(before), true) = (before, record.kind.is_send())
                && let Some(part) = at.checked_sub(1).and_then(|at| parts.get_mut(at))
            {
                part[usize::from(me)] += (record.t_ns - before.max(cuts[0])) as f64 / 1e9;
            }
            before = Some(record.t_ns);
        }
    }
    parts
}

/// The sums over the parts, by process.
fn sums(parts: &[Vec<f64>], nodes: usize) -> Vec<f64> {
    let sum = |node: usize| parts.iter().map(|part| part[node]).sum();
    (0..nodes).map(sum).collect()
}

fn within(found: &[Message], (from, to): (i64, i64)) -> &[Message] {
    let first = found.partition_point(|message| message.sent_ns.0 < from);
    let last = found.partition_point(|message| message.sent_ns.0 <= to);
    let part = &found[first..last.max(first)];
    let middle = part.len().saturating_sub(MOST_MESSAGES) / 2;
    &part[middle..part.len().min(middle + MOST_MESSAGES)]
}

fn too_few(evidence: &Evidence, messages: usize) -> Option<String> {
    if evidence.are_iterations && evidence.parts < LEAST_ITERATIONS {
        return Some(format!(
            "{} iterations are too few to tell a load from chance ({LEAST_ITERATIONS} are needed)",
            evidence.parts
        ));
    }
    if messages < LEAST_MESSAGES {
        let count = if messages == 1 {
            "1 message is".into()
        } else {
            format!("{messages} messages are")
        };
        return Some(format!("{count} too few to tell a load from chance"));
    }
    None
}

/// Why the delays of the processes cannot be compared, if they do not do alike.
fn unequal(part: &[Message], nodes: usize) -> Option<String> {
    let mut sent = vec![0usize; nodes];
    for message in part {
        sent[usize::from(message.src)] += 1;
    }
    let (least, most) = (*sent.iter().min()?, *sent.iter().max()?);
    // The end of a chain has one partner, all others have two: what each waits for is not alike.
    let is_unequal = least * ALIKE < most || schedule::may_be_in_step(least * ALIKE, most);
    is_unequal.then(|| {
        format!(
            "the processes do not do alike (one sent {least} messages, another {most}), so that their delays do not compare"
        )
    })
}

/// The work of each process in each part, s: the middle of what it may have been.
fn work(schedule: &Schedule, cuts: &[i64]) -> Vec<Vec<f64>> {
    let mut parts = vec![vec![0.0; schedule.nodes]; cuts.len() - 1];
    for step in &schedule.steps {
        let at = cuts.partition_point(|cut| *cut <= step.t_ns);
        if let Some(part) = at.checked_sub(1).and_then(|at| parts.get_mut(at)) {
            let (least, most) = schedule.work_ns(step);
            part[usize::from(step.process)] += (least + most) as f64 / 2e9;
        }
    }
    parts
}

/// A verdict by the work of a plain exchange.
fn of_work(
    evidence: &mut Evidence,
    schedule: &Schedule,
    found: &slowdown::Slowdown,
    parts: &[Vec<f64>],
) {
    evidence.basis = Basis::Work;
    evidence.ratio = found.ratio;
    evidence.hidden = found.hidden.len();
    let mut parts = parts.to_vec();
    for part in &mut parts {
        for &node in &found.hidden {
            part[usize::from(node)] = 0.0;
        }
    }
    let parts = &parts;
    let sums = sums(parts, schedule.nodes);
    let busiest = (0..sums.len()).reduce(|a, b| if sums[b] > sums[a] { b } else { a });
    let ahead: Vec<usize> = match found.loaded.as_slice() {
        [] => busiest.into_iter().collect(),
        loaded => loaded.iter().map(|&node| usize::from(node)).collect(),
    };
    evidence.first = ahead.first().map_or(0, |&node| node as Node);
    let range = bootstrap::ratio(parts, &ahead);
    evidence.ratio_range = Some(range);
    if !found.loaded.is_empty() && range.low >= LEAST_LEAD {
        evidence.slowdown_s = Some(found.slowdown_s);
        evidence.verdict = Verdict::Loaded(found.loaded.clone());
        return;
    }
    let noise = found.noise;
    evidence.verdict = if noise > NOISY {
        Verdict::Unsure(format!(
            "rounds take {} times the work of quiet ones, as where processors are shared, and a load does not show beside that",
            super::page::number(noise)
        ))
    } else if !found.loaded.is_empty() || range.high >= slowdown::shown_at(noise) {
        Verdict::Unsure(open(range))
    } else if let Some((several, ratio)) = several_apart(&sums) {
        Verdict::Unsure(format!(
            "{several} processes work {} times as much as the next, which may be loads or what they are meant to do",
            super::page::number(ratio)
        ))
    } else if evidence.hidden > 0 {
        Verdict::Unsure(HIDDEN.into())
    } else if found.most_ratio() >= GATE {
        Verdict::Unsure(format!(
            "what the sends waited for is not known well enough: the factor to the next may be {}, which would be a load",
            super::page::number(found.most_ratio())
        ))
    } else if range.low > MOST_OF_EQUALS {
        Verdict::Unsure(format!(
            "one works more than the next for certain ({} to {} times as much), by less than a load, but rounds hold time in the library and without a processor beside the work",
            super::page::number(range.low),
            super::page::number(range.high)
        ))
    } else {
        Verdict::Balanced
    };
}

/// How many processes, at most half of them, work as much more than all others as a load would, and how
/// much more: the first of them does not stand out from the second.
fn several_apart(sums: &[f64]) -> Option<(usize, f64)> {
    let mut sums: Vec<f64> = sums.iter().copied().filter(|sum| *sum > 0.0).collect();
    sums.sort_by(|a, b| b.total_cmp(a));
    let ratio = |k: usize| (k, sums[k - 1] / sums[k]);
    (2..=sums.len() / 2)
        .map(ratio)
        .find(|(_, ratio)| *ratio >= GATE)
}

/// A verdict by the rounds of processes that take turns.
fn of_turns(evidence: &mut Evidence, found: &Turns) {
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
    } else {
        Verdict::Unsure(open(range))
    };
}

/// A verdict by the delays.
fn of_delays(evidence: &mut Evidence, parts: &[Vec<f64>], gate: &Gate) {
    let range = bootstrap::ratio(parts, &[gate.loaded]);
    evidence.ratio_range = Some(range);
    if gate.is_open && range.low >= LEAST_LEAD {
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
        "the factor to the next lies between {} and {}, where both a load and none fit",
        super::page::number(range.low),
        super::page::number(range.high)
    )
}

/// What the run would gain, replayed with the work of one process cut to the median of the others', s.
fn replayed(schedule: &Schedule, loaded: Node) -> Option<Range> {
    let work = schedule.work_s();
    let gain = |reading: Reading| {
        let of = |node: usize| match reading {
            Reading::Waiting => work[node].0,
            Reading::Working => work[node].1,
        };
        let others = (0..work.len()).filter(|&node| node != usize::from(loaded));
        let usual = quantile::median(others.map(of))?;
        let own = of(usize::from(loaded));
        let factor = if own > usual { usual / own } else { 1.0 };
        let change = Change {
            work: BTreeMap::from([(loaded, factor)]),
            ..Change::default()
        };
        let before = replay(schedule, &Change::default(), reading)?.seconds;
        Some((before - replay(schedule, &change, reading)?.seconds).max(0.0))
    };
    let (a, b) = (gain(Reading::Waiting)?, gain(Reading::Working)?);
    Some(Range {
        low: a.min(b),
        high: a.max(b),
    })
}

#[cfg(test)]
mod tests;
