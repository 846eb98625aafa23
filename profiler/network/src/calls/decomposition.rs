//! Calls 19 to 27: messages, latency, bandwidth, and the component most out of balance.

use std::sync::Arc;

use super::imbalance_global;
use crate::balance::Range;
use crate::component::{self, Loss, Losses};
use crate::decomposition::{self, Component, Method, Pair};
use crate::messages;
use crate::run::{Answer, Mode, Node, Run, Unknown};

/// Call 19, GetNoMessages.
///
/// # Errors
/// When the interval holds no packet.
pub fn message_count(run: &Run, src: Node, dst: Node, last: Option<f64>) -> Answer<u64> {
    let counts = message_counts(run, last)?;
    let found = counts.value.iter().find(|row| (row.0, row.1) == (src, dst));
    let count = found.map_or(0, |row| row.2);
    Ok(run.last(last).known(count))
}

/// Call 20, GetNoMessagesList: sender, receiver, messages; the most first.
///
/// # Errors
/// When the interval holds no packet.
pub fn message_counts(run: &Run, last: Option<f64>) -> Answer<Vec<(Node, Node, u64)>> {
    let run = run.last(last);
    let messages = messages::messages(&run)?;
    Ok(run.known(messages::counts(&messages)))
}

fn pair(run: &Run, src: Node, dst: Node, last: Option<f64>) -> Result<Pair, Unknown> {
    let pairs = decomposition::pairs(&run.last(last))?;
    let found = pairs
        .into_iter()
        .find(|pair| (pair.src, pair.dst) == (src, dst));
    found.ok_or_else(|| {
        let name = |node: Node| &run.nodes()[usize::from(node)];
        Unknown::new(format!(
            "no message from {} to {} in this interval",
            name(src),
            name(dst)
        ))
    })
}

/// Time in the latency component, and the method by which it was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyTime {
    /// Sum of the one-way delays, s.
    pub seconds: f64,
    /// Method by which they were found.
    pub method: Method,
    /// Bound of the error of that sum from the clocks, s; `None` with one clock, or if no clock
    /// matters.
    pub clock_error_s: Option<f64>,
}

/// Call 21, GetLatencyTime.
///
/// # Errors
/// When there is no message, or no delay is known.
pub fn latency_time(run: &Run, src: Node, dst: Node, last: Option<f64>) -> Answer<LatencyTime> {
    let pair = pair(run, src, dst, last)?;
    let unknown = || Unknown::new("no round trip between the two was seen, and only one end");
    let value = LatencyTime {
        seconds: pair.latency_s.ok_or_else(unknown)?,
        method: pair.method.ok_or_else(unknown)?,
        clock_error_s: run
            .clock_error_ns()
            .filter(|_| pair.method == Some(Method::BothEnds))
            .map(|ns| ns as f64 / 1e9 * pair.messages as f64),
    };
    Ok(run.last(last).known(value))
}

/// Call 22, GetAvgLatency: time and mean one-way delay, s, with a point for each change.
///
/// # Errors
/// When there is no message, or no delay is known.
pub fn avg_latency(run: &Run, src: Node, dst: Node, last: Option<f64>) -> Answer<Vec<(i64, f64)>> {
    let pair = pair(run, src, dst, last)?;
    if pair.method.is_none() {
        return Err(Unknown::new(
            "no round trip between the two was seen, and only one end",
        ));
    }
    let series = decomposition::averages(&pair.delays, run.settings.averaging);
    Ok(run.last(last).known(series))
}

/// Call 23, GetLatencyTimeList: sender, receiver, s; the most first. Pairs without a known delay
/// are left out.
///
/// # Errors
/// When the interval holds no packet, or no delay is known.
pub fn latency_times(run: &Run, last: Option<f64>) -> Answer<Vec<(Node, Node, f64)>> {
    let run = run.last(last);
    let pairs = decomposition::pairs(&run)?;
    let known = pairs
        .iter()
        .filter_map(|p| Some((p.src, p.dst, p.latency_s?)));
    let list = descending(known);
    if list.is_empty() {
        return Err(Unknown::new(
            "no message in this interval has a known delay",
        ));
    }
    Ok(run.known(list))
}

fn descending(list: impl Iterator<Item = (Node, Node, f64)>) -> Vec<(Node, Node, f64)> {
    let mut list: Vec<_> = list.collect();
    list.sort_by(|a, b| b.2.total_cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
    list
}

/// Call 24, GetBWTime: time in the transfer component, s.
///
/// # Errors
/// When there is no message.
pub fn transfer_time(run: &Run, src: Node, dst: Node, last: Option<f64>) -> Answer<f64> {
    let pair = pair(run, src, dst, last)?;
    Ok(run.last(last).known(pair.transfer_s))
}

/// Call 25, GetBWTimeList: sender, receiver, s; the most first (the text says both orders).
///
/// # Errors
/// When the interval holds no message.
pub fn transfer_times(run: &Run, last: Option<f64>) -> Answer<Vec<(Node, Node, f64)>> {
    let run = run.last(last);
    let pairs = decomposition::pairs(&run)?;
    if pairs.is_empty() {
        return Err(Unknown::new("no message in this interval"));
    }
    Ok(run.known(descending(
        pairs.iter().map(|p| (p.src, p.dst, p.transfer_s)),
    )))
}

/// Call 26, GetAvgBW: time and mean bytes/s, with a point for each change. Messages of one segment have
/// no bandwidth.
///
/// # Errors
/// When no message had two segments.
pub fn avg_bandwidth(
    run: &Run,
    src: Node,
    dst: Node,
    last: Option<f64>,
) -> Answer<Vec<(i64, f64)>> {
    let pair = pair(run, src, dst, last)?;
    if pair.bandwidths.is_empty() {
        return Err(Unknown::new(
            "every message was a single segment, which has no bandwidth",
        ));
    }
    let series = decomposition::averages(&pair.bandwidths, run.settings.averaging);
    Ok(run.last(last).known(series))
}

/// The component that stands out.
#[derive(Clone, Debug, PartialEq)]
pub struct MostImbalanced {
    /// The component; `None` if none stands out, or if it is not known which one does.
    pub component: Option<Component>,
    /// Time that the run lost to the component, s. In thesis mode its distance above the median of its
    /// kind.
    pub seconds: Range,
    /// Losses of all kinds, the most costly first.
    pub all: Vec<Loss>,
    /// Basis of the losses; `None` in thesis mode.
    pub losses: Option<Arc<Losses>>,
}

/// Call 27, GetMostImbalancedComponent (7.3.4). By default the component to which the run lost most, if
/// the loss is enough to stand out ([`component`]). Thesis mode compares the distances of components
/// above the median of their kinds.
///
/// # Errors
/// When the interval has nothing to compare.
pub fn most_imbalanced(run: &Run, last: Option<f64>) -> Answer<MostImbalanced> {
    let run = run.last(last);
    if run.settings.mode == Mode::Default {
        let losses = component::decide(&run)?;
        let first = losses.first();
        return Ok(run.known(MostImbalanced {
            component: first.map(|loss| loss.component),
            seconds: first.map(|loss| loss.lost_s).unwrap_or_default(),
            all: losses.all.clone(),
            losses: Some(losses),
        }));
    }
    let pairs = decomposition::pairs(&run)?;
    let known = pairs
        .iter()
        .filter_map(|p| Some((p.src, p.dst, p.latency_s?)));
    let latency: Vec<_> = known.collect();
    let transfer: Vec<_> = pairs.iter().map(|p| (p.src, p.dst, p.transfer_s)).collect();
    let global = imbalance_global(&run, None).ok().map(|known| known.value);
    let delays = global.as_ref().map(|g| g.delays_s.as_slice());
    let of = |(component, seconds): (Component, f64)| Loss {
        component,
        lost_s: Range {
            low: seconds,
            high: seconds,
        },
        above_median_s: seconds,
        is_certain: true,
        is_least: false,
    };
    let all: Vec<Loss> = decomposition::imbalanced(delays, &latency, &transfer)
        .into_iter()
        .map(of)
        .collect();
    let first = all
        .first()
        .ok_or_else(|| Unknown::new("nothing to compare in this interval"))?;
    Ok(run.known(MostImbalanced {
        component: Some(first.component),
        seconds: first.lost_s,
        all,
        losses: None,
    }))
}
