//! Passive available bandwidth (Wren, B.2), and receivers that do not read.
//!
//! Segments that leave evenly spaced form a train. If their round-trip times rise, the train was
//! faster than what the path had left; if not, it was slower. The available bandwidth lies between
//! the fastest train of the second kind and the slowest of the first. It includes the share of the
//! observed program itself (B.2.2), and needs a real bottleneck: a virtual link has none.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::quantile;
use super::run::{ACK, Node, Packet, Run, SYN, Unknown};

/// Parameters; the text gives none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trains {
    /// Gaps of one train differ by at most this factor.
    pub similarity: f64,
    /// Least segments of a train.
    pub least: usize,
    /// Window over which trains are combined, s.
    pub window_s: f64,
    /// Segments on the wire are no larger than this; larger ones were cut after the capture.
    pub largest_bytes: u32,
}

impl Default for Trains {
    fn default() -> Self {
        Trains {
            similarity: 2.0,
            least: 5,
            window_s: 5.0,
            largest_bytes: 9216,
        }
    }
}

/// A train: evenly spaced segments with the round-trip time of each.
#[derive(Clone, Debug, PartialEq)]
pub struct Train {
    /// Its first segment, ns.
    pub t_ns: i64,
    /// Segments.
    pub segments: usize,
    /// Bytes after the first segment over the time they took, bytes/s.
    pub rate: f64,
    /// Whether its round-trip times rise.
    pub is_congested: bool,
    /// Rate at which acknowledgements came back, bytes/s.
    pub return_rate: Option<f64>,
}

/// Available bandwidth of an ordered pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Available {
    /// Sender.
    pub src: Node,
    /// Receiver.
    pub dst: Node,
    /// Trains seen, and how many of them were congested.
    pub trains: usize,
    /// See `trains`.
    pub congested: usize,
    /// Fastest train that was not congested, bytes/s: at least so much was free.
    pub at_least: Option<f64>,
    /// Slowest train that was, bytes/s: no more than so much was free.
    pub at_most: Option<f64>,
    /// Median over the windows that have both, bytes/s.
    pub median: Option<f64>,
}

/// Whether delays rise: pathload's pairwise comparison and difference tests.
pub fn rises(delays: &[f64]) -> bool {
    if delays.len() < 3 {
        return false;
    }
    let steps = delays.windows(2);
    let rising = steps.clone().filter(|pair| pair[1] > pair[0]).count();
    let comparison = rising as f64 / (delays.len() - 1) as f64;
    let travelled: f64 = steps.map(|pair| (pair[1] - pair[0]).abs()).sum();
    let difference = if travelled > 0.0 {
        (delays[delays.len() - 1] - delays[0]) / travelled
    } else {
        0.0
    };
    comparison > 0.66 && difference > 0.55
}

/// One segment with its acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Sample {
    t_ns: i64,
    wire: u32,
    acked_ns: Option<i64>,
}

/// Cuts the segments of one connection into trains.
fn trains(samples: &[Sample], settings: Trains) -> Vec<Train> {
    let mut found = Vec::new();
    let mut from = 0;
    while from + 1 < samples.len() {
        let gap = |k: usize| (samples[k + 1].t_ns - samples[k].t_ns) as f64;
        let (mut least, mut most) = (gap(from), gap(from));
        let mut to = from + 1;
        while to + 1 < samples.len() {
            let next = gap(to);
            let (low, high) = (least.min(next), most.max(next));
            if low <= 0.0 || high > settings.similarity * low {
                break;
            }
            (least, most) = (low, high);
            to += 1;
        }
        if to - from + 1 >= settings.least {
            found.extend(train(&samples[from..=to]));
        }
        from = to;
    }
    found
}

fn train(samples: &[Sample]) -> Option<Train> {
    let (first, last) = (samples.first()?, samples.last()?);
    let seconds = (last.t_ns - first.t_ns) as f64 / 1e9;
    let bytes: u64 = samples[1..].iter().map(|s| u64::from(s.wire)).sum();
    let acked: Vec<(i64, f64)> = samples
        .iter()
        .filter_map(|s| Some((s.acked_ns?, (s.acked_ns? - s.t_ns) as f64)))
        .collect();
    if seconds <= 0.0 || acked.len() < 3 {
        return None;
    }
    let delays: Vec<f64> = acked.iter().map(|a| a.1).collect();
    let back = (acked[acked.len() - 1].0 - acked[0].0) as f64 / 1e9;
    Some(Train {
        t_ns: first.t_ns,
        segments: samples.len(),
        rate: bytes as f64 / seconds,
        is_congested: rises(&delays),
        return_rate: (back > 0.0).then(|| bytes as f64 / back),
    })
}

/// Segments of a process by connection, with the acknowledgement that covered each.
fn samples(run: &Run, me: Node, settings: Trains) -> BTreeMap<(Node, u32), Vec<Sample>> {
    let mut all: BTreeMap<(Node, u32), Vec<Sample>> = BTreeMap::new();
    let mut open: HashMap<u32, VecDeque<(u32, usize)>> = HashMap::new();
    for packet in run.stream(me) {
        if packet.src == me && packet.is_data() && packet.dst != me {
            if packet.wire > settings.largest_bytes {
                continue;
            }
            let list = all.entry((packet.dst, packet.flow)).or_default();
            open.entry(packet.flow)
                .or_default()
                .push_back((packet.end_seq(), list.len()));
            list.push(Sample {
                t_ns: packet.t_ns,
                wire: packet.wire,
                acked_ns: None,
            });
        } else if packet.dst == me && packet.flags & ACK != 0 {
            let (Some(queue), Some(list)) = (
                open.get_mut(&packet.flow),
                all.get_mut(&(packet.src, packet.flow)),
            ) else {
                continue;
            };
            while let Some(&(end, at)) = queue.front() {
                if (packet.ack.wrapping_sub(end) as i32) < 0 {
                    break;
                }
                list[at].acked_ns = Some(packet.t_ns);
                queue.pop_front();
            }
        }
    }
    all
}

/// Available bandwidth of every pair that sent trains.
///
/// # Errors
/// When no process sent a train.
pub fn available_bandwidth(run: &Run) -> Result<Vec<Available>, Unknown> {
    run.need_packets()?;
    let settings = Trains::default();
    let mut by_pair: BTreeMap<(Node, Node), Vec<Train>> = BTreeMap::new();
    for me in run.all().filter(|&me| run.is_own(me)) {
        for ((peer, _), list) in samples(run, me, settings) {
            by_pair
                .entry((me, peer))
                .or_default()
                .extend(trains(&list, settings));
        }
    }
    by_pair.retain(|_, trains| !trains.is_empty());
    if by_pair.is_empty() {
        return Err(Unknown::new(
            "no process sent five evenly spaced segments of wire size in a row",
        ));
    }
    Ok(by_pair
        .into_iter()
        .map(|((src, dst), trains)| combine(src, dst, trains, settings))
        .collect())
}

fn combine(src: Node, dst: Node, mut trains: Vec<Train>, settings: Trains) -> Available {
    trains.sort_by_key(|train| train.t_ns);
    let window = (settings.window_s * 1e9) as i64;
    let start = trains.first().map_or(0, |train| train.t_ns);
    let mut windows: BTreeMap<i64, (Option<f64>, Option<f64>)> = BTreeMap::new();
    for train in &trains {
        let bounds = windows
            .entry((train.t_ns - start) / window.max(1))
            .or_default();
        if train.is_congested {
            bounds.1 = Some(bounds.1.map_or(train.rate, |most| most.min(train.rate)));
        } else {
            bounds.0 = Some(bounds.0.map_or(train.rate, |least| least.max(train.rate)));
        }
    }
    let both = windows
        .values()
        .filter_map(|(low, high)| Some((low.as_ref()? + high.as_ref()?) / 2.0));
    let rates = |congested: bool| {
        let of = trains
            .iter()
            .filter(move |train| train.is_congested == congested);
        of.map(|train| train.rate)
    };
    Available {
        src,
        dst,
        trains: trains.len(),
        congested: rates(true).count(),
        at_least: rates(false).reduce(f64::max),
        at_most: rates(true).reduce(f64::min),
        median: quantile::median(both),
    }
}

/// How long a receiver let data lie unread: the right edge of its window stood still, or was
/// closed, while data came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Segments with a window of zero.
    pub zero_windows: u64,
    /// Data segments that came while the edge stood still.
    pub while_still: u64,
}

/// Stalled receive windows of every process.
pub fn stalls(run: &Run) -> Vec<Stalls> {
    run.all()
        .map(|me| {
            let mut found = Stalls::default();
            let mut edge: HashMap<u32, (u32, u64)> = HashMap::new();
            for packet in run.stream(me) {
                let is_plain = |p: &Packet| p.flags & (SYN | super::run::RST) == 0;
                if packet.src == me && is_plain(packet) && packet.flags & ACK != 0 {
                    found.zero_windows += u64::from(packet.window == 0);
                    let right = packet.ack.wrapping_add(packet.window);
                    let (last, waiting) = edge.entry(packet.flow).or_insert((right, 0));
                    if (right.wrapping_sub(*last) as i32) <= 0 && *waiting > 0 {
                        found.while_still += *waiting;
                    }
                    *last = right;
                    *waiting = 0;
                } else if packet.dst == me
                    && packet.is_data()
                    && let Some((_, waiting)) = edge.get_mut(&packet.flow)
                {
                    *waiting += 1;
                }
            }
            found
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::testing::{data, run_of};

    #[test]
    fn delays_that_rise_are_told_from_those_that_wander() {
        assert!(rises(&[1.0, 2.0, 3.0, 4.0, 4.5]));
        assert!(!rises(&[1.0, 2.0, 1.0, 2.0, 1.5]));
        assert!(!rises(&[1.0, 1.0, 1.0]));
        assert!(!rises(&[]));
    }

    /// A path with 100 Mbit/s of which 40 are used by others: trains above 60 pile up.
    #[test]
    fn what_is_left_of_a_link_is_found() {
        let free = 60e6 / 8.0;
        let mut samples_of = Vec::new();
        for k in 0..40 {
            let rate = 2e6 + 0.4e6 * f64::from(k % 20);
            let gap = 1500.0 / rate;
            let mut queue = 0.0f64;
            let start = f64::from(k) * 1.0;
            for i in 0..20 {
                let t = start + f64::from(i) * gap;
                if i > 0 {
                    queue = (queue + 1500.0 / free - gap).max(0.0);
                }
                let back = t + 0.001 + queue;
                samples_of.push(Sample {
                    t_ns: (t * 1e9) as i64,
                    wire: 1500,
                    acked_ns: Some((back * 1e9) as i64),
                });
            }
        }
        let found = trains(&samples_of, Trains::default());
        assert!(found.len() >= 40, "{}", found.len());
        let available = combine(0, 1, found, Trains::default());
        let median = available.median.unwrap();
        assert!((median / free - 1.0).abs() < 0.2, "{median} of {free}");
        assert!(
            available.at_least.unwrap() <= free * 1.05 && available.at_most.unwrap() >= free * 0.95
        );
    }

    #[test]
    fn single_messages_are_no_trains() {
        let packets = [data(0, 0, 1, 10), data(1000, 1, 0, 10)];
        assert!(available_bandwidth(&run_of(2, &packets)).is_err());
    }

    #[test]
    fn a_closed_window_is_counted() {
        let mut packets = vec![data(0, 1, 0, 10), data(10, 0, 1, 10)];
        packets.push(data(20, 1, 0, 10));
        let found = stalls(&run_of(2, &packets));
        // Hand-made packets have no window at all.
        assert!(found[0].zero_windows >= 1);
    }
}
