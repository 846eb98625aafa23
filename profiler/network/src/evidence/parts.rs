//! The parts into which a run is cut for its verdict, and the values of each process in them.

use super::LEAST_MESSAGES;
use crate::ball;
use crate::messages::Message;
use crate::repeat::Iterations;
use crate::run::Run;
use crate::schedule::Schedule;

/// Number of parts of a run without iterations.
const PARTS: usize = 16;
/// Most parts. Iterations are put together to keep to it.
const MOST_PARTS: usize = 500;
/// Most messages from which a schedule is made.
pub(super) const MOST_MESSAGES: usize = 200_000;

/// The instants at which the run is cut: begins of its iterations, or equal parts if none were found.
pub(super) fn cuts(
    found: &[Message],
    iterations: Option<&Iterations>,
    run: &Run,
) -> (Vec<i64>, bool) {
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

/// The delays of each process in each part, s. A gap belongs to the part in which it ends.
pub(super) fn delays(run: &Run, cuts: &[i64]) -> Vec<Vec<f64>> {
    let mut parts = vec![vec![0.0; run.nodes().len()]; cuts.len() - 1];
    // For each process, the next cut and the time of the packet before.
    let mut seen: Vec<(usize, Option<i64>)> = vec![(0, None); run.nodes().len()];
    run.each_seen(|me, packet| {
        let Some(kind) = ball::kind(packet, me) else {
            return;
        };
        let (at, before) = &mut seen[usize::from(me)];
        while cuts.get(*at).is_some_and(|cut| *cut <= packet.t_ns) {
            *at += 1;
        }
        if let (Some(before), true) = (*before, kind.is_send())
            && let Some(part) = at.checked_sub(1).and_then(|at| parts.get_mut(at))
        {
            part[usize::from(me)] += (packet.t_ns - before.max(cuts[0])) as f64 / 1e9;
        }
        *before = Some(packet.t_ns);
    });
    parts
}

/// The sums over the parts, by process.
pub(super) fn sums(parts: &[Vec<f64>], nodes: usize) -> Vec<f64> {
    let sum = |node: usize| parts.iter().map(|part| part[node]).sum();
    (0..nodes).map(sum).collect()
}

/// The messages sent between two instants, ns; if there are too many, those in the middle.
pub(super) fn within(found: &[Message], (from, to): (i64, i64)) -> &[Message] {
    let first = found.partition_point(|message| message.sent_ns.0 < from);
    let last = found.partition_point(|message| message.sent_ns.0 <= to);
    let part = &found[first..last.max(first)];
    let middle = part.len().saturating_sub(MOST_MESSAGES) / 2;
    &part[middle..part.len().min(middle + MOST_MESSAGES)]
}

/// The work of each process in each part, s: the middle of its range.
pub(super) fn work(schedule: &Schedule, cuts: &[i64]) -> Vec<Vec<f64>> {
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
