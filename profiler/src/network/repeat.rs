//! Iterations from the sequence of messages.
//!
//! A program that iterates sends the same messages again, so the ends of its messages repeat in
//! the stream of bytes from one process to another at a fixed distance: the bytes of one
//! iteration. That distance does not depend on time, so load, start-up and jitter do not blur it,
//! and three iterations are enough, where a spectrum needs many. Sizes that differ a little from
//! one iteration to the next (an integer sort) are allowed for; a stream of equal messages has no
//! distance of its own: there the order of the receivers repeats ([`super::cycle`]).

use std::collections::HashSet;
use std::sync::Arc;

use ahash::AHashMap;

use super::chance::Chance;
use super::cycle;
use super::messages::{self, Message};
use super::plain;
use super::quantile;
use super::run::{Node, Run, Unknown};

/// Messages in which the distance is looked for; the chain is then followed through all.
const SAMPLE: usize = 4000;
/// Distances tried.
const CANDIDATES: usize = 300;
/// Next occurrences of a size looked at for distances.
const LAGS: usize = 8;
/// Least score of a repetition, and least lead over the same messages in a random order.
const LEAST_SCORE: f64 = 0.3;
const LEAST_LEAD: f64 = 0.1;
/// Pairs that repeat say something of the program when they carry this share of its payload: a
/// launcher repeats itself as well.
const LEAST_SHARE: f64 = 0.1;
/// Scores that are less apart are equal.
const AS_WELL: f64 = 0.05;
/// What arithmetic may be off.
const ROUNDING: f64 = 1e-9;
/// Other orders of the messages that a repetition must stand out of: of few messages, of many.
const ORDERS: (u64, u64) = (19, 2);
/// Messages from which a stream has many.
const MANY: usize = 400;
/// The mean of the single lengths must be known to this share, or nothing repeats in time.
const REGULAR: f64 = 0.5;
/// Repetitions needed.
pub(super) const LEAST_COUNT: usize = 3;

/// The repetition of one ordered pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Repetition {
    /// Sender.
    pub src: Node,
    /// Receiver.
    pub dst: Node,
    /// Bytes of one iteration.
    pub bytes: u64,
    /// Messages of the pair.
    pub messages: usize,
    /// Share of the messages that come again at this distance, 0 to 1, every size the same weight.
    pub score: f64,
    /// Moments at which the same message was sent, ns; one more than there are iterations.
    pub times_ns: Vec<i64>,
}

/// Iterations of the whole program.
#[derive(Clone, Debug, PartialEq)]
pub struct Iterations {
    /// Mean length of an iteration, s: the median over the pairs that show the most of them.
    pub period_s: f64,
    /// Within what the mean length lies, s: the means of those pairs, and 95 % of the means that
    /// as many iterations as different from each other would have.
    pub range_s: (f64, f64),
    /// Iterations seen.
    pub count: usize,
    /// Lengths of the single iterations at the pair nearest to the median, s.
    pub lengths_s: Vec<f64>,
    /// All pairs that repeat.
    pub pairs: Vec<Repetition>,
    /// Whether the order of the receivers repeats; else the sizes do.
    pub is_by_order: bool,
}

impl Iterations {
    /// Whether the single lengths agree so far that their mean is a period: what repeats now and
    /// then has none.
    pub fn is_regular(&self) -> bool {
        // An order that repeats is the program's, however long a part of it was held up.
        self.is_by_order || (self.range_s.1 - self.range_s.0) / 2.0 <= REGULAR * self.period_s
    }

    /// Moments at which an iteration began at the pair nearest to the median, ns.
    pub fn begins_ns(&self) -> &[i64] {
        let off = |pair: &Repetition| (mean_length(&pair.times_ns) - self.period_s).abs();
        let whole = self.pairs.iter().filter(|pair| {
            let count = pair.times_ns.len().saturating_sub(1);
            count * 10 >= self.count * 9
        });
        let nearest = whole.min_by(|a, b| off(a).total_cmp(&off(b)));
        nearest.map_or(&[], |pair| &pair.times_ns)
    }

    /// Widens the range by what the spread of the single lengths says of their mean.
    fn with_spread(mut self) -> Iterations {
        let n = self.lengths_s.len() as f64;
        let mean = quantile::mean(&self.lengths_s).unwrap_or(0.0);
        let squares: f64 = self.lengths_s.iter().map(|l| (l - mean).powi(2)).sum();
        if n > 1.0 {
            let half = 1.96 * (squares / (n - 1.0) / n).sqrt();
            self.range_s.0 = self.range_s.0.min(self.period_s - half).max(0.0);
            self.range_s.1 = self.range_s.1.max(self.period_s + half);
        }
        self
    }
}

/// The iterations of a run.
///
/// # Errors
/// When the interval holds no packet.
pub fn of_run(run: &Run) -> Result<Option<Arc<Iterations>>, Unknown> {
    let found = messages::messages(run)?;
    let look = || {
        let of_order = || cycle::iterations(&found, &*plain::of_run(run).ok()?);
        let found = by_size(&found).or_else(of_order)?;
        Some(Arc::new(found.with_spread()))
    };
    Ok(match run.memo() {
        Some(memo) => memo.iterations.get_or_init(look).clone(),
        None => look(),
    })
}

/// Looks for iterations in the messages of a run: by their sizes, or where these are all alike by
/// the order of their receivers. `None`: nothing repeats itself.
pub fn iterations(messages: &[Message]) -> Option<Iterations> {
    let found = by_size(messages);
    let found = found.or_else(|| cycle::iterations(messages, &plain::pairs(messages)))?;
    Some(found.with_spread())
}

fn by_size(messages: &[Message]) -> Option<Iterations> {
    // By pair and connection, in their order within each.
    let key = |m: &Message| u64::from(m.src) << 48 | u64::from(m.dst) << 32 | u64::from(m.flow);
    let keys = messages.iter().enumerate().map(|(i, m)| (key(m), i));
    let mut sorted: Vec<(u64, usize)> = keys.collect();
    sorted.sort_unstable();
    let streams = sorted.chunk_by(|a, b| a.0 == b.0);
    // Most of a million connections carry one message.
    let pairs: Vec<Repetition> = streams
        .filter(|stream| stream.len() > LEAST_COUNT)
        .map(|stream| stream.iter().map(|&(_, i)| &messages[i]).collect())
        .filter_map(|stream: Vec<&Message>| repetition(&stream))
        .collect();
    // The length that most pairs agree on, each with the weight of the messages it explains.
    let all: Vec<(f64, &Repetition)> = pairs
        .iter()
        .map(|pair| (mean_length(&pair.times_ns), pair))
        .collect();
    let weight = |pair: &Repetition| pair.score * pair.messages as f64;
    let heaviest = pairs.iter().map(weight).fold(0.0, f64::max);
    let agree = |a: f64, b: f64| (a - b).abs() <= 0.3 * a.max(b);
    let support = |length: f64| -> f64 {
        let same = all.iter().filter(|(other, _)| agree(length, *other));
        same.map(|(_, pair)| weight(pair)).sum()
    };
    let best = all
        .iter()
        .max_by(|a, b| {
            support(a.0)
                .total_cmp(&support(b.0))
                .then(b.0.total_cmp(&a.0))
        })?
        .0;
    let mut full: Vec<(f64, &Repetition)> = all;
    // A pair of a few messages at start-up and end is no witness.
    full.retain(|(length, pair)| agree(best, *length) && weight(pair) >= 0.1 * heaviest);
    let repeating: HashSet<(Node, Node)> = full.iter().map(|(_, p)| (p.src, p.dst)).collect();
    let carried = |message: &&Message| repeating.contains(&(message.src, message.dst));
    let payload: u64 = messages.iter().map(|message| message.bytes).sum();
    let of_these: u64 = messages.iter().filter(carried).map(|m| m.bytes).sum();
    if (of_these as f64) < LEAST_SHARE * payload as f64 {
        return None;
    }
    let most = full.iter().map(|(_, pair)| pair.times_ns.len()).max()?;
    // A pair that lost track of a message here and there shows fewer.
    full.retain(|(_, pair)| (pair.times_ns.len() - 1) * 10 >= (most - 1) * 9);
    full.sort_by(|a, b| a.0.total_cmp(&b.0));
    let periods: Vec<f64> = full.iter().map(|(period, _)| *period).collect();
    let period_s = quantile::quantile(&periods, 0.5)?;
    let middle = full.get(full.len() / 2)?.1;
    Some(Iterations {
        period_s,
        range_s: (*periods.first()?, *periods.last()?),
        count: most - 1,
        lengths_s: lengths(&middle.times_ns),
        pairs: pairs.clone(),
        is_by_order: false,
    })
}

pub(super) fn lengths(times_ns: &[i64]) -> Vec<f64> {
    times_ns
        .windows(2)
        .map(|w| (w[1] - w[0]) as f64 / 1e9)
        .collect()
}

/// Without what is no iteration: the first or last length may hold start-up or the end.
fn without_strays(times_ns: &[i64]) -> &[i64] {
    let all = lengths(times_ns);
    let median = quantile::median(all.iter().copied()).unwrap_or(0.0);
    let is_stray = |length: f64| length > 4.0 * median || length < 0.5 * median;
    let (mut from, mut to) = (0, all.len());
    while to - from > LEAST_COUNT && is_stray(all[from]) {
        from += 1;
    }
    while to - from > LEAST_COUNT && is_stray(all[to - 1]) {
        to -= 1;
    }
    &times_ns[from..=to]
}

pub(super) fn mean_length(times_ns: &[i64]) -> f64 {
    match (times_ns.first(), times_ns.last()) {
        (Some(first), Some(last)) if times_ns.len() > 1 => {
            (last - first) as f64 / 1e9 / (times_ns.len() - 1) as f64
        }
        _ => 0.0,
    }
}

/// How far a distance may be off, bytes.
fn tolerance(distance: u64) -> u64 {
    (distance * 3 / 1000).min(48)
}

/// Ends of messages in the stream of bytes, and where each size occurs.
struct Stream {
    ends: Vec<u64>,
    classes: Vec<Vec<usize>>,
}

impl Stream {
    fn new(sizes: &[u64]) -> Stream {
        let ends = sizes
            .iter()
            .scan(0, |sum, size| {
                *sum += size;
                Some(*sum)
            })
            .collect();
        let mut by_size: AHashMap<u64, Vec<usize>> = AHashMap::new();
        for (i, &size) in sizes.iter().enumerate() {
            by_size.entry(size).or_default().push(i);
        }
        let mut classes: Vec<Vec<usize>> = by_size.into_values().collect();
        classes.retain(|class| class.len() >= LEAST_COUNT);
        // Rare sizes say the most; the first one for equal counts, so that the order is fixed.
        classes.sort_by_key(|class| (class.len(), class[0]));
        Stream { ends, classes }
    }

    /// For each message of a class the place in it of the one whose end is `distance` after its own.
    fn links<'a>(
        &'a self,
        class: &'a [usize],
        distance: u64,
    ) -> impl Iterator<Item = Option<usize>> + 'a {
        let slack = tolerance(distance);
        let end = |at: usize| class.get(at).map(|&i| self.ends[i]);
        // Ends only grow: the search goes on from where the one before ended.
        let mut at = 0;
        class.iter().map(move |&i| {
            let from = self.ends[i] + distance - slack;
            while end(at).is_some_and(|end| end < from) {
                at += 1;
            }
            end(at)
                .is_some_and(|end| end <= from + 2 * slack)
                .then_some(at)
        })
    }

    /// The mean of the shares of each size that come again at this distance; `None`: it is below `least`,
    /// which mostly shows soon.
    fn score(&self, distance: u64, least: f64) -> Option<f64> {
        let last = self.ends.last().copied().unwrap_or(0);
        let within =
            |class: &Vec<usize>| class.partition_point(|&i| self.ends[i] + distance <= last);
        let classes = self.classes.iter().map(|class| (class, within(class)));
        let classes: Vec<(&Vec<usize>, usize)> = classes.filter(|(_, count)| *count > 0).collect();
        // What the rest of them may miss together.
        let mut spare = (1.0 - least) * classes.len() as f64 + ROUNDING;
        let mut shares = Vec::with_capacity(classes.len());
        for (class, count) in classes {
            let mut missed = 0;
            for link in self.links(class, distance).take(count) {
                missed += usize::from(link.is_none());
                if missed as f64 > spare * count as f64 {
                    return None;
                }
            }
            spare -= missed as f64 / count as f64;
            shares.push((count - missed) as f64 / count as f64);
        }
        Some(quantile::mean(&shares).unwrap_or(0.0))
    }

    fn candidates(&self) -> Vec<u64> {
        let last = self.ends.last().copied().unwrap_or(0);
        let mut found: std::collections::BTreeSet<u64> = std::collections::BTreeSet::new();
        for class in &self.classes {
            for lag in 1..=LAGS {
                for (a, b) in class.iter().zip(class.iter().skip(lag)) {
                    let distance = self.ends[*b] - self.ends[*a];
                    let slack = tolerance(distance);
                    let is_known = found
                        .range(distance - slack..=distance + slack)
                        .next()
                        .is_some();
                    if !is_known && distance.saturating_mul(LEAST_COUNT as u64) <= last {
                        found.insert(distance);
                    }
                    if found.len() >= CANDIDATES {
                        return found.into_iter().collect();
                    }
                }
            }
        }
        found.into_iter().collect()
    }

    /// The shortest of the distances that score as well as the best, if that is `least` or more.
    fn best(&self, least: f64) -> Option<(f64, u64)> {
        let mut best = least;
        let mut scored = Vec::new();
        for distance in self.candidates() {
            if let Some(score) = self.score(distance, best - AS_WELL) {
                best = best.max(score);
                scored.push((score, distance));
            }
        }
        scored
            .into_iter()
            .find(|(score, _)| *score >= best - AS_WELL)
    }

    /// The longest chain of equal messages at this distance.
    fn chain(&self, distance: u64) -> Vec<usize> {
        let mut best = Vec::new();
        for class in &self.classes {
            let links: Vec<Option<usize>> = self.links(class, distance).collect();
            // A link leads forward: behind each message its chain is known before its own.
            let mut lengths = vec![1_usize; class.len()];
            for at in (0..class.len()).rev() {
                lengths[at] += links[at].map_or(0, |next| lengths[next]);
            }
            let longest = lengths.iter().copied().max().unwrap_or(0);
            if longest > best.len() {
                let first = lengths.iter().position(|length| *length == longest);
                let chain = std::iter::successors(first, |&at| links[at]);
                best = chain.map(|at| class[at]).collect();
            }
        }
        best
    }
}

fn repetition(messages: &[&Message]) -> Option<Repetition> {
    let first = messages.first()?;
    let sizes: Vec<u64> = messages.iter().map(|message| message.bytes).collect();
    // From the middle: start-up and the end repeat nothing.
    let from = sizes.len().saturating_sub(SAMPLE) / 2;
    let sample = &sizes[from..sizes.len().min(from + SAMPLE)];
    let stream = Stream::new(sample);
    let (score, distance) = stream.best(LEAST_SCORE)?;
    if score < LEAST_SCORE {
        return None;
    }
    // Of few messages one other order may fall out well or badly by itself.
    let orders = if sample.len() < MANY {
        ORDERS.0
    } else {
        ORDERS.1
    };
    for order in 0..orders {
        let other = Stream::new(&shuffled(sample, order)).best(score - LEAST_LEAD - ROUNDING);
        if score < other.map_or(0.0, |best| best.0) + LEAST_LEAD {
            return None;
        }
    }
    let chain = Stream::new(&sizes).chain(distance);
    if chain.len() <= LEAST_COUNT {
        return None;
    }
    let times_ns: Vec<i64> = chain.iter().map(|&i| messages[i].sent_ns.0).collect();
    Some(Repetition {
        src: first.src,
        dst: first.dst,
        bytes: distance,
        messages: messages.len(),
        score,
        times_ns: without_strays(&times_ns).to_vec(),
    })
}

/// The same messages in another order, the same one for the same number.
fn shuffled(sizes: &[u64], order: u64) -> Vec<u64> {
    let seed = order.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Chance(0x2545_f491_4f6c_dd1d_u64.wrapping_add(seed)).shuffled(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(sizes: impl IntoIterator<Item = (i64, u64)>) -> Vec<Message> {
        sizes
            .into_iter()
            .map(|(t, bytes)| Message {
                src: 0,
                dst: 1,
                sent_ns: (t, t),
                bytes,
                ..Message::default()
            })
            .collect()
    }

    #[test]
    fn a_cycle_is_found_behind_start_up_and_whatever_its_speed() {
        let cycle = [30, 38, 30, 54, 30, 38, 222, 222, 222, 900];
        let mut t = 0;
        let mut sizes: Vec<(i64, u64)> = (0..7).map(|i| (i, 24 + 3 * i as u64)).collect();
        for round in 0..5i64 {
            for size in cycle {
                t += 1_000_000 * (5 + round);
                sizes.push((t, size));
            }
        }
        let found = iterations(&stream(sizes)).unwrap();
        assert_eq!((found.count, found.pairs[0].bytes), (4, 1786));
        assert!(
            (found.lengths_s[0] - 0.052).abs() < 0.005,
            "{:?}",
            found.lengths_s
        );
    }

    #[test]
    fn noise_and_equal_messages_have_no_cycle() {
        let mut state = 5u64;
        let mut random = |n: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for n in [2, 5, 40] {
            let sizes: Vec<(i64, u64)> = (0..500).map(|i| (i, 100 + 13 * random(n))).collect();
            assert_eq!(iterations(&stream(sizes)), None, "{n} sizes");
        }
        assert_eq!(by_size(&stream((0..500).map(|i| (i, 100)))), None);
        assert_eq!(iterations(&[]), None);
    }
}
