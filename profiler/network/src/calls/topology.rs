//! Calls 1 to 3: traffic and topology.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::matrix::{self, Matrix, Traffic};
use crate::run::{Answer, Run, Unit, Unknown};
use crate::smoothing::{Change, Smoother, Smoothing};
use crate::topology::{self, Topology};

/// Least time between two updates (2.5), ns.
const SHORTEST_UPDATE_NS: i64 = 50_000_000;
/// Most updates of a run, without those in long silence. A longer run is updated less often.
const MOST_UPDATES: i64 = 200_000;

/// Call 1, GetTrafficMatrix: the traffic of each process to each other one.
///
/// # Errors
/// When the interval holds no packet.
pub fn traffic_matrix(run: &Run, last: Option<f64>) -> Answer<Arc<Matrix<Traffic>>> {
    let run = run.last(last);
    Ok(run.known(matrix::traffic(&run)?))
}

/// The present topology and its history.
#[derive(Clone, Debug, PartialEq)]
pub struct SmoothedTopology {
    /// Edges of the last smoothing interval.
    pub topology: Topology,
    /// The declared topologies, with their times.
    pub changes: Vec<Change>,
}

/// Call 2, GetSmoothedTopology: the stable topology with the smoothing settings of the run.
///
/// # Errors
/// When the interval holds no packet.
pub fn smoothed_topology(run: &Run) -> Answer<SmoothedTopology> {
    run.need_packets()?;
    let settings = &run.settings;
    let recent = run.last(Some(settings.window_s));
    let traffic = matrix::traffic(&recent)?;
    let bytes = matrix::bytes(&traffic, settings.unit);
    let value = SmoothedTopology {
        topology: topology::infer(&bytes, settings.b_min),
        changes: changes(run),
    };
    Ok(run.known(value))
}

/// Declared changes over the whole interval.
pub fn changes(run: &Run) -> Vec<Change> {
    let settings = &run.settings;
    let (t0, t1) = run.span_ns();
    let asked = ((settings.period_s * 1e9) as i64).max(SHORTEST_UPDATE_NS);
    // After so long a silence, neither the window nor the remembered matrices have any of the earlier
    // traffic.
    let forgotten_ns = ((settings.window_s * 1e9) as i64)
        .max(asked)
        .saturating_mul(2);
    let needed = awake(run, asked, forgotten_ns / asked + 2);
    let step = match needed > MOST_UPDATES {
        true => asked.max((t1 - t0) / MOST_UPDATES),
        false => asked,
    };
    let mut updates: BTreeMap<i64, BTreeMap<(usize, usize), f64>> = BTreeMap::new();
    for me in run.all() {
        for packet in run.stream(me).filter(|p| p.src == me && p.dst != me) {
            let bytes = match settings.unit {
                Unit::Frame => packet.wire,
                Unit::Payload if packet.is_again => 0,
                Unit::Payload => packet.payload,
            };
            if bytes > 0 {
                let update = updates.entry((packet.t_ns - t0) / step).or_default();
                let pair = (usize::from(me), usize::from(packet.dst));
                *update.entry(pair).or_default() += f64::from(bytes);
            }
        }
    }
    let smoothing = Smoothing {
        window_ns: ((settings.window_s * 1e9) as i64).max(step),
        detection: settings.detection,
        b_min: settings.b_min,
        ..Smoothing::default()
    };
    let mut smoother = Smoother::new(run.nodes().len(), smoothing);
    let mut changes = Vec::new();
    let last = (t1 - t0).max(0) / step;
    let until = smoothing.window_ns.saturating_mul(2) / step + 2;
    let (mut number, mut heard) = (0, 0);
    while number <= last {
        let is_silent = !updates.contains_key(&number);
        if !is_silent {
            heard = number;
        } else if number - heard > until {
            // Nothing changes until the next bytes.
            match updates.range(number..).next() {
                Some((&next, _)) => number = next,
                None => break,
            }
            heard = number;
        }
        let mut bytes = Matrix::new(run.nodes().len());
        for (&(src, dst), value) in updates.get(&number).into_iter().flatten() {
            *bytes.at_mut(src, dst) = *value;
        }
        changes.extend(smoother.update(t0 + (number + 1) * step, bytes));
        number += 1;
    }
    changes
}

/// Number of updates, one every `step` ns, that have bytes or are among the `after` updates after one
/// that has.
fn awake(run: &Run, step: i64, after: i64) -> i64 {
    let (t0, t1) = run.span_ns();
    let mut heard: Vec<i64> = run
        .all()
        .flat_map(|me| run.stream(me).map(move |packet| (packet.t_ns - t0) / step))
        .collect();
    heard.sort_unstable();
    heard.dedup();
    let next = heard
        .iter()
        .skip(1)
        .copied()
        .chain([(t1 - t0).max(0) / step]);
    let awake = heard.iter().zip(next);
    awake
        .map(|(at, next)| (next - at).clamp(1, after + 1))
        .sum()
}

/// Call 3, SetSmoothingParameters: time between updates and smoothing interval, s.
///
/// # Errors
/// When one of them is not a positive number.
pub fn set_smoothing(run: &mut Run, period_s: f64, window_s: f64) -> Result<(), Unknown> {
    if !(period_s > 0.0 && window_s > 0.0 && period_s.is_finite() && window_s.is_finite()) {
        return Err(Unknown::new(
            "period and window of the smoothing must be positive seconds",
        ));
    }
    run.settings.period_s = period_s;
    run.settings.window_s = window_s;
    Ok(())
}
