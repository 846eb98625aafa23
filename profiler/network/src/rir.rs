//! Round-trip iteration rate (chapter 3): the number of times that a process receives from a peer
//! before it sends again.

use super::matrix::Matrix;
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
    /// Sends that began an iteration, ns.
    pub times_ns: Vec<i64>,
}

/// The iterations of a pair, and their numbers with other thresholds; `None` for an unknown threshold.
pub type WithCounts<const N: usize> = (Events, [Option<usize>; N]);

/// Kind of a packet in the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Own data.
    Sent,
    /// Data from the peer.
    Received,
}

/// Factor on the least round-trip time.
const FACTOR: f64 = 1.5;

/// The rule of 3.4.1 for one pair. A send is an iteration if it comes more than the threshold after the
/// send before it, with data of the peer between them. An acknowledgement is not enough, since a wait
/// for the window (figure 3.2b) is no iteration.
pub fn iterations(packets: impl IntoIterator<Item = (i64, Seen)>, threshold_ns: i64) -> Vec<i64> {
    let mut gaps = Gaps::default();
    let of = |(t, seen)| Some((t, gaps.next(t, seen)?));
    let gaps = packets.into_iter().filter_map(of);
    gaps.filter(|(_, gap)| *gap > threshold_ns)
        .map(|(t, _)| t)
        .collect()
}

/// The gaps between the sends of one pair.
#[derive(Debug, Default)]
struct Gaps {
    last: Option<i64>,
    is_answered: bool,
}

impl Gaps {
    /// The gap before this packet, ns, if it is a send and the peer has answered the send before.
    fn next(&mut self, t_ns: i64, seen: Seen) -> Option<i64> {
        if seen == Seen::Received {
            self.is_answered = true;
            return None;
        }
        let last = self.last.replace(t_ns);
        let is_answered = std::mem::take(&mut self.is_answered);
        Some(t_ns - last.filter(|_| is_answered)?)
    }
}

/// The threshold of the mode. Thesis: one value for all pairs, given by the user from a ping (mean and
/// deviation), otherwise 400 µs as in its sample command.
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

/// The iterations, and their numbers for each pair with other thresholds.
///
/// # Errors
/// When the interval holds no packet.
pub fn events_and_counts<const N: usize>(
    run: &Run,
    thresholds_ns: impl Fn(Node, Node) -> [Option<i64>; N],
) -> Result<Vec<WithCounts<N>>, Unknown> {
    run.need_packets()?;
    // Place in the list plus one, by sender and receiver. There may be many processes and few pairs.
    let mut places: Matrix<u32> = Matrix::new(run.nodes().len());
    let mut pairs: Vec<Pair<N>> = Vec::new();
    run.each_seen(|me, packet| {
        if !packet.is_data() || packet.src == packet.dst {
            return;
        }
        let (peer, seen) = match packet.src == me {
            true => (packet.dst, Seen::Sent),
            false => (packet.src, Seen::Received),
        };
        let place = places.at_mut(usize::from(me), usize::from(peer));
        if *place == 0 {
            pairs.push(Pair::new(run, me, peer, thresholds_ns(me, peer)));
            *place = pairs.len() as u32;
        }
        pairs[*place as usize - 1].see(packet.t_ns, seen);
    });
    pairs.sort_by_key(|pair| (pair.events.me, pair.events.peer));
    let found = pairs.into_iter();
    Ok(found.map(|pair| (pair.events, pair.counts)).collect())
}

/// State of one pair.
struct Pair<const N: usize> {
    gaps: Gaps,
    events: Events,
    others_ns: [Option<i64>; N],
    counts: [Option<usize>; N],
}

impl<const N: usize> Pair<N> {
    fn new(run: &Run, me: Node, peer: Node, others_ns: [Option<i64>; N]) -> Pair<N> {
        Pair {
            gaps: Gaps::default(),
            events: Events {
                me,
                peer,
                // Without a clean sample only the second condition counts.
                threshold_ns: threshold_ns(run, me, peer).unwrap_or(0),
                times_ns: Vec::new(),
            },
            others_ns,
            counts: others_ns.map(|other| other.map(|_| 0)),
        }
    }

    fn see(&mut self, t_ns: i64, seen: Seen) {
        let Some(gap) = self.gaps.next(t_ns, seen) else {
            return;
        };
        if gap > self.events.threshold_ns {
            self.events.times_ns.push(t_ns);
        }
        for (count, other) in self.counts.iter_mut().zip(self.others_ns) {
            if let (Some(count), Some(other)) = (count, other) {
                *count += usize::from(gap > other);
            }
        }
    }
}

/// Counts per sliding window (3.4.2): `y(k)` is the number of events in
/// `[t0 + k step, t0 + k step + window)`. Only windows within `[t0, t1]` count.
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

/// The mean of [`series`] without computing the series; `None` if it is empty.
fn mean(times_ns: &[i64], (t0, t1): (i64, i64), window_s: f64, step_s: f64) -> Option<f64> {
    let (window, step) = ((window_s * 1e9) as i64, (step_s * 1e9) as i64);
    if window <= 0 || step <= 0 || t1 - t0 < window {
        return None;
    }
    let last = (t1 - t0 - window) / step;
    let windows_with = |&event: &i64| {
        let first = (event - t0 - window).div_euclid(step) + 1;
        ((event - t0).div_euclid(step).min(last) - first.max(0) + 1).max(0)
    };
    let sum: i64 = times_ns.iter().map(windows_with).sum();
    Some(sum as f64 / (last + 1) as f64)
}

/// Events per bin of `bin_ns` from `t0`, without overlap. The last bin is left out if it is incomplete.
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

/// Mean rate of one pair, per second. Thesis: the mean of the sliding series (3.5.1). Default: the
/// iterations between the first and the last one, divided by the time between these.
pub fn rate(run: &Run, events: &Events) -> Result<f64, Unknown> {
    if run.settings.mode == Mode::Thesis {
        let (window, step) = run.rate_window(1)?;
        let mean = mean(&events.times_ns, run.span_ns(), window, step);
        let mean = mean.map(|mean| mean / window);
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
    /// `percentiles[k - 1]` is the value below which k percent of the values lie.
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

/// Slowdown by rate: pairs of rate and fraction of full speed, with linear interpolation between them
/// and constant values outside.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowdownTable(Vec<(f64, f64)>);

impl SlowdownTable {
    /// A table, sorted by rate; `None` without an entry.
    pub fn new(mut entries: Vec<(f64, f64)>) -> Option<Self> {
        entries.retain(|(rate, fraction)| rate.is_finite() && fraction.is_finite());
        entries.sort_by(|a, b| a.0.total_cmp(&b.0));
        (!entries.is_empty()).then_some(SlowdownTable(entries))
    }

    /// The fraction of full speed at a rate.
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
