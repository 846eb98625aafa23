//! Round-trip iteration rate (chapter 3): how often a process hears from a peer before it sends on.

use super::quantile;
use super::rtt;
use super::run::{Mode, Node, Run, Unknown};

/// Times of the iterations of one ordered pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events {
    /// The process whose sends are counted.
    pub me: Node,
    /// Its partner.
    pub peer: Node,
    /// Gap between two sends that makes an iteration, ns.
    pub threshold_ns: i64,
    /// The sends that began one, ns.
    pub times_ns: Vec<i64>,
}

/// The iterations of a pair, and how many it has with each of other thresholds that are known.
pub type WithCounts<const N: usize> = (Events, [Option<usize>; N]);

/// What the rule sees of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Own data.
    Sent,
    /// Data from the peer.
    Received,
}

/// Factor on the least round-trip time.
const FACTOR: f64 = 1.5;

/// The rule of 3.4.1 for one pair: a send is an iteration when it comes more than the threshold
/// after the one before it, and data of the peer was seen between them. Data and not an
/// acknowledgement: waiting for the window (figure 3.2b) is no iteration.
pub fn iterations(packets: impl IntoIterator<Item = (i64, Seen)>, threshold_ns: i64) -> Vec<i64> {
    let mut last: Option<i64> = None;
    let mut is_answered = false;
    let mut times = Vec::new();
    for (t, seen) in packets {
        match seen {
            Seen::Received => is_answered = true,
            Seen::Sent => {
                if is_answered && last.is_some_and(|last| t - last > threshold_ns) {
                    times.push(t);
                }
                last = Some(t);
                is_answered = false;
            }
        }
    }
    times
}

/// The gap that the mode asks for. Thesis: one value for all pairs, given by the user from a ping
/// (mean and deviation), 400 µs as in its sample command otherwise.
pub fn threshold_ns(run: &Run, me: Node, peer: Node) -> Option<i64> {
    if let Some(given) = run.settings.rtt_threshold_ns {
        return Some(given);
    }
    match run.settings.mode {
        Mode::Thesis => Some(400_000),
        Mode::Default => rtt::least_ns(run, me, peer).map(|least| (least as f64 * FACTOR) as i64),
    }
}

/// The iterations of all ordered pairs that exchange data, by `(me, peer)`.
///
/// # Errors
/// When the interval holds no packet.
pub fn events(run: &Run) -> Result<Vec<Events>, Unknown> {
    let all = events_and_counts(run, |_, _| [])?;
    Ok(all.into_iter().map(|(events, [])| events).collect())
}

/// The same with the numbers of iterations that each pair has with other thresholds.
///
/// # Errors
/// When the interval holds no packet.
pub fn events_and_counts<const N: usize>(
    run: &Run,
    thresholds_ns: impl Fn(Node, Node) -> [Option<i64>; N],
) -> Result<Vec<WithCounts<N>>, Unknown> {
    run.need_packets()?;
    let of_pair = |(me, peer, packets): (Node, Node, Vec<(i64, Seen)>)| {
        let times = |threshold| iterations(packets.iter().copied(), threshold);
        // Without a clean sample the second condition decides alone.
        let threshold_ns = threshold_ns(run, me, peer).unwrap_or(0);
        let events = Events {
            me,
            peer,
            threshold_ns,
            times_ns: times(threshold_ns),
        };
        let others = thresholds_ns(me, peer);
        (events, others.map(|other| other.map(|ns| times(ns).len())))
    };
    Ok(by_pair(run).map(of_pair).collect())
}

/// What each process sent to each of its peers and received of it, as far as iterations need that.
fn by_pair(run: &Run) -> impl Iterator<Item = (Node, Node, Vec<(i64, Seen)>)> {
    run.all().flat_map(|me| {
        let mut pairs: Vec<Vec<(i64, Seen)>> = vec![Vec::new(); run.nodes().len()];
        for packet in run.stream(me).filter(|p| p.is_data() && p.src != p.dst) {
            let (peer, seen) = if packet.src == me {
                (packet.dst, Seen::Sent)
            } else {
                (packet.src, Seen::Received)
            };
            let pair = &mut pairs[usize::from(peer)];
            // Only changes of direction and gaps matter; runs of arrivals need one entry.
            if seen == Seen::Sent || pair.last().is_none_or(|last| last.1 == Seen::Sent) {
                pair.push((packet.t_ns, seen));
            }
        }
        let of_pair = move |(peer, packets)| (me, peer as Node, packets);
        let pairs = pairs.into_iter().enumerate().map(of_pair);
        pairs.filter(|(.., packets)| !packets.is_empty())
    })
}

/// Counts per sliding window (3.4.2): `y(k)` events in `[t0 + k step, t0 + k step + window)`,
/// windows that lie wholly inside `[t0, t1]` only.
pub fn series(times_ns: &[i64], (t0, t1): (i64, i64), window_s: f64, step_s: f64) -> Vec<f64> {
    let (window, step) = ((window_s * 1e9) as i64, (step_s * 1e9) as i64);
    if window <= 0 || step <= 0 || t1 - t0 < window {
        return Vec::new();
    }
    let before = |t: i64| times_ns.partition_point(|&event| event < t);
    (0..=(t1 - t0 - window) / step)
        .map(|k| t0 + k * step)
        .map(|from| (before(from + window) - before(from)) as f64)
        .collect()
}

/// Events per bin of `bin_ns`, no overlap, from `t0`; the last bin may be cut short and is left out.
pub fn binned(
    times_ns: impl IntoIterator<Item = i64>,
    (t0, t1): (i64, i64),
    bin_ns: i64,
) -> Vec<f64> {
    let bins = ((t1 - t0).max(0) / bin_ns.max(1)) as usize;
    let mut counts = vec![0.0; bins];
    for t in times_ns {
        let bin = (t - t0).div_euclid(bin_ns.max(1));
        if let Ok(bin) = usize::try_from(bin)
            && let Some(count) = counts.get_mut(bin)
        {
            *count += 1.0;
        }
    }
    counts
}

/// Mean rate of one pair, per second: thesis, the mean of the sliding series (3.5.1); default, the
/// iterations between the first and the last one over the time between them.
pub fn rate(run: &Run, events: &Events) -> Result<f64, Unknown> {
    if run.settings.mode == Mode::Thesis {
        let window = run.settings.rate_window_s;
        let y = series(
            &events.times_ns,
            run.span_ns(),
            window,
            run.settings.rate_step_s,
        );
        let mean = quantile::mean(&y).map(|mean| mean / window);
        return mean.ok_or_else(|| {
            Unknown::new(format!(
                "the interval is shorter than the window of {window} s"
            ))
        });
    }
    let times = &events.times_ns;
    match (times.first(), times.last()) {
        (Some(first), Some(last)) if last > first => {
            Ok((times.len() - 1) as f64 / ((last - first) as f64 / 1e9))
        }
        _ => Err(Unknown::new("fewer than two iterations")),
    }
}

/// Predicted execution time from a base run (3.8): `base_s * base_rate / rate`.
pub fn predicted_s(base_s: f64, base_rate: f64, rate: f64) -> Option<f64> {
    (rate > 0.0 && base_rate > 0.0).then(|| base_s * base_rate / rate)
}

/// Distribution of the rate (3.9): values at 1 … 100 percent, spread from 5 to 95 percent, median.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// `percentiles[k - 1]` is the value below which k percent lie.
    pub percentiles: Vec<f64>,
    /// q95 - q5.
    pub spread: f64,
    /// Median.
    pub median: f64,
}

/// The distribution of a series; `None` for an empty one.
pub fn distribution(values: &[f64]) -> Option<Distribution> {
    let sorted = quantile::sorted(values.iter().copied());
    let at = |percent: f64| quantile::quantile(&sorted, percent / 100.0);
    let percentiles: Option<Vec<f64>> = (1..=100).map(|k| at(f64::from(k))).collect();
    Some(Distribution {
        percentiles: percentiles?,
        spread: at(95.0)? - at(5.0)?,
        median: at(50.0)?,
    })
}

/// What a rate costs: pairs of rate and fraction of full speed, linear between, constant outside.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowdownTable(Vec<(f64, f64)>);

impl SlowdownTable {
    /// A table; sorted by rate here. `None` without an entry.
    pub fn new(mut entries: Vec<(f64, f64)>) -> Option<Self> {
        entries.retain(|(rate, fraction)| rate.is_finite() && fraction.is_finite());
        entries.sort_by(|a, b| a.0.total_cmp(&b.0));
        (!entries.is_empty()).then_some(SlowdownTable(entries))
    }

    /// The fraction at a rate.
    pub fn at(&self, rate: f64) -> f64 {
        let entries = &self.0;
        let above = entries.partition_point(|(known, _)| *known <= rate);
        match (above.checked_sub(1).map(|i| entries[i]), entries.get(above)) {
            (Some((r0, f0)), Some(&(r1, f1))) => f0 + (f1 - f0) * (rate - r0) / (r1 - r0),
            (Some((_, fraction)), None) | (None, Some(&(_, fraction))) => fraction,
            (None, None) => 1.0,
        }
    }

    /// The distribution of the fractions of a series, and their mean (3.9.3).
    pub fn distribution(&self, series: &[f64]) -> Option<(Distribution, f64)> {
        let fractions: Vec<f64> = series.iter().map(|&rate| self.at(rate)).collect();
        Some((distribution(&fractions)?, quantile::mean(&fractions)?))
    }
}

#[cfg(test)]
mod tests;
