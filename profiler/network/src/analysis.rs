//! Questions beyond section 7.3: slowdown, efficiency, critical path, changed runs, placement.

use crate::wording;
use std::collections::BTreeMap;

use super::decomposition;
use super::matrix;
use super::messages;
use super::placement::{self, Placement, Problem};
use super::pop::{self, Pop};
use super::repeat;
use super::replay::{self, Change, Reading, Replay};
use super::run::{Answer, Node, Run, Unknown};
use super::schedule::{self, Schedule};
use super::slowdown::{self, Slowdown};
use super::state;

/// Least number of messages for a schedule.
const LEAST_MESSAGES: usize = 24;

fn schedule(run: &Run) -> Result<Schedule, Unknown> {
    let found = messages::messages(run)?;
    if found.len() < LEAST_MESSAGES {
        return Err(Unknown::new(format!(
            "{} messages in this interval are too few to show which process waited for which",
            found.len()
        )));
    }
    Ok(schedule::schedule(&found, run.nodes().len()))
}

/// The part of a run that iterates, as far as the messages show it. Start-up and the end have waits of
/// their own.
pub fn iterating(run: &Run) -> Run {
    let found = repeat::of_run(run).ok().flatten();
    // If all messages are alike, a cut would put the counts of both directions out of step.
    let Some(found) = found.filter(|found| !found.is_by_order) else {
        return run.clone();
    };
    let first = found
        .pairs
        .iter()
        .filter_map(|pair| pair.times_ns.first())
        .min();
    let last = found
        .pairs
        .iter()
        .filter_map(|pair| pair.times_ns.last())
        .max();
    match (first, last) {
        (Some(first), Some(last)) if first < last => run.within(*first, *last),
        _ => run.clone(),
    }
}

fn no_exchange(what: &str) -> Unknown {
    Unknown::new(format!(
        "packets do not show {what}: the program is no plain exchange (every pair, in every round, one message each way of one size, sent before the other's is there); who kept others waiting: flowtrace network balance"
    ))
}

/// Processes that are slower than the others, and the cost of that.
///
/// # Errors
/// When the interval holds too few messages.
pub fn slowdown(run: &Run) -> Answer<Slowdown> {
    let part = iterating(run);
    let schedule = schedule(&part)?;
    let found = slowdown::slowdown(&schedule);
    let found = found.ok_or_else(|| no_exchange("how long each process worked"))?;
    Ok(part.known(found))
}

/// Parallel efficiencies of the part that iterates.
///
/// # Errors
/// When the interval holds too few messages.
pub fn pop_metrics(run: &Run) -> Answer<Pop> {
    let part = iterating(run);
    let schedule = schedule(&part)?;
    let exact = pop::efficiencies(&schedule, part.span_ns());
    let found = exact.map_or_else(
        || {
            let iterations = repeat::of_run(run)?;
            let messages = messages::messages(run)?;
            pop::bounded(run, &messages, iterations.as_deref(), part.span_ns())
        },
        Ok,
    );
    Ok(part.known(found?))
}

/// The longest path through sends and arrivals, for both readings of the open dependencies.
///
/// # Errors
/// When the interval holds too few messages.
pub fn critical_path(run: &Run) -> Answer<(Replay, Replay)> {
    let schedule = schedule(run)?;
    let path = |reading| replay::replay(&schedule, &Change::default(), reading);
    let found = path(Reading::Waiting).zip(path(Reading::Working));
    Ok(run.known(found.ok_or_else(|| Unknown::new("no message in this interval"))?))
}

/// The effect of a change on a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WhatIf {
    /// Time from the first to the last message in the replay without the change, s.
    pub base_s: f64,
    /// The same time with the change: the least and the most of both readings, s.
    pub changed_s: (f64, f64),
}

/// Replays the run with the work of a process scaled, without latency, or without transfer time.
///
/// # Errors
/// When the interval holds too few messages.
pub fn what_if(run: &Run, change: &Change) -> Answer<WhatIf> {
    let schedule = schedule(run)?;
    let none = || Unknown::new("no message in this interval");
    let change = &Change {
        base_ns: decomposition::base_ns(run, &schedule.messages),
        ..change.clone()
    };
    let mut base_s = 0.0f64;
    let mut changed = Vec::new();
    for reading in [Reading::Waiting, Reading::Working] {
        let base = replay::replay(&schedule, &Change::default(), reading).ok_or_else(none)?;
        let with = replay::replay(&schedule, change, reading).ok_or_else(none)?;
        base_s = base_s.max(base.seconds);
        changed.push(with.seconds);
    }
    let value = WhatIf {
        base_s,
        changed_s: (changed[0].min(changed[1]), changed[0].max(changed[1])),
    };
    Ok(run.known(value))
}

/// A placement and its gain.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The present mapping, each process on its own host.
    pub now: Placement,
    /// The advised mapping, without moves that gain nothing. Equal to `now` if none gains
    /// [`placement::MARGIN`].
    pub better: Placement,
    /// Hosts' names, in the order of the placements' numbers.
    pub hosts: Vec<String>,
    /// Demands, bytes/s.
    pub demands: matrix::Matrix<f64>,
}

/// The best placement of the processes. `given` has measured capacities in bytes/s by names of sending
/// and receiving host; other pairs get the passive estimate.
///
/// # Errors
/// When a capacity is neither given nor known, or there are fewer than two processes.
pub fn place(run: &Run, given: &BTreeMap<(String, String), f64>) -> Answer<Advice> {
    let traffic = matrix::traffic(run)?;
    let n = run.nodes().len();
    if n < 2 {
        return Err(Unknown::new("one process alone has nothing to be near to"));
    }
    let seconds = run.seconds().max(1e-9);
    let demands = traffic.map(|cell| cell.wire_bytes as f64 / seconds);
    let mut hosts: Vec<String> = run.nodes().to_vec();
    for (a, b) in given.keys() {
        for host in [a, b] {
            if !hosts.contains(host) {
                hosts.push(host.clone());
            }
        }
    }
    let passive: BTreeMap<(Node, Node), f64> = state::available_bandwidth(run)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|a| Some(((a.src, a.dst), a.middle().or(a.at_least)?)))
        .collect();
    let mut capacities = matrix::Matrix::new(hosts.len());
    let mut missing = Vec::new();
    for a in 0..hosts.len() {
        for b in (0..hosts.len()).filter(|&b| b != a) {
            let named = |x: usize, y: usize| given.get(&(hosts[x].clone(), hosts[y].clone()));
            let known = named(a, b).or_else(|| named(b, a)).copied();
            let seen = || passive.get(&(a as Node, b as Node)).copied();
            match known.or_else(seen) {
                Some(capacity) => *capacities.at_mut(a, b) = capacity,
                None => missing.push(format!("{} {}", hosts[a], hosts[b])),
            }
        }
    }
    if !missing.is_empty() {
        return Err(Unknown::new(format!(
            "the capacity between these hosts is not known: {}; give it with --capacity A,B=BYTES_PER_SECOND",
            wording::listed(&missing, ", ")
        )));
    }
    let problem = Problem {
        demands: demands.clone(),
        capacities,
        latencies: None,
        latency_weight: 0.0,
        may_relay: false,
    };
    let now = problem.place((0..n).collect());
    let value = Advice {
        better: placement::advise(&problem, &now).unwrap_or_else(|| now.clone()),
        now,
        hosts,
        demands,
    };
    Ok(run.known(value))
}
