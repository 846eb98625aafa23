//! Decomposition of communication time (chapter 5): latency and bandwidth components per ordered pair.

use std::collections::BTreeMap;

use super::messages::{self, Message};
use super::quantile;
use super::rtt;
use super::run::{Averaging, Mode, Node, Run, Unknown};

/// Method by which a latency was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// One-way delays of the messages themselves, both ends captured on one time scale.
    BothEnds,
    /// Half of the least round-trip time, from one end.
    HalfRoundTrip,
}

impl Method {
    /// Name of the method in results.
    pub fn name(self) -> &'static str {
        match self {
            Method::BothEnds => "both ends",
            Method::HalfRoundTrip => "half round trip",
        }
    }
}

/// The communication of one ordered pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Sender.
    pub src: Node,
    /// Receiver.
    pub dst: Node,
    /// Number of messages.
    pub messages: u64,
    /// Payload of the messages, bytes.
    pub bytes: u64,
    /// Sum of the one-way delays of the messages, s; `None` if no delay is known.
    pub latency_s: Option<f64>,
    /// Method by which the latency was found.
    pub method: Option<Method>,
    /// Sum of the times from the first to the last segment of each message, s.
    pub transfer_s: f64,
    /// Delay of each message: time, s. Empty when unknown.
    pub delays: Vec<(i64, f64)>,
    /// Bandwidth of each message of more than one segment: time, bytes/s.
    pub bandwidths: Vec<(i64, f64)>,
}

/// Decomposes the communication of the interval, pair by pair.
///
/// # Errors
/// When the interval holds no packet.
pub fn pairs(run: &Run) -> Result<Vec<Pair>, Unknown> {
    let messages = messages::messages(run)?;
    Ok(of_messages(run, &messages))
}

/// Decomposes messages that are known already.
pub fn of_messages(run: &Run, messages: &[Message]) -> Vec<Pair> {
    let pair = |((src, dst), list): ((Node, Node), Vec<usize>)| {
        let messages: Vec<&Message> = list.iter().map(|&i| &messages[i]).collect();
        let half = half_round_trip(run, src, dst);
        let is_timed = run.has_both_ends(src, dst) && run.settings.mode == Mode::Default;
        let method = if is_timed {
            Some(Method::BothEnds)
        } else {
            half.map(|_| Method::HalfRoundTrip)
        };
        let delay = |message: &Message| match method? {
            // A delay below zero is within the error of the clocks.
            Method::BothEnds => {
                Some((message.received_ns.0 - message.sent_ns.0).max(0) as f64 / 1e9)
            }
            Method::HalfRoundTrip => half,
        };
        let delays: Vec<(i64, f64)> = messages
            .iter()
            .filter_map(|message| Some((message.received_ns.0, delay(message)?)))
            .collect();
        Pair {
            src,
            dst,
            messages: messages.len() as u64,
            bytes: messages.iter().map(|message| message.bytes).sum(),
            latency_s: method.map(|_| delays.iter().map(|(_, s)| s).sum()),
            method,
            transfer_s: messages.iter().map(|m| m.transfer_ns() as f64 / 1e9).sum(),
            bandwidths: messages
                .iter()
                .filter_map(|m| Some((m.received_ns.1, m.bandwidth(run.settings.mode)?)))
                .collect(),
            delays,
        }
    };
    messages::by_pair(messages).into_iter().map(pair).collect()
}

/// Half of the least round-trip time between two processes, as either end saw it, s. A capture at the
/// sender sees the whole way; on one link the other end's round trip adds nothing.
fn half_round_trip(run: &Run, a: Node, b: Node) -> Option<f64> {
    let seen = [rtt::least_ns(run, a, b), rtt::least_ns(run, b, a)];
    // Each tap sees the way from its own place to the other host and back.
    let whole = seen.into_iter().flatten().max()?;
    Some(whole as f64 / 2e9)
}

/// Least one-way delay of each pair that was captured at both ends, ns: that of its quickest message,
/// or half the least round trip if that is less (small packets have it too). A message that takes
/// longer spent the difference waiting for its turn on a link.
pub(super) fn base_ns(run: &Run, messages: &[Message]) -> BTreeMap<(Node, Node), i64> {
    let mut least: BTreeMap<(Node, Node), i64> = BTreeMap::new();
    for message in messages {
        let delay = (message.received_ns.0 - message.sent_ns.0).max(0);
        let of_pair = least.entry((message.src, message.dst)).or_insert(delay);
        *of_pair = delay.min(*of_pair);
    }
    for (&(src, dst), delay) in &mut least {
        if let Some(half_s) = half_round_trip(run, src, dst) {
            *delay = (*delay).min((half_s * 1e9) as i64);
        }
    }
    least
}

/// Means over the last values, with a new point whenever the mean has changed enough.
pub fn averages(values: &[(i64, f64)], averaging: Averaging) -> Vec<(i64, f64)> {
    let mut points: Vec<(i64, f64)> = Vec::new();
    let ring = averaging.ring.max(1);
    for end in 1..=values.len() {
        let window = &values[end.saturating_sub(ring)..end];
        let mean = window.iter().map(|(_, value)| value).sum::<f64>() / window.len() as f64;
        let is_new = points.last().is_none_or(|(_, last)| {
            (mean - last).abs() > averaging.change * last.abs().max(f64::MIN_POSITIVE)
        });
        if is_new {
            points.push((values[end - 1].0, mean));
        }
    }
    points
}

/// The as-of join of the thesis: the last sample at or before each time, in one pass over both.
pub fn as_of(samples: &[(i64, f64)], times: impl IntoIterator<Item = i64>) -> Vec<Option<f64>> {
    let mut at = 0;
    times
        .into_iter()
        .map(|t| {
            while samples.get(at).is_some_and(|(sampled, _)| *sampled <= t) {
                at += 1;
            }
            at.checked_sub(1).map(|last| samples[last].1)
        })
        .collect()
}

/// A component of the run's time that can be out of balance (7.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// A process that keeps the others waiting.
    Process(Node),
    /// The messages of a pair take long to arrive.
    NetworkLatency(Node, Node),
    /// The messages of a pair come in slowly.
    NetworkBandwidth(Node, Node),
}

impl Component {
    /// Name of the component in the interface.
    pub fn name(self) -> &'static str {
        match self {
            Component::Process(_) => "process",
            Component::NetworkLatency(..) => "network_latency",
            Component::NetworkBandwidth(..) => "network_bandwidth",
        }
    }
}

/// Distance of each component above the median of its kind, the farthest first, s. A process counts
/// only if the gate of the balance is open; otherwise the caller passes none.
pub fn imbalanced(
    global: Option<&[f64]>,
    latency: &[(Node, Node, f64)],
    transfer: &[(Node, Node, f64)],
) -> Vec<(Component, f64)> {
    let mut found = Vec::new();
    if let Some(global) = global {
        let top = (0..global.len()).max_by(|&a, &b| global[a].total_cmp(&global[b]));
        if let (Some(top), Some(median)) = (top, quantile::median(global.iter().copied())) {
            found.push((Component::Process(top as Node), global[top] - median));
        }
    }
    for (list, is_latency) in [(latency, true), (transfer, false)] {
        let top = list.iter().max_by(|a, b| a.2.total_cmp(&b.2));
        if let (Some(&(a, b, most)), Some(median)) =
            (top, quantile::median(list.iter().map(|p| p.2)))
        {
            let component = if is_latency {
                Component::NetworkLatency(a, b)
            } else {
                Component::NetworkBandwidth(a, b)
            };
            found.push((component, most - median));
        }
    }
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{data, delayed_run_of};

    #[test]
    fn a_delay_raises_latency_and_a_slow_link_transfer() {
        const MS: i64 = 1_000_000;
        let mut packets = Vec::new();
        for i in 0..100 {
            packets.push(data(i * 20 * MS, 0, 1, 100));
            packets.push(data((i * 20 + 5) * MS, 1, 0, 100));
        }
        let latency = |delay| {
            let run = delayed_run_of(2, &packets, delay);
            let pairs = pairs(&run).unwrap();
            assert_eq!(pairs[0].method, Some(Method::BothEnds));
            assert_eq!(pairs[0].messages, 100);
            (pairs[0].latency_s.unwrap(), pairs[0].transfer_s)
        };
        assert_eq!(latency(0), (0.0, 0.0));
        let (slow, transfer) = latency(3 * MS);
        assert!((slow - 0.3).abs() < 1e-9 && transfer == 0.0);
    }

    #[test]
    fn series_have_a_point_where_the_mean_changed() {
        let values: Vec<(i64, f64)> = (0..100)
            .map(|i| (i, if i < 50 { 1.0 } else { 2.0 }))
            .collect();
        let points = averages(&values, Averaging::default());
        assert_eq!(points[0], (0, 1.0));
        assert!(points.len() >= 3 && points.len() < 8, "{points:?}");
        assert!(points.last().unwrap().1 > 1.6);
        assert!(averages(&[], Averaging::default()).is_empty());
    }

    #[test]
    fn samples_are_joined_to_the_time_before() {
        let samples = [(10, 1.0), (20, 2.0)];
        assert_eq!(
            as_of(&samples, [5, 10, 15, 25]),
            [None, Some(1.0), Some(1.0), Some(2.0)]
        );
    }

    /// Tables 5.1 to 5.7 as shapes: which component leads.
    #[test]
    fn the_component_is_that_of_the_scenario() {
        // 5.2: a delay of 3 ms at 176 (order 172 173 175 176): balanced, latency leads.
        let latency = [(2, 3, 4.52), (3, 2, 2.896), (0, 3, 0.4), (1, 0, 0.1)];
        let transfer = [(3, 2, 3.94), (2, 3, 3.79), (1, 0, 1.7), (0, 1, 1.7)];
        let balanced = imbalanced(None, &latency, &transfer);
        assert_eq!(balanced[0].0, Component::NetworkLatency(2, 3));
        // 5.6: web server at 176: the process.
        let global = [10.7, 8.7, 10.4, 144.3];
        let latency = [(0, 2, 1.4), (1, 0, 0.1)];
        let transfer = [(2, 3, 105.11), (0, 3, 76.93), (1, 0, 1.0)];
        let loaded = imbalanced(Some(&global), &latency, &transfer);
        assert_eq!(loaded[0].0, Component::Process(3));
        assert!((loaded[0].1 - (144.3 - 10.55)).abs() < 1e-9);
        assert!(imbalanced(None, &[], &[]).is_empty());
    }
}
