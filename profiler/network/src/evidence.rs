//! Evidence that a process holds up the others.
//!
//! The delays of a whole run show which process is responsible for most of the time. They include
//! start-up, and do not show their variation. Here the part of the run that iterates is cut at its
//! iterations. The uncertainty of the verdict is its variation when other iterations are drawn (a
//! bootstrap over them). A verdict is given only if it is certain, and only if delays can be compared
//! at all, which holds for processes that do alike and do not take turns.

use crate::wording;
use std::collections::BTreeMap;

use super::balance::{self, Range};
use super::messages::{self, Message};
use super::quantile;
use super::repeat::{self, Iterations};
use super::replay::{Change, Reading, replay};
use super::roles;
use super::run::{Node, Run, Unknown};
use super::schedule::{self, Schedule};
use super::slowdown;
use super::slowdown::turns;

mod accounts;
pub(super) mod bootstrap;
mod judge;
mod lead;
mod parts;
mod verdict;

use parts::MOST_MESSAGES;
pub use verdict::{Basis, Evidence, LEAST_ITERATIONS, Verdict};
use verdict::{HIDDEN, LEAST_MESSAGES};

/// Least number of iterations for any verdict.
const FEWEST_ITERATIONS: usize = 3;

/// Reason why equal delays alone do not prove a balance.
const EQUAL_DELAYS: &str = "the messages for which the sends waited are not known, and if messages come while the others still work, delays are equal although the work is not";

/// Reason why the longest delays alone do not prove a load. A message that comes while its receiver
/// still works cuts the delay of the slower one, so that the faster one has the longer delays.
const CONTRADICTED: &str = "the process with the longest delays works no longer than the others in a replay of the messages, so that delays and replay contradict each other";

/// Weighs the evidence of a run on its balance.
///
/// # Errors
/// When fewer than two processes sent packets.
pub fn weigh(run: &Run) -> Result<Evidence, Unknown> {
    run.once(|| weighed(run))
}

fn weighed(run: &Run) -> Result<Evidence, Unknown> {
    let found = messages::messages(run)?;
    let (mut evidence, schedule) = of_packets(run, &found)?;
    if evidence.are_few() {
        with_few(&mut evidence);
    }
    if !has_peer(run, &found, &evidence) {
        evidence.verdict = Verdict::Unsure(roles::UNALIKE.into());
        (evidence.slowdown_s, evidence.replayed_s) = (None, None);
        return Ok(evidence);
    }
    if let (Some(schedule), Verdict::Unsure(_)) = (schedule, &evidence.verdict) {
        accounts::decide(run, &schedule, &mut evidence);
    }
    Ok(evidence)
}

/// True if another process does as the one with the longest delays. If none does, that process is not compared,
/// and a load among the others says nothing of the run.
fn has_peer(run: &Run, found: &[Message], evidence: &Evidence) -> bool {
    let nodes = run.nodes().len();
    let part = parts::within(found, evidence.span_ns);
    let longest = balance::gate(&evidence.delays_s).map_or(0, |gate| gate.loaded);
    roles::of_work(part, nodes).has_peer(longest, nodes)
}

/// Limits a verdict from few iterations: they may show a load, but not its absence.
fn with_few(evidence: &mut Evidence) {
    if let Verdict::Loaded(_) = evidence.verdict {
        return;
    }
    let range = evidence.ratio_range.map_or(String::new(), |range| {
        format!(
            ": the factor to the next process may be anything from {} to {}",
            wording::number(range.low),
            wording::number(range.high)
        )
    });
    evidence.verdict = Verdict::Unsure(match &evidence.verdict {
        Verdict::Unsure(reason) if evidence.ratio_range.is_none() => reason.clone(),
        _ => format!(
            "{} iterations are too few to distinguish a load from chance{range}",
            evidence.parts
        ),
    });
    evidence.slowdown_s = None;
}

/// The evidence of the packets alone, and the schedule of the messages if it was made.
fn of_packets(run: &Run, found: &[Message]) -> Result<(Evidence, Option<Schedule>), Unknown> {
    let iterations = repeat::of_run(run)?;
    let (cuts, are_iterations) = parts::cuts(found, iterations.as_deref(), run);
    let by_part = parts::delays(run, &cuts);
    let delays_s = parts::sums(&by_part, run.nodes().len());
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
        confidence: None,
        slowdown_s: None,
        replayed_s: None,
        parts: by_part.len(),
        are_iterations,
        span_ns: (cuts[0], cuts[cuts.len() - 1]),
        delays_s,
        hidden: 0,
    };
    if let Some(reason) = too_few(&evidence, found.len()) {
        evidence.verdict = Verdict::Unsure(reason);
        return Ok((evidence, None));
    }
    let part = compared(found, iterations.as_deref(), evidence.span_ns);
    let nodes = run.nodes().len();
    let unequal = unequal(part, nodes);
    if let Some(reason) = &unequal
        && run.all().any(|node| run.accounting(node).is_none())
        && schedule::shows_nothing(part)
    {
        // With many processes, making the schedule takes longer than everything else.
        judge::of_delays(&mut evidence, &by_part, &gate);
        evidence.verdict = Verdict::Unsure(reason.clone());
        evidence.slowdown_s = None;
        return Ok((evidence, None));
    }
    let schedule = schedule::schedule(part, nodes);
    if let Some(found) = slowdown::slowdown(&schedule) {
        judge::of_work(
            &mut evidence,
            &schedule,
            &found,
            &parts::work(&schedule, &cuts),
        );
        return Ok((evidence, Some(schedule)));
    }
    let is_plain = schedule.takes_turns && schedule.are_alike && schedule.certainty.loose == 0;
    if let Some(found) = is_plain.then(|| turns::weigh(&schedule)).flatten() {
        judge::of_turns(&mut evidence, &found);
        return Ok((evidence, Some(schedule)));
    }
    judge::of_delays(&mut evidence, &by_part, &gate);
    if let Some(reason) = unequal.or(schedule.takes_turns.then(|| HIDDEN.into())) {
        evidence.verdict = Verdict::Unsure(reason);
        evidence.slowdown_s = None;
    } else if matches!(evidence.verdict, Verdict::Loaded(_)) {
        evidence.replayed_s = replayed(&schedule, evidence.first);
        let (from, to) = evidence.span_ns;
        let mut least = slowdown::RUN_TO_RUN * (to - from) as f64 / 1e9;
        if evidence.are_few() {
            // The replay must show the same process as loaded.
            let others = run.all().filter(|node| *node != evidence.first);
            let next = others.max_by(|&a, &b| {
                let of = |node: Node| evidence.delays_s[usize::from(node)];
                of(a).total_cmp(&of(b))
            });
            let next = next.and_then(|node| replayed(&schedule, node));
            least = least.max(next.map_or(0.0, |gain| gain.high));
        }
        if evidence.replayed_s.is_none_or(|gain| gain.low < least) {
            evidence.verdict = Verdict::Unsure(CONTRADICTED.into());
            (evidence.slowdown_s, evidence.replayed_s) = (None, None);
        }
    } else if evidence.verdict == Verdict::Balanced {
        evidence.verdict = Verdict::Unsure(EQUAL_DELAYS.into());
    }
    Ok((evidence, Some(schedule)))
}

/// The messages on which a verdict about this part of a run is based.
pub(super) fn compared<'a>(
    found: &'a [Message],
    iterations: Option<&Iterations>,
    span_ns: (i64, i64),
) -> &'a [Message] {
    match iterations {
        // A cut in the middle of a round would put the counts of both directions out of step.
        Some(iterations) if iterations.is_by_order => &found[..found.len().min(MOST_MESSAGES)],
        _ => parts::within(found, span_ns),
    }
}

fn too_few(evidence: &Evidence, messages: usize) -> Option<String> {
    if evidence.are_iterations && evidence.parts < FEWEST_ITERATIONS {
        return Some(format!(
            "{} iterations are too few to distinguish a load from chance ({FEWEST_ITERATIONS} are needed)",
            evidence.parts
        ));
    }
    if messages < LEAST_MESSAGES {
        let count = if messages == 1 {
            "1 message is".into()
        } else {
            format!("{messages} messages are")
        };
        return Some(format!("{count} too few to distinguish a load from chance"));
    }
    None
}

/// The reason why the delays of the processes cannot be compared, if they do not all do alike.
fn unequal(part: &[Message], nodes: usize) -> Option<String> {
    if roles::of_delays(part, nodes).are_all_alike(nodes) {
        return None;
    }
    let mut sent = vec![0usize; nodes];
    for message in part {
        sent[usize::from(message.src)] += 1;
    }
    let (least, most) = (sent.iter().min(), sent.iter().max());
    Some(format!(
        "the processes do not do alike (one sent {} messages, another {}, or of other sizes), so that their delays do not compare",
        least.unwrap_or(&0),
        most.unwrap_or(&0)
    ))
}

/// Time that the run would save if one process had the median work of the others, from a replay, s.
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
