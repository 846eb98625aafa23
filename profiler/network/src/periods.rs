//! Every period of a run, by component: the groups of processes that talk with each other and repeat together.
//!
//! A capture may have several programs, and a program several loops. Processes that exchange much are
//! one group. If the pairs of a group repeat at unrelated lengths, it is split into several. For each
//! group, the messages show the loops in which they are sent ([`repeat`]), and the rate shows its fast
//! and slow swings ([`period`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::messages::{self, Message};
use super::period::{self, Estimate, Swing, Verdict};
use super::repeat::{self, Iterations, Repetition};
use super::rir::{self, Events};
use super::run::{Node, Run, Unknown};
use super::{matrix, quantile};

/// Least share of the heaviest pair on either side for a pair that joins two groups. Launchers and
/// clocks are below it.
const LEAST_JOIN: f64 = 0.1;
/// Least share of its group's bytes for a pair that may be a component of its own.
const LEAST_SHARE: f64 = 0.1;
/// Most pairs of a group for which each pair is analysed by itself.
const MOST_PAIRS: usize = 24;
/// Number of groups that are analysed, the heaviest ones.
const MOST_GROUPS: usize = 32;
/// Ratios of lengths that belong to one program, nearly.
const RELATED: [f64; 4] = [1.0, 2.0, 3.0, 4.0];
const NEARLY: f64 = 0.08;
/// A pair repeats by itself if the lengths in both directions differ by no more than `AGREE`, at least
/// `LEAST_SCORE` of its messages come again, and they do so more than `LEAST_COUNT` times.
const AGREE: f64 = 0.1;
const LEAST_SCORE: f64 = 0.6;
const LEAST_COUNT: usize = 6;
/// Least factor of a swing of the rate over the messages' repetition for a period of its own.
const SLOWER: f64 = 4.0;

/// Method by which a period was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The same messages come again.
    Messages,
    /// The same messages come again within each repetition.
    Inner,
    /// The order of the receivers comes again, or of short and long pauses between sends to one.
    Order,
    /// The rate of iterations swings.
    Rate,
}

impl Basis {
    /// Name for people and programs.
    pub fn name(self) -> &'static str {
        match self {
            Basis::Messages => "messages",
            Basis::Inner => "inner loop",
            Basis::Order => "order of sends",
            Basis::Rate => "rate",
        }
    }
}

/// One period with its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Period {
    /// Length, s.
    pub seconds: f64,
    /// Least and largest length that the evidence allows, s.
    pub range_s: (f64, f64),
    /// Number of repetitions.
    pub count: f64,
    /// Method by which it was found.
    pub basis: Basis,
    /// Probability of such a repetition by chance; for messages an upper bound.
    pub p_value: Option<f64>,
    /// Least difference between two frequencies that can be distinguished, Hz.
    pub resolution_hz: f64,
    /// Maximum of the autocorrelation of the rate near a lag of one period; `None` if it has none
    /// there.
    pub autocorrelation: Option<f64>,
}

/// Processes that repeat together.
#[derive(Clone, Debug, PartialEq)]
pub struct Component {
    /// Sender and receiver, both directions.
    pub pairs: Vec<(Node, Node)>,
    /// Bytes that the pairs carry.
    pub payload_bytes: u64,
    /// Periods that messages show come first, since they do not depend on time; then the others. The
    /// longest of each kind is first.
    pub periods: Vec<Period>,
    /// Other lengths that the spectrum allows, s.
    pub alternatives_s: Vec<f64>,
    /// The spectrum, or the reason why there is none.
    pub spectral: Result<Estimate, Unknown>,
    /// Iterations from the messages, regular or not.
    pub iterations: Option<Iterations>,
}

/// All components of a run. Those with a period come first, then the heaviest.
///
/// # Errors
/// When the interval holds no packet.
pub fn of_run(run: &Run) -> Result<Vec<Component>, Unknown> {
    let found = messages::messages(run)?;
    let events = rir::events(run)?;
    let traffic = matrix::traffic(run)?;
    let mut bytes: BTreeMap<Pair, u64> = BTreeMap::new();
    for (src, dst, cell) in traffic.off_diagonal() {
        if cell.payload_bytes > 0 {
            *bytes.entry(pair(src as Node, dst as Node)).or_default() += cell.payload_bytes;
        }
    }
    let mut groups = Vec::new();
    for group in joined(&bytes) {
        groups.extend(apart(&group, &bytes, &found, &events));
    }
    // A single group is the whole run, whose iterations other analyses need too.
    let whole = match groups.len() {
        1 => Some(repeat::of_run(run)?.map(Arc::unwrap_or_clone)),
        _ => None,
    };
    groups
        .sort_by_key(|group| std::cmp::Reverse(group.iter().map(|pair| bytes[pair]).sum::<u64>()));
    groups.truncate(MOST_GROUPS);
    let component = |group: &Vec<Pair>| {
        let pairs: BTreeSet<Pair> = group.iter().copied().collect();
        let is_of = |src: Node, dst: Node| pairs.contains(&pair(src, dst));
        let iterations = whole.clone().unwrap_or_else(|| {
            let of: Vec<Message> = found
                .iter()
                .filter(|m| is_of(m.src, m.dst))
                .copied()
                .collect();
            repeat::iterations(&of)
        });
        let of = events
            .iter()
            .filter(|e| whole.is_some() || is_of(e.me, e.peer));
        let times: Vec<Vec<i64>> = of.map(|e| e.times_ns.clone()).collect();
        Component {
            pairs: group.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).collect(),
            payload_bytes: group.iter().map(|pair| bytes[pair]).sum(),
            ..of_events(&times, run.span_ns(), iterations)
        }
    };
    let mut components: Vec<Component> = groups.iter().map(component).collect();
    components.sort_by_key(|c| (c.periods.is_empty(), std::cmp::Reverse(c.payload_bytes)));
    Ok(components)
}

/// Two processes, the lower one first.
type Pair = (Node, Node);

fn pair(a: Node, b: Node) -> Pair {
    (a.min(b), a.max(b))
}

/// The pairs within each group of processes. A light pair between two groups does not join them, and is
/// in neither.
fn joined(bytes: &BTreeMap<Pair, u64>) -> Vec<Vec<Pair>> {
    let mut pairs: Vec<(Pair, u64)> = bytes.iter().map(|(pair, bytes)| (*pair, *bytes)).collect();
    pairs.sort_by_key(|(pair, bytes)| (std::cmp::Reverse(*bytes), *pair));
    let mut group_of: BTreeMap<Node, usize> = BTreeMap::new();
    let mut groups: Vec<Vec<(Pair, u64)>> = Vec::new();
    for ((a, b), bytes) in pairs {
        let into = match (group_of.get(&a).copied(), group_of.get(&b).copied()) {
            (None, None) => {
                groups.push(Vec::new());
                groups.len() - 1
            }
            (Some(one), None) | (None, Some(one)) => one,
            (Some(one), Some(other)) if one == other => one,
            (Some(one), Some(other)) => {
                // The heaviest pair of each group is its first one.
                let lighter = groups[one][0].1.min(groups[other][0].1);
                if (bytes as f64) < LEAST_JOIN * lighter as f64 {
                    continue;
                }
                let moved = std::mem::take(&mut groups[other]);
                groups[one].extend(moved);
                groups[one].sort_by_key(|(pair, bytes)| (std::cmp::Reverse(*bytes), *pair));
                for group in group_of.values_mut().filter(|group| **group == other) {
                    *group = one;
                }
                one
            }
        };
        groups[into].push(((a, b), bytes));
        group_of.insert(a, into);
        group_of.insert(b, into);
    }
    groups.retain(|group| !group.is_empty());
    groups
        .into_iter()
        .map(|group| group.into_iter().map(|(pair, _)| pair).collect())
        .collect()
}

/// The parts of a group whose pairs repeat at unrelated lengths.
fn apart(
    group: &[Pair],
    bytes: &BTreeMap<Pair, u64>,
    found: &[Message],
    events: &[Events],
) -> Vec<Vec<Pair>> {
    let whole: u64 = group.iter().map(|pair| bytes[pair]).sum();
    let heavy = |pair: &&Pair| bytes[*pair] as f64 >= LEAST_SHARE * whole as f64;
    if group.len() < 2 || group.len() > MOST_PAIRS {
        return vec![group.to_vec()];
    }
    let of: Vec<Message> = found
        .iter()
        .filter(|m| group.contains(&pair(m.src, m.dst)))
        .copied()
        .collect();
    let repetitions = repeat::repetitions(&of);
    let heavies: Vec<&Pair> = group.iter().filter(heavy).collect();
    let mut parts: Vec<(Length, Vec<Pair>)> = Vec::new();
    for &&of in &heavies {
        let own = by_messages(of, &repetitions).or_else(|| by_rate(of, events, heavies.len()));
        let Some(own) = own else { continue };
        match parts.iter_mut().find(|(other, _)| are_related(own, *other)) {
            Some((_, part)) => part.push(of),
            None => parts.push((own, vec![of])),
        }
    }
    if parts.len() < 2 {
        return vec![group.to_vec()];
    }
    // Pairs without a length of their own belong to the heaviest part.
    let is_known = |pair: &Pair| parts.iter().any(|(_, part)| part.contains(pair));
    let rest: Vec<Pair> = group
        .iter()
        .filter(|pair| !is_known(pair))
        .copied()
        .collect();
    let mut parts: Vec<Vec<Pair>> = parts.into_iter().map(|(_, part)| part).collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.iter().map(|pair| bytes[pair]).sum::<u64>()));
    parts[0].extend(rest);
    parts
}

/// A length and its possible error, s.
type Length = (f64, f64);

/// True if one length may be the other or a small multiple of it.
fn are_related(a: Length, b: Length) -> bool {
    let (short, long) = if a.0 <= b.0 { (a, b) } else { (b, a) };
    let is_near = |times: &f64| {
        let off = f64::max(NEARLY * long.0, times * short.1 + long.1);
        (times * short.0 - long.0).abs() <= off
    };
    RELATED.iter().any(is_near)
}

/// The length at which the messages of a pair repeat, if both directions agree.
fn by_messages(of: Pair, repetitions: &[Repetition]) -> Option<Length> {
    let length = |(src, dst): Pair| {
        let is_sure = |r: &&Repetition| r.score >= LEAST_SCORE && r.times_ns.len() > LEAST_COUNT;
        let of = repetitions.iter().filter(|r| (r.src, r.dst) == (src, dst));
        let longest = of.filter(is_sure).max_by_key(|r| r.messages)?;
        let lengths = repeat::lengths(&longest.times_ns);
        let half = 2.0 * quantile::deviation(&lengths)? / (lengths.len() as f64).sqrt();
        Some((repeat::mean_length(&longest.times_ns), half))
    };
    let (there, back) = (length(of)?, length((of.1, of.0))?);
    let agree = (there.0 - back.0).abs() <= AGREE * there.0.max(back.0);
    agree.then_some(((there.0 + back.0) / 2.0, there.1.max(back.1)))
}

/// The period of the rate of a pair, which is one of `asked` tested pairs.
fn by_rate(of: Pair, events: &[Events], asked: usize) -> Option<Length> {
    let times = events.iter().filter(|e| pair(e.me, e.peer) == of);
    let times: Vec<Vec<i64>> = times.map(|e| e.times_ns.clone()).collect();
    let first = times.iter().filter_map(|times| times.first()).min()?;
    let last = times.iter().filter_map(|times| times.last()).max()?;
    let found = period::estimate(&times, (*first, *last));
    match found.verdict {
        Verdict::Periodic {
            hz,
            autocorrelation: Some(_),
            ..
        } if found.p_value * (asked as f64) < period::SIGNIFICANT => {
            Some((1.0 / hz, found.resolution_hz / 2.0 / hz.powi(2)))
        }
        _ => None,
    }
}

/// The periods of one group by its messages and rate. The caller sets the pairs.
fn of_events(times: &[Vec<i64>], span_ns: (i64, i64), iterations: Option<Iterations>) -> Component {
    let spectral = match times.iter().all(Vec::is_empty) {
        true => Err(Unknown::new(
            "no process sent twice to one that answered in between",
        )),
        false => match period::estimate(times, span_ns) {
            found if found.periodogram.power.is_empty() => {
                Err(Unknown::new("the interval is too short for a spectrum"))
            }
            found => Ok(found),
        },
    };
    let mut all: Vec<i64> = times.iter().flatten().copied().collect();
    all.sort_unstable();
    let regular = iterations.as_ref().filter(|found| found.is_regular());
    let mut periods = regular.map_or(Vec::new(), |found| by_loops(found, &all));
    let mut alternatives_s = Vec::new();
    let mut base_s = periods.first().map(|period| period.seconds);
    if let Ok(Estimate {
        verdict:
            Verdict::Periodic {
                hz,
                autocorrelation,
                alternatives,
                count,
            },
        p_value,
        resolution_hz,
        ..
    }) = &spectral
    {
        alternatives_s.extend(alternatives.iter().map(|hz| 1.0 / hz));
        match (base_s, autocorrelation) {
            (None, Some(r)) => {
                base_s = Some(1.0 / hz);
                periods.push(of_swing(&Swing {
                    hz: *hz,
                    p_value: *p_value,
                    resolution_hz: *resolution_hz,
                    count: *count,
                    autocorrelation: *r,
                }));
            }
            // A peak alone may come from a scheduler's time slices.
            _ => alternatives_s.insert(0, 1.0 / hz),
        }
    }
    // If known, the begins of iterations are a cleaner rate than the events within iterations.
    let begins = regular.map_or(&[][..], |found| found.begins_ns());
    for times in [begins, &all] {
        let slow = period::swings(times, base_s.unwrap_or(0.0));
        for swing in slow
            .iter()
            .filter(|swing| 1.0 / swing.hz >= SLOWER * base_s.unwrap_or(0.0))
        {
            let is_known = |known: &Period| {
                (1.0 / known.seconds - swing.hz).abs() <= 2.0 * swing.resolution_hz
                    || known.basis == Basis::Rate
                        && are_related((known.seconds, 0.0), (1.0 / swing.hz, 0.0))
            };
            if !periods.iter().any(is_known) {
                periods.push(of_swing(swing));
            }
        }
    }
    periods.sort_by(|a, b| {
        let kind = |period: &Period| (period.basis == Basis::Rate, period.basis == Basis::Inner);
        kind(a)
            .0
            .cmp(&kind(b).0)
            .then(b.seconds.total_cmp(&a.seconds))
    });
    Component {
        pairs: Vec::new(),
        payload_bytes: 0,
        periods,
        alternatives_s,
        spectral,
        iterations,
    }
}

/// The loops that messages show.
fn by_loops(found: &Iterations, times_ns: &[i64]) -> Vec<Period> {
    let whole_s = found.period_s * found.count as f64;
    let correlation = |seconds: f64| {
        let (first, last) = (times_ns.first()?, times_ns.last()?);
        let bin_s = f64::max(seconds / 64.0, (last - first) as f64 / 1e9 / 262_144.0);
        let counts = rir::binned(
            times_ns.iter().copied(),
            (*first, *last),
            (bin_s * 1e9) as i64,
        );
        period::autocorrelation(&counts, bin_s, 1.0 / seconds)
    };
    let mut loops = vec![Period {
        seconds: found.period_s,
        range_s: found.range_s,
        count: found.count as f64,
        basis: if found.is_by_order {
            Basis::Order
        } else {
            Basis::Messages
        },
        p_value: found.p_value,
        resolution_hz: 1.0 / whole_s.max(f64::MIN_POSITIVE),
        autocorrelation: correlation(found.period_s),
    }];
    loops.extend(found.inner.as_ref().map(|inner| Period {
        seconds: inner.period_s,
        range_s: inner.range_s,
        count: inner.count as f64,
        basis: Basis::Inner,
        p_value: Some(inner.p_value),
        resolution_hz: 1.0 / whole_s.max(f64::MIN_POSITIVE),
        autocorrelation: correlation(inner.period_s),
    }));
    loops
}

fn of_swing(swing: &Swing) -> Period {
    let at = |hz: f64| 1.0 / hz.max(f64::MIN_POSITIVE);
    Period {
        seconds: at(swing.hz),
        range_s: (
            at(swing.hz + swing.resolution_hz / 2.0),
            at(swing.hz - swing.resolution_hz / 2.0),
        ),
        count: swing.count,
        basis: Basis::Rate,
        p_value: Some(swing.p_value),
        resolution_hz: swing.resolution_hz,
        autocorrelation: Some(swing.autocorrelation),
    }
}

#[cfg(test)]
mod tests;
