//! Parallel efficiency as the POP centre defines it, from packets. Values are intervals, because
//! packets show when a process sent and not when it computed. (This is a research target of the
//! specification; the thesis has none.) In a plain exchange the efficiencies follow from the work
//! before each send; otherwise from the least and the most that each process may have computed.
//!
//! `parallel = load balance × communication`, `communication = serialisation × transfer`.

use std::collections::BTreeMap;

use super::messages::Message;
use super::repeat::Iterations;
use super::replay::{Change, Reading, replay};
use super::run::{Node, Run, Unknown};
use super::schedule::Schedule;

mod bounds;
mod library;
mod metrics;
mod steps;

use bounds::Bound;
pub use metrics::{Basis, NARROW, Pop, Share};

/// Time of a send in addition to the work, s: in the library, and until a waiting thread runs again. In
/// real runs on shared CPUs it was up to 75 µs.
const SEND_S: f64 = 100e-6;

/// The efficiencies of a schedule over a part of a run; `None` without messages, or if it is no plain
/// exchange.
pub fn efficiencies(schedule: &Schedule, span_ns: (i64, i64)) -> Option<Pop> {
    if !schedule.is_exchange {
        return None;
    }
    let run_s = (span_ns.1 - span_ns.0) as f64 / 1e9;
    let work_s = schedule.work_s();
    let ideal = Change {
        no_latency: true,
        no_transfer: true,
        ..Change::default()
    };
    let seconds = |reading: Reading| {
        let whole = replay(schedule, &Change::default(), reading)?.seconds;
        let best = replay(schedule, &ideal, reading)?.seconds;
        // The time that the replay does not cover (before the first and after the last message) is
        // added.
        Some((run_s - whole).max(0.0) + best)
    };
    let ideal_s = (seconds(Reading::Waiting)?, seconds(Reading::Working)?);
    // Iterations that take longer than the quietest of their kind may have had more work, or may have
    // waited for a CPU, each process for itself. Each send also took some time. Packets do not
    // distinguish these.
    let quiet = quiet_work_s(schedule);
    let rest = Rest::of(schedule, span_ns);
    let within: Vec<Bound> = (work_s.iter().zip(quiet).zip(rest))
        .map(|((work, quiet), rest)| {
            let least = work.0.min(quiet) - rest.sends * SEND_S;
            let most_s = work.1 + rest.unseen_s;
            Bound {
                least_s: least.max(0.0),
                most_s,
                most_alone_s: most_s,
            }
        })
        .collect();
    let shares = bounds::shares(&within, run_s)?;
    let top = |of: fn(&Bound) -> f64| within.iter().map(of).fold(0.0, f64::max);
    let (least, most) = (top(|bound| bound.least_s), top(|bound| bound.most_s));
    Some(Pop {
        basis: Basis::Work,
        run_s,
        ideal_s: Some(ideal_s),
        serialisation: Some(Share::of(least / ideal_s.0, most / ideal_s.1)),
        transfer: Some(Share::of(ideal_s.0 / run_s, ideal_s.1 / run_s)),
        work_s,
        ..shares
    })
}

/// Bounds of the efficiencies of a part of a run whose processes do other things than work in the gaps
/// between sends. The messages are those of the whole run.
///
/// # Errors
/// When the bounds would not hold, or nothing repeats often enough.
pub fn bounded(
    run: &Run,
    messages: &[Message],
    iterations: Option<&Iterations>,
    span_ns: (i64, i64),
) -> Result<Pop, Unknown> {
    if goes_one_way(messages) {
        return Err(Unknown::new(
            "messages go one way, so that processes run ahead of each other as far as buffers allow, and packets do not show their work meanwhile",
        ));
    }
    if let Some(unseen) = run.all().find(|&node| !run.is_own(node)) {
        let name = run.nodes().get(usize::from(unseen));
        return Err(Unknown::new(format!(
            "{} has no capture of its own, and captures of others do not show when its library was busy",
            name.map_or("a process", String::as_str)
        )));
    }
    let steps = iterations.and_then(|iterations| steps::steps(run, messages, iterations));
    let span_s = (span_ns.1 - span_ns.0) as f64 / 1e9;
    let shares = steps.and_then(|steps| bounds::shares(&steps.computed(span_ns), span_s));
    shares.ok_or_else(|| {
        Unknown::new(
            "nothing repeats often enough to distinguish the work from the rest of the gaps",
        )
    })
}

/// True if a heavy pair has (nearly) no messages back.
fn goes_one_way(messages: &[Message]) -> bool {
    let mut pairs: BTreeMap<(Node, Node), (u64, usize)> = BTreeMap::new();
    for message in messages {
        let pair = pairs.entry((message.src, message.dst)).or_default();
        pair.0 += message.bytes;
        pair.1 += 1;
    }
    let heaviest = pairs.values().map(|pair| pair.0).max().unwrap_or(0);
    pairs.iter().any(|(&(src, dst), &(bytes, count))| {
        let back = pairs.get(&(dst, src)).map_or(0, |pair| pair.1);
        bytes * 10 >= heaviest && back * 10 < count
    })
}

/// Time of a process outside of the intervals between its sends.
#[derive(Clone, Copy, Default)]
struct Rest {
    sends: f64,
    /// Time before its first send and after its last one, in which it may have worked, s.
    unseen_s: f64,
}

impl Rest {
    fn of(schedule: &Schedule, span_ns: (i64, i64)) -> Vec<Rest> {
        let mut all = vec![Rest::default(); schedule.nodes];
        let mut last_ns = vec![span_ns.0; schedule.nodes];
        for step in &schedule.steps {
            let me = usize::from(step.process);
            if let (Some(rest), Some(last_ns)) = (all.get_mut(me), last_ns.get_mut(me)) {
                if rest.sends == 0.0 {
                    rest.unseen_s = (step.t_ns - span_ns.0).max(0) as f64 / 1e9;
                }
                rest.sends += 1.0;
                *last_ns = step.t_ns;
            }
        }
        for (rest, last_ns) in all.iter_mut().zip(last_ns) {
            rest.unseen_s += (span_ns.1 - last_ns).max(0) as f64 / 1e9;
        }
        all
    }
}

/// The work of each process if every step took as long as the quietest tenth of its kind, s.
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
mod tests;
