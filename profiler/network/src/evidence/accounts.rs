//! A verdict from the time accounting of the process tracer, for cases that the packets leave open.
//!
//! A process that never waits for others while they wait holds them up. Of two processes that never
//! wait, the one that computes more does. A process that polls is always busy too, but it answers every
//! message at once, which packets show.

use super::{Basis, Evidence, Verdict};
use crate::balance::GATE;
use crate::roles;
use crate::run::{Node, Run, TimeAccounting};
use crate::schedule::Schedule;
use crate::slowdown::turns;

/// Share of a time from which another time counts as equal to it.
const NEARLY: f64 = 0.95;
/// Least busy time of all processes, s. With less, start-up is too large a part.
const LEAST_S: f64 = 0.2;

/// Decides an open verdict by the time accounting if that leaves no doubt.
pub(super) fn decide(run: &Run, schedule: &Schedule, evidence: &mut Evidence) {
    let busy_s = |node: Node| run.accounting(node).map_or(0.0, |times| times.busy_s());
    let busy_s: Vec<f64> = run.all().map(busy_s).collect();
    let alike = roles::of_work(&schedule.messages, schedule.nodes).about_longest(&busy_s);
    let all = alike.iter().map(|&node| run.accounting(node as Node));
    let all: Option<Vec<TimeAccounting>> = all.collect();
    let Some((first, ratio)) = all.as_deref().and_then(leader) else {
        return;
    };
    let first = alike[usize::from(first)] as Node;
    if !turns::mostly_shows(schedule, first) {
        return;
    }
    evidence.basis = Basis::TimeAccounting;
    (evidence.first, evidence.ratio) = (first, ratio);
    evidence.ratio_range = None;
    evidence.slowdown_s = None;
    evidence.verdict = Verdict::Loaded(vec![first]);
}

/// The process that is busy so much longer than the others that it holds them up, and the factor: the
/// larger of those of busy time and of time on a CPU.
fn leader(accounting: &[TimeAccounting]) -> Option<(Node, f64)> {
    let lead = |of: fn(&TimeAccounting) -> f64| {
        let times: Vec<f64> = accounting.iter().map(of).collect();
        let first = (0..times.len()).max_by(|&a, &b| times[a].total_cmp(&times[b]))?;
        let others = (0..times.len()).filter(|&node| node != first);
        let next = others.map(|node| times[node]).reduce(f64::max)?;
        (next > 0.0).then(|| (first, times[first] / next))
    };
    if accounting
        .iter()
        .any(|accounting| accounting.busy_s() < LEAST_S)
    {
        return None;
    }
    let (busy, by_busy) = lead(TimeAccounting::busy_s)?;
    let (computing, by_cpu) = lead(|accounting| accounting.on_cpu_s)?;
    if by_busy >= GATE {
        return Some((busy as Node, by_busy));
    }
    // If CPUs are scarce, all processes are busy all the time. The one that computes most waits least.
    let most = accounting
        .iter()
        .map(TimeAccounting::busy_s)
        .fold(0.0, f64::max);
    let is_busiest = accounting[computing].busy_s() >= NEARLY * most;
    (by_cpu >= GATE && is_busiest).then_some((computing as Node, by_cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounting(on_cpu_s: f64, run_queue_s: f64) -> TimeAccounting {
        TimeAccounting {
            on_cpu_s,
            run_queue_s,
            storage_s: 0.0,
        }
    }

    #[test]
    fn whoever_is_never_waiting_leads() {
        let quiet = accounting(1.0, 0.1);
        assert_eq!(leader(&[quiet; 4]), None);
        let (node, ratio) = leader(&[quiet, quiet, accounting(1.6, 0.1), quiet]).unwrap();
        assert_eq!(node, 2);
        assert!((ratio - 1.7 / 1.1).abs() < 1e-9);
        // A spinner beside it takes its CPU.
        let (node, _) = leader(&[quiet, accounting(0.9, 0.9), quiet]).unwrap();
        assert_eq!(node, 1);
    }

    #[test]
    fn on_shared_cpus_the_one_that_computes_more_leads() {
        let of = |on_cpu_s: f64| accounting(on_cpu_s, 2.0 - on_cpu_s);
        let (node, ratio) = leader(&[of(1.0), of(1.0), of(1.0), of(1.5)]).unwrap();
        assert_eq!((node, ratio), (3, 1.5));
        // The process computes most, but has time left in which it waits for others.
        assert_eq!(
            leader(&[of(1.0), accounting(0.8, 1.4), accounting(1.5, 0.1)]),
            None
        );
        assert_eq!(leader(&[accounting(0.01, 0.0), accounting(0.1, 0.0)]), None);
        assert_eq!(leader(&[of(1.0)]), None);
    }
}
