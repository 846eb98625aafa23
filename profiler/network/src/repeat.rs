//! Iterations from the sequence of messages.
//!
//! A program that iterates sends the same messages again, so the ends of its messages repeat in
//! the stream of bytes from one process to another at a fixed distance: the bytes of one
//! iteration. That distance does not depend on time, so load, start-up and jitter do not blur it,
//! and three iterations are enough, where a spectrum needs many. Sizes that differ a little from
//! one iteration to the next (an integer sort) are allowed for; a stream of equal messages has no
//! distance of its own: there the order of the receivers repeats ([`super::cycle`]).
//!
//! Loops may be nested: 26 rounds, something else, and all of it 15 times. The inner distance explains nearly all
//! messages, the outer one all but by chance: what repeats is the outer one where it explains most of what the
//! inner one leaves over, and the inner one is kept beside it ([`Inner`]).

use std::collections::{BTreeSet, HashSet};
use std::ops::RangeInclusive;
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
/// An outer loop leaves no more than this share of what the inner one leaves over, takes so many times as long, and
/// the difference is so many times its deviation by chance.
const LEFT_OVER: f64 = 0.4;
const LEAST_RATIO: f64 = 2.5;
const DEVIATIONS: f64 = 3.0;
/// An inner loop explains this share of the messages at least, and so much more than another order of them.
pub(super) const LEAST_INNER: f64 = 0.6;
pub(super) const INNER_LEAD: f64 = 0.2;
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
    /// Bound of the probability that so many messages come again at one distance by chance, in any order of
    /// them; `None`: a single message is the iteration.
    pub p_value: Option<f64>,
    /// The loop within an iteration.
    pub inner: Option<Inner>,
}

/// A loop within each iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Inner {
    /// Mean length of one of its rounds, s.
    pub period_s: f64,
    /// Within what the mean length lies (95 %), s.
    pub range_s: (f64, f64),
    /// Rounds seen in the whole run.
    pub count: usize,
    /// Share of the messages that come again in the next round.
    pub score: f64,
    /// As for [`Repetition::p_value`].
    pub p_value: f64,
}

impl Inner {
    /// From the times between the same message in two rounds, s, and how many of these a round has.
    pub(super) fn new(
        between_s: &[f64],
        in_a_round: f64,
        score: f64,
        p_value: f64,
    ) -> Option<Inner> {
        let period_s = quantile::mean(between_s)?;
        let count = (between_s.len() as f64 / in_a_round).round() as usize;
        let squares: f64 = between_s.iter().map(|s| (s - period_s).powi(2)).sum();
        let half = 1.96 * (squares / between_s.len() as f64 / count.max(1) as f64).sqrt();
        (count >= LEAST_COUNT).then_some(Inner {
            period_s,
            range_s: ((period_s - half).max(0.0), period_s + half),
            count,
            score,
            p_value,
        })
    }
}

/// Messages that do not come again at a distance, of those that could.
pub(super) type Missed = (usize, usize);

/// Whether a longer distance explains what the shorter one leaves over: it is the outer loop.
pub(super) fn is_outer(inner: Missed, outer: Missed) -> bool {
    let share = |(missed, of): Missed| missed as f64 / of.max(1) as f64;
    let expected = share(inner) * outer.1 as f64;
    let found = outer.0 as f64;
    share(outer) <= LEFT_OVER * share(inner)
        && expected - found >= DEVIATIONS * (expected + found).sqrt()
}

/// Bound (Chernoff) of the probability that so many of the messages come again at one of so many distances, if each
/// does with the probability that two of them are alike.
pub(super) fn by_chance((missed, of): Missed, alike: f64, tried: usize) -> f64 {
    let share = 1.0 - missed as f64 / of.max(1) as f64;
    if share <= alike || of == 0 {
        return 1.0;
    }
    let term = |p: f64, q: f64| {
        if p > 0.0 {
            p * (p / q.max(1e-300)).ln()
        } else {
            0.0
        }
    };
    let divergence = term(share, alike) + term(1.0 - share, 1.0 - alike);
    (tried as f64 * (-(of as f64) * divergence).exp()).min(1.0)
}

/// The probability that two of these are alike.
pub(super) fn alike(counts: impl Iterator<Item = usize>) -> f64 {
    let (squares, sum) = counts.fold((0.0, 0.0), |(squares, sum), count| {
        (squares + (count as f64).powi(2), sum + count as f64)
    });
    squares / f64::max(sum * sum, 1.0)
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
    /// As for [`Repetition::p_value`], of that pair.
    pub p_value: Option<f64>,
    /// The loop within an iteration, at that pair.
    pub inner: Option<Inner>,
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
    agreeing(messages, &repetitions(messages))
}

/// What repeats in each connection, by the sizes of its messages.
pub(super) fn repetitions(messages: &[Message]) -> Vec<Repetition> {
    // By pair and connection, in their order within each.
    let key = |m: &Message| u64::from(m.src) << 48 | u64::from(m.dst) << 32 | u64::from(m.flow);
    let keys = messages.iter().enumerate().map(|(i, m)| (key(m), i));
    let mut sorted: Vec<(u64, usize)> = keys.collect();
    sorted.sort_unstable();
    let streams = sorted.chunk_by(|a, b| a.0 == b.0);
    // Most of a million connections carry one message.
    streams
        .filter(|stream| stream.len() > LEAST_COUNT)
        .map(|stream| stream.iter().map(|&(_, i)| &messages[i]).collect())
        .filter_map(|stream: Vec<&Message>| repetition(&stream))
        .collect()
}

/// The length that most of the connections agree on.
fn agreeing(messages: &[Message], pairs: &[Repetition]) -> Option<Iterations> {
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
    let mut full = all;
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
        // Every connection has the inner loop of its own messages: that of the middle one stands for it.
        inner: middle.inner.clone(),
        p_value: middle.p_value,
        pairs: pairs.to_vec(),
        is_by_order: false,
    })
}

pub(super) fn lengths(times_ns: &[i64]) -> Vec<f64> {
    times_ns
        .windows(2)
        .map(|w| (w[1] - w[0]) as f64 / 1e9)
        .collect()
}

/// A first iteration that is so many times as long as usual is start-up.
pub(super) const START: f64 = 4.0;

/// Without the first iteration where processes wait in it for those that started later. All others
/// are iterations for certain, however long or short they were: what is left out of them would
/// move their mean and their number.
pub(super) fn without_start(times_ns: &[i64]) -> &[i64] {
    let all = lengths(times_ns);
    let median = quantile::median(all.iter().copied()).unwrap_or(0.0);
    let is_start = all.len() > LEAST_COUNT && all[0] > START * median;
    &times_ns[usize::from(is_start)..]
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

    /// Pairs of a message and the one like it at this distance, and the messages without one that could have it.
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

    /// The distance of the loop about the one of this distance; the same where there is none.
    fn outer(&self, distance: u64) -> u64 {
        let last = self.ends.last().copied().unwrap_or(0);
        let (_, left, missed) = self.linked(distance);
        let least = (distance as f64 * LEAST_RATIO) as u64;
        // Where the inner loop breaks off is what the outer one repeats.
        let breaks = left.iter().map(Vec::as_slice);
        let candidates = self.distances(breaks, least..=last / LEAST_COUNT as u64);
        let missed_at = |&d: &u64| (d, self.linked(d).2);
        let longer: Vec<(u64, Missed)> = candidates.iter().map(missed_at).collect();
        let share = |(missed, of): Missed| missed as f64 / of.max(1) as f64;
        let outer = longer.iter().filter(|(_, of)| is_outer(missed, *of));
        let best = outer.clone().map(|(_, of)| share(*of)).reduce(f64::min);
        // The shortest of those that explain as much.
        let as_well = |of: Missed| best.is_some_and(|best| share(of) <= best + 0.1 * share(missed));
        outer
            .into_iter()
            .find(|(_, of)| as_well(*of))
            .map_or(distance, |(d, _)| *d)
    }

    /// The loop within iterations of so many bytes, with the times at which the messages were sent.
    fn inner(&self, sizes: &[u64], distance: u64, sent_ns: impl Fn(usize) -> i64) -> Option<Inner> {
        let frequent = self.classes.iter().rev().map(Vec::as_slice);
        let most = (distance as f64 / LEAST_RATIO) as u64;
        let share = |(missed, of): Missed| 1.0 - missed as f64 / of.max(1) as f64;
        let scored = self.distances(frequent, 1..=most).into_iter();
        let scored = scored.map(|d| (d, share(self.linked(d).2)));
        let scored: Vec<(u64, f64)> = scored.collect();
        let best = scored.iter().map(|(_, score)| *score).reduce(f64::max)?;
        let &(d, score) = scored.iter().find(|(_, score)| *score >= best - AS_WELL)?;
        // A multiple of two loops in turn is none.
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
