//! Iterations from the sizes of messages.

use std::collections::{BTreeSet, HashSet};
use std::ops::RangeInclusive;

use ahash::AHashMap;

use super::iteration::{
    Inner, Iterations, LEAST_COUNT, Repetition, lengths, mean_length, without_start,
};
use super::significance::{INNER_LEAD, LEAST_INNER, Missed, alike, by_chance, is_outer};
use crate::chance::Chance;
use crate::messages::Message;
use crate::quantile;
use crate::run::Node;

/// Number of messages in which the distance is searched. The chain is then followed through all
/// messages.
const SAMPLE: usize = 4000;
/// Number of distances tried.
const CANDIDATES: usize = 300;
/// Number of next occurrences of a size from which distances are taken.
const LAGS: usize = 8;
/// Least score of a repetition, and least lead over the same messages in a random order.
const LEAST_SCORE: f64 = 0.3;
const LEAST_LEAD: f64 = 0.1;
/// Least share of the payload of the pairs that repeat for pairs that represent the program, since a
/// launcher repeats too.
const LEAST_SHARE: f64 = 0.1;
/// Difference of scores below which they are equal.
const AS_WELL: f64 = 0.05;
/// Tolerance of floating-point arithmetic.
const ROUNDING: f64 = 1e-9;
/// Number of other orders of the messages from which a repetition must stand out: for few messages, and
/// for many.
const ORDERS: (u64, u64) = (19, 2);
/// Least number of messages of a stream with many.
const MANY: usize = 400;
/// Least ratio of the lengths of an outer loop and its inner loop.
const LEAST_RATIO: f64 = 2.5;

pub(super) fn by_size(messages: &[Message]) -> Option<Iterations> {
    agreeing(messages, &repetitions(messages))
}

/// The repetitions of each connection, by the sizes of its messages.
pub(crate) fn repetitions(messages: &[Message]) -> Vec<Repetition> {
    // Sorted by pair and connection, in their order within each.
    let key = |m: &Message| u64::from(m.src) << 48 | u64::from(m.dst) << 32 | u64::from(m.flow);
    let keys = messages.iter().enumerate().map(|(i, m)| (key(m), i));
    let mut sorted: Vec<(u64, usize)> = keys.collect();
    sorted.sort_unstable();
    let streams = sorted.chunk_by(|a, b| a.0 == b.0);
    // Most of a million connections have one message.
    streams
        .filter(|stream| stream.len() > LEAST_COUNT)
        .map(|stream| stream.iter().map(|&(_, i)| &messages[i]).collect())
        .filter_map(|stream: Vec<&Message>| repetition(&stream))
        .collect()
}

/// The length on which most of the connections agree.
fn agreeing(messages: &[Message], pairs: &[Repetition]) -> Option<Iterations> {
    // The length on which most pairs agree, each weighted by the number of messages that it explains.
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
    let mut full = all;
    // A pair of a few messages at start-up and end is no evidence.
    full.retain(|(length, pair)| agree(best, *length) && weight(pair) >= 0.1 * heaviest);
    let repeating: HashSet<(Node, Node)> = full.iter().map(|(_, p)| (p.src, p.dst)).collect();
    let carried = |message: &&Message| repeating.contains(&(message.src, message.dst));
    let payload: u64 = messages.iter().map(|message| message.bytes).sum();
    let of_these: u64 = messages.iter().filter(carried).map(|m| m.bytes).sum();
    if (of_these as f64) < LEAST_SHARE * payload as f64 {
        return None;
    }
    let most = full.iter().map(|(_, pair)| pair.times_ns.len()).max()?;
    // A pair that lost track of a message here and there has fewer repetitions.
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
        // Every connection has an inner loop of its own messages. That of the middle connection is
        // taken.
        inner: middle.inner.clone(),
        p_value: middle.p_value,
        pairs: pairs.to_vec(),
        is_by_order: false,
    })
}

/// Tolerance of a distance, bytes.
fn tolerance(distance: u64) -> u64 {
    (distance * 3 / 1000).min(48)
}

/// Ends of messages in the stream of bytes, and the places of each size.
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
        // Rare sizes are the best evidence. Of sizes with equal counts the first one, so that the order
        // is fixed.
        classes.sort_by_key(|class| (class.len(), class[0]));
        Stream { ends, classes }
    }

    /// For each message of a class, the place in the class of the message that ends `distance` after
    /// it.
    fn links<'a>(
        &'a self,
        class: &'a [usize],
        distance: u64,
    ) -> impl Iterator<Item = Option<usize>> + 'a {
        let slack = tolerance(distance);
        let end = |at: usize| class.get(at).map(|&i| self.ends[i]);
        // Ends only grow, so the search goes on from the place before.
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

    /// The mean share of the messages of each size that come again at this distance; `None` if it is
    /// below `least`, which is mostly found early.
    fn score(&self, distance: u64, least: f64) -> Option<f64> {
        let last = self.ends.last().copied().unwrap_or(0);
        let within =
            |class: &Vec<usize>| class.partition_point(|&i| self.ends[i] + distance <= last);
        let classes = self.classes.iter().map(|class| (class, within(class)));
        let classes: Vec<(&Vec<usize>, usize)> = classes.filter(|(_, count)| *count > 0).collect();
        // Number of messages that the remaining classes may miss together.
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
        let classes = self.classes.iter().map(Vec::as_slice);
        self.distances(classes, 1..=last / LEAST_COUNT as u64)
    }

    /// Distances between messages of one class, within bounds.
    fn distances<'a>(
        &self,
        classes: impl Iterator<Item = &'a [usize]>,
        within: RangeInclusive<u64>,
    ) -> Vec<u64> {
        let mut found: BTreeSet<u64> = BTreeSet::new();
        for class in classes {
            for lag in 1..=LAGS {
                for (a, b) in class.iter().zip(class.iter().skip(lag)) {
                    let distance = self.ends[*b] - self.ends[*a];
                    let slack = tolerance(distance);
                    let is_known = found
                        .range(distance - slack..=distance + slack)
                        .next()
                        .is_some();
                    if !is_known && within.contains(&distance) {
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

    /// The shortest of the distances with the best score, if that is at least `least`.
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

    /// Pairs of a message and its repetition at this distance; messages that could have a repetition
    /// but have none, by class; and their number.
    fn linked(&self, distance: u64) -> (Vec<(usize, usize)>, Vec<Vec<usize>>, Missed) {
        let last = self.ends.last().copied().unwrap_or(0);
        let (mut linked, mut left, mut missed) = (Vec::new(), Vec::new(), (0, 0));
        for class in &self.classes {
            let mut over = Vec::new();
            for (&i, link) in class.iter().zip(self.links(class, distance)) {
                if self.ends[i] + distance > last {
                    break;
                }
                missed.1 += 1;
                match link {
                    Some(at) => linked.push((i, class[at])),
                    None => over.push(i),
                }
            }
            missed.0 += over.len();
            left.push(over);
        }
        (linked, left, missed)
    }

    /// The distance of the loop around that of this distance; the same distance if there is none.
    fn outer(&self, distance: u64) -> u64 {
        let last = self.ends.last().copied().unwrap_or(0);
        let (_, left, missed) = self.linked(distance);
        let least = (distance as f64 * LEAST_RATIO) as u64;
        // The outer loop repeats the places at which the inner loop ends.
        let breaks = left.iter().map(Vec::as_slice);
        let candidates = self.distances(breaks, least..=last / LEAST_COUNT as u64);
        let missed_at = |&d: &u64| (d, self.linked(d).2);
        let longer: Vec<(u64, Missed)> = candidates.iter().map(missed_at).collect();
        let share = |(missed, of): Missed| missed as f64 / of.max(1) as f64;
        let outer = longer.iter().filter(|(_, of)| is_outer(missed, *of));
        let best = outer.clone().map(|(_, of)| share(*of)).reduce(f64::min);
        // The shortest of the distances that explain as much.
        let as_well = |of: Missed| best.is_some_and(|best| share(of) <= best + 0.1 * share(missed));
        outer
            .into_iter()
            .find(|(_, of)| as_well(*of))
            .map_or(distance, |(d, _)| *d)
    }

    /// The loop within iterations of `distance` bytes. `sent_ns` returns the times at which the
    /// messages were sent.
    fn inner(&self, sizes: &[u64], distance: u64, sent_ns: impl Fn(usize) -> i64) -> Option<Inner> {
        let frequent = self.classes.iter().rev().map(Vec::as_slice);
        let most = (distance as f64 / LEAST_RATIO) as u64;
        let share = |(missed, of): Missed| 1.0 - missed as f64 / of.max(1) as f64;
        let scored = self.distances(frequent, 1..=most).into_iter();
        let scored = scored.map(|d| (d, share(self.linked(d).2)));
        let scored: Vec<(u64, f64)> = scored.collect();
        let best = scored.iter().map(|(_, score)| *score).reduce(f64::max)?;
        let &(d, score) = scored.iter().find(|(_, score)| *score >= best - AS_WELL)?;
        // A multiple of two loops in turn does not count.
        let least = self.alike() + INNER_LEAD;
        let divides = |shorter: u64| d % shorter <= tolerance(d) && shorter < d;
        let is_multiple = scored
            .iter()
            .any(|(s, score)| divides(*s) && *score >= least);
        let (linked, _, missed) = self.linked(d);
        // A stream of equal messages is no loop.
        let is_mixed = |&&(i, j): &&(usize, usize)| sizes[i + 1..j].iter().any(|s| *s != sizes[i]);
        let mixed = linked.iter().filter(is_mixed).count();
        if score < f64::max(least, LEAST_INNER) || is_multiple || mixed * 2 <= linked.len() {
            return None;
        }
        let other = Stream::new(&shuffled(sizes, 0)).linked(d).2;
        if score < share(other) + INNER_LEAD {
            return None;
        }
        let in_a_round = linked.iter().map(|(i, j)| (j - i) as f64);
        let in_a_round = in_a_round.sum::<f64>() / linked.len() as f64;
        let between = |&(i, j): &(usize, usize)| (sent_ns(j) - sent_ns(i)) as f64 / 1e9;
        let between: Vec<f64> = linked.iter().map(between).collect();
        let p_value = by_chance(missed, self.alike(), CANDIDATES);
        Inner::new(&between, in_a_round, score, p_value)
    }

    fn alike(&self) -> f64 {
        alike(self.classes.iter().map(Vec::len))
    }

    /// The longest chain of equal messages at this distance.
    fn chain(&self, distance: u64) -> Vec<usize> {
        let mut best = Vec::new();
        for class in &self.classes {
            let links: Vec<Option<usize>> = self.links(class, distance).collect();
            // A link leads forward, so that the chain after each message is known before its own.
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
    // From the middle, since start-up and the end repeat nothing.
    let from = sizes.len().saturating_sub(SAMPLE) / 2;
    let sample = &sizes[from..sizes.len().min(from + SAMPLE)];
    let stream = Stream::new(sample);
    let (score, distance) = stream.best(LEAST_SCORE)?;
    if score < LEAST_SCORE {
        return None;
    }
    // With few messages, a single other order may have an unusual score by chance.
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
    let distance = stream.outer(distance);
    let p_value = by_chance(stream.linked(distance).2, stream.alike(), CANDIDATES);
    let inner = stream.inner(sample, distance, |i| messages[from + i].sent_ns.0);
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
        times_ns: without_start(&times_ns).to_vec(),
        p_value: Some(p_value),
        inner,
    })
}

/// The same messages in another order. Equal numbers give equal orders.
fn shuffled(sizes: &[u64], order: u64) -> Vec<u64> {
    let seed = order.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Chance(0x2545_f491_4f6c_dd1d_u64.wrapping_add(seed)).shuffled(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repeat::iterations;

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
