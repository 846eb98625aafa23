//! Iterations from the order in which a process sends to its partners.
//!
//! If all messages have one size, the sizes repeat nothing, but the order of the receivers does: a
//! process of a ring sends to the left, to the right, to the left, and so on. The shortest distance at
//! which (nearly) the whole order comes again is one iteration, or one super-phase of a program that
//! changes its pattern. Time does not matter, so neither load nor scheduling changes the result.
//!
//! A process with one receiver has no such order. If it sends in bursts, the order of short and long pauses
//! repeats: six messages at once, a wait, and so on.

use std::collections::BTreeMap;

use ahash::AHashMap;

use super::iteration::{
    Inner, Iterations, LEAST_COUNT, Repetition, START, lengths, mean_length, without_start,
};
use super::significance::{INNER_LEAD, LEAST_INNER, Missed, alike, by_chance, is_outer};
use crate::chance::Chance;
use crate::messages::Message;
use crate::plain::{self, Plain};
use crate::quantile;
use crate::run::Node;

/// Number of sends of a process that are analysed.
const SAMPLE: usize = 6000;
/// Longest distance tried, in sends.
const LONGEST: usize = 1500;
/// Least share of the sends that come again.
const LEAST_SCORE: f64 = 0.9;
/// Largest share of the sends that do not come again, as a share of those in another order.
const LEFT_OVER: f64 = 0.5;
/// Least factor between the longest of the short pauses and the shortest of the long ones.
const LONGER: f64 = 3.0;
/// Least share of either kind of pauses.
const RARE: f64 = 0.02;
/// Least number of messages to a single partner that are taken for iterations.
const LEAST_OF_ONE: usize = 8;
/// Least share of a cycle for a wait in the first round that is start-up.
const LEAST_START: f64 = 0.02;
/// Least share of the heaviest pair's bytes for a pair that represents the program.
const HEAVY: f64 = 0.1;

/// The iterations of a program whose pairs each send messages of one size; `None` if a heavy pair does
/// not, or if nothing repeats.
pub(super) fn iterations(messages: &[Message], plain: &plain::Pairs) -> Option<Iterations> {
    let mut bytes: AHashMap<(Node, Node), u64> = AHashMap::new();
    for message in messages {
        *bytes.entry((message.src, message.dst)).or_default() += message.bytes;
    }
    let heaviest = *bytes.values().max()? as f64;
    let plain = plain.iter().map(|(pair, plain)| (*pair, plain));
    let plain = plain.filter(|(pair, _)| bytes[pair] as f64 >= HEAVY * heaviest);
    let plain: BTreeMap<(Node, Node), &Plain> = plain.collect();
    let heavy = bytes.values().filter(|&&b| b as f64 >= HEAVY * heaviest);
    if heavy.count() != plain.len() {
        return None;
    }
    let found = by_order(messages, &plain).or_else(|| one_each(&plain))?;
    let middle = quantile::median(found.iter().map(|pair| mean_length(&pair.times_ns)))?;
    let range = |of: fn(f64, f64) -> f64, from: f64| {
        let means = found.iter().map(|pair| mean_length(&pair.times_ns));
        means.fold(from, of)
    };
    let nearest = found.iter().min_by(|a, b| {
        let off = |pair: &Repetition| (mean_length(&pair.times_ns) - middle).abs();
        off(a).total_cmp(&off(b))
    })?;
    Some(Iterations {
        period_s: middle,
        range_s: (range(f64::min, f64::INFINITY), range(f64::max, 0.0)),
        count: nearest.times_ns.len() - 1,
        lengths_s: lengths(&nearest.times_ns),
        p_value: nearest.p_value,
        inner: nearest.inner.clone(),
        pairs: found,
        is_by_order: true,
    })
}

/// The processes whose order of sends repeats, of those with the longest period only. A process
/// with the same partners in all super-phases sees only the iterations.
fn by_order(
    messages: &[Message],
    plain: &BTreeMap<(Node, Node), &Plain>,
) -> Option<Vec<Repetition>> {
    let mut sends: BTreeMap<Node, Vec<usize>> = BTreeMap::new();
    for (&(src, _), pair) in plain {
        sends.entry(src).or_default().extend(&pair.messages);
    }
    let mut found: Vec<(f64, Repetition)> = Vec::new();
    for list in sends.values_mut() {
        list.sort_unstable();
        if let Some(repetition) = of_process(messages, list) {
            found.push((mean_length(&repetition.times_ns), repetition));
        }
    }
    let longest = found.iter().map(|(length, _)| *length).reduce(f64::max)?;
    found.retain(|(length, _)| *length >= 0.9 * longest);
    Some(
        found
            .into_iter()
            .map(|(_, repetition)| repetition)
            .collect(),
    )
}

fn of_process(messages: &[Message], sends: &[usize]) -> Option<Repetition> {
    let sent_ns: Vec<i64> = sends.iter().map(|&i| messages[i].sent_ns.0).collect();
    let receivers: Vec<Node> = sends.iter().map(|&i| messages[i].dst).collect();
    let is_one = receivers.iter().all(|dst| Some(dst) == receivers.first());
    let order = match is_one {
        true => pauses(&sent_ns)?,
        false => receivers,
    };
    let sample = &order[..order.len().min(SAMPLE)];
    let distance = outer_distance(sample, best_distance(sample)?);
    let score = score_at(sample, distance);
    let chance = score_at(&Chance(0x9e37_79b9_7f4a_7c15).shuffled(sample), distance);
    if score < LEAST_SCORE || 1.0 - score > LEFT_OVER * (1.0 - chance) {
        return None;
    }
    // The first send from which a whole cycle comes again; of bursts, one behind a long pause.
    let comes_again = |at: usize| order.get(at) == order.get(at + distance);
    let begins = |at: &usize| !is_one || order[*at] == order[0];
    let mut starts = (0..order.len()).filter(begins);
    let first = starts.find(|&at| (at..at + distance).all(comes_again))?;
    let mut counts: BTreeMap<Node, usize> = BTreeMap::new();
    for dst in sample {
        *counts.entry(*dst).or_default() += 1;
    }
    let alike = alike(counts.values().copied());
    let p_at = |d: usize| by_chance(missed_at(sample, d), alike, LONGEST);
    let inner = inner_distance(sample, distance, alike).filter(|_| !is_one);
    let inner = inner.and_then(|d| {
        let linked = (0..sample.len() - d).filter(|&i| sample[i] == sample[i + d]);
        let between = linked.map(|i| (sent_ns[i + d] - sent_ns[i]) as f64 / 1e9);
        let between: Vec<f64> = between.collect();
        Inner::new(&between, d as f64, score_at(sample, d), p_at(d))
    });
    let cycles =
        |from: usize| -> Vec<i64> { sent_ns[from..].iter().copied().step_by(distance).collect() };
    let round = |sends: &[Node]| (1..sends.len()).find(|&at| sends[..at].contains(&sends[at]));
    let round = round(&order[first..]).map_or(distance, |at| at.min(distance));
    let behind = behind_start(&sent_ns[first..], round, distance).map(|at| cycles(first + at));
    let behind = behind.filter(|times_ns| times_ns.len() > LEAST_COUNT);
    let times_ns = behind.unwrap_or_else(|| cycles(first));
    if times_ns.len() <= LEAST_COUNT {
        return None;
    }
    let start = &messages[sends[first]];
    let of_one = sends[first..(first + distance).min(sends.len())].iter();
    Some(Repetition {
        src: start.src,
        dst: start.dst,
        bytes: of_one.map(|&i| messages[i].bytes).sum(),
        messages: sends.len(),
        score,
        times_ns: without_start(&times_ns).to_vec(),
        p_value: Some(p_at(distance)),
        inner,
    })
}

/// The kind of the pause before each send, 1 if it is long; `None` if they are of one kind. The first send is
/// behind a long one.
fn pauses(sent_ns: &[i64]) -> Option<Vec<Node>> {
    let pauses: Vec<i64> = sent_ns.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mut sorted = pauses.clone();
    sorted.sort_unstable();
    let rare = ((RARE * sorted.len() as f64) as usize).max(1);
    let factor = |at: &usize| sorted[*at] as f64 / sorted[at - 1].max(1) as f64;
    let inner = rare..(sorted.len() + 1).saturating_sub(rare);
    let at = inner.max_by(|a, b| factor(a).total_cmp(&factor(b)));
    let at = at.filter(|at| factor(at) >= LONGER)?;
    let kinds = pauses.iter().map(|pause| Node::from(*pause >= sorted[at]));
    Some([1].into_iter().chain(kinds).collect())
}

fn missed_at(order: &[Node], distance: usize) -> Missed {
    let pairs = order.len().saturating_sub(distance);
    let other = (0..pairs).filter(|&i| order[i] != order[i + distance]);
    (other.count(), pairs)
}

fn score_at(order: &[Node], distance: usize) -> f64 {
    let (missed, of) = missed_at(order, distance);
    (of - missed) as f64 / of.max(1) as f64
}

/// The distance of the loop around rounds of this distance; the same distance if there is none.
fn outer_distance(order: &[Node], round: usize) -> usize {
    let inner = missed_at(order, round);
    if inner.0 == 0 {
        return round;
    }
    let longest = (order.len() / LEAST_COUNT).min(LONGEST);
    let longer = (round * 5 / 2..=longest).filter(|&d| is_outer(inner, missed_at(order, d)));
    let longer: Vec<(usize, f64)> = longer.map(|d| (d, score_at(order, d))).collect();
    let best = longer.iter().map(|(_, score)| *score).fold(0.0, f64::max);
    let spare = 0.1 * (1.0 - score_at(order, round));
    let found = longer.iter().find(|(_, score)| *score >= best - spare);
    found.map_or(round, |(d, _)| *d)
}

/// The shortest of the distances with nearly the best score.
fn best_distance(order: &[Node]) -> Option<usize> {
    let longest = (order.len() / LEAST_COUNT).min(LONGEST);
    let scores: Vec<f64> = (1..=longest).map(|d| score_at(order, d)).collect();
    let best = scores.iter().copied().fold(0.0, f64::max);
    let at = scores.iter().position(|score| *score >= best - 0.02)?;
    Some(at + 1)
}

/// The distance of the loop within cycles of this distance. A multiple of two loops in turn does not
/// count.
fn inner_distance(order: &[Node], distance: usize, alike: f64) -> Option<usize> {
    let least = alike + INNER_LEAD;
    let scores: Vec<(usize, f64)> = (1..=distance * 2 / 5)
        .map(|d| (d, score_at(order, d)))
        .collect();
    let best = scores.iter().map(|(_, score)| *score).fold(0.0, f64::max);
    let &(found, score) = scores.iter().find(|(_, score)| *score >= best - 0.05)?;
    let is_multiple = scores[..found - 1]
        .iter()
        .any(|(d, score)| found % d == 0 && *score >= least);
    (score >= f64::max(least, LEAST_INNER) && !is_multiple).then_some(found)
}

/// Iterations of a program in which every process has one partner, or the partners are not in order:
/// one message of each pair is an iteration if all pairs sent as many.
fn one_each(plain: &BTreeMap<(Node, Node), &Plain>) -> Option<Vec<Repetition>> {
    let counts: Vec<usize> = plain.values().map(|pair| pair.messages.len()).collect();
    let (least, most) = (*counts.iter().min()?, *counts.iter().max()?);
    if least < LEAST_OF_ONE || !plain::are_in_step(least, most) {
        return None;
    }
    let repetition = |(&(src, dst), pair): (&(Node, Node), &&Plain)| Repetition {
        src,
        dst,
        bytes: pair.bytes,
        messages: pair.messages.len(),
        score: 1.0,
        times_ns: without_start(&pair.times_ns).to_vec(),
        p_value: None,
        inner: None,
    };
    Some(plain.iter().map(repetition).collect())
}

/// The send after the last wait in the first round (of `round` sends) that belongs to start-up. Such a
/// wait is longer than that of any later cycle at the same place, and a significant share of the cycle.
/// It may be a small share of a super-phase, of which there may be few.
fn behind_start(sent_ns: &[i64], round: usize, distance: usize) -> Option<usize> {
    let gap = |at: usize| Some((sent_ns.get(at + 1)? - sent_ns[at]) as f64);
    let is_start = |&at: &usize| {
        let later = (1..).map_while(|k| gap(at + k * distance));
        let usual = quantile::sorted(later);
        let cycle = sent_ns
            .get(at + 2 * distance)
            .map(|t| (t - sent_ns[at + distance]) as f64);
        let (Some(own), Some(&most), Some(cycle)) = (gap(at), usual.last(), cycle) else {
            return false;
        };
        let middle = quantile::quantile(&usual, 0.5).unwrap_or(0.0);
        own > START * middle && own > most && own - middle > LEAST_START * cycle
    };
    (0..round).rev().find(is_start).map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iterations(messages: &[Message]) -> Option<Iterations> {
        super::iterations(messages, &plain::pairs(messages))
    }

    use crate::testing::Noise;

    /// Sends of process 0 to partners in this order, at irregular times.
    fn sends(order: impl IntoIterator<Item = Node>) -> Vec<Message> {
        let mut noise = Noise(77);
        let mut t = 0;
        let sent = order.into_iter().map(|dst| {
            t += 1_000_000 + (3_000_000.0 * noise.uniform()) as i64;
            Message {
                src: 0,
                dst,
                sent_ns: (t, t),
                bytes: 2000,
                ..Message::default()
            }
        });
        sent.collect()
    }

    #[test]
    fn an_iteration_is_the_order_that_comes_again() {
        let found = iterations(&sends([1, 2, 3].into_iter().cycle().take(300))).unwrap();
        assert_eq!(found.count, 99);
        assert!((found.period_s - 0.0075).abs() < 4e-4, "{}", found.period_s);
    }

    #[test]
    fn super_phases_are_longer_than_iterations() {
        let ring = [1, 2].into_iter().cycle().take(20);
        let all = [1, 2, 3].into_iter().cycle().take(30);
        let phase: Vec<Node> = ring.chain(all).collect();
        let order = phase.iter().copied().cycle().take(phase.len() * 12);
        let found = iterations(&sends(order)).unwrap();
        assert_eq!((found.count, found.pairs[0].bytes), (11, 100_000));
        assert!((found.period_s / 0.125 - 1.0).abs() < 0.05);
    }

    /// A process that waits in its first super-phase for others that started later does so once. Of
    /// four super-phases, one is longer by half.
    #[test]
    fn start_up_is_no_part_of_a_super_phase() {
        let phase: Vec<Node> = [[1, 2].repeat(8), [1, 2, 3].repeat(8)].concat();
        let mut sent = sends(phase.iter().copied().cycle().take(phase.len() * 5 + 7));
        for message in &mut sent[1..] {
            message.sent_ns.0 += 50_000_000;
        }
        let found = iterations(&sent).unwrap();
        assert_eq!((found.count, found.pairs[0].bytes), (5, 80_000));
        assert!(
            (found.period_s / 0.1 - 1.0).abs() < 0.05,
            "{}",
            found.period_s
        );
        let times: Vec<i64> = sent.iter().map(|message| message.sent_ns.0).collect();
        assert_eq!(behind_start(&times, 2, phase.len()), Some(1));
        assert_eq!(behind_start(&times[1..], 2, phase.len()), None);
    }

    #[test]
    fn chance_repeats_nothing() {
        let mut noise = Noise(5);
        let order: Vec<Node> = (0..600)
            .map(|_| 1 + (noise.uniform() * 3.0) as Node)
            .collect();
        assert!(
            iterations(&sends(order)).is_none_or(|found| found.pairs[0].bytes == 2000),
            "no order"
        );
        assert_eq!(iterations(&[]), None);
        assert_eq!(iterations(&sends([1; 5])), None);
    }

    /// Sends of process 0 to process 1 in rounds of 60 ms: so many messages at once after each of these waits.
    fn bursts(waits: &[(i64, usize)], rounds: usize) -> Vec<Message> {
        let mut noise = Noise(78);
        let mut t = 0;
        let mut sent = Vec::new();
        for &(wait, messages) in waits.iter().cycle().take(waits.len() * rounds) {
            t += wait * 1_000_000 + (100_000.0 * noise.uniform()) as i64;
            for _ in 0..messages {
                t += 1000 + (400_000.0 * noise.uniform().powi(4)) as i64;
                sent.push(Message {
                    src: 0,
                    dst: 1,
                    sent_ns: (t, t),
                    bytes: 20_000,
                    ..Message::default()
                });
            }
        }
        sent
    }

    /// A process of a ring that sends to one other, six times in a superstep, alone or as the one ahead lets it.
    #[test]
    fn one_partner_repeats_with_every_round_of_bursts() {
        for waits in [&[(60, 6)][..], &[(30, 2), (30, 4)], &[(30, 1), (30, 5)]] {
            let found = iterations(&bursts(waits, 40)).unwrap();
            assert!((38..=39).contains(&found.count), "{waits:?}: {found:?}");
            assert!(
                (found.period_s - 0.0605).abs() < 0.001,
                "{waits:?}: {}",
                found.period_s
            );
        }
        let many = iterations(&bursts(&[(60, 30)], 40)).unwrap();
        assert!(
            (many.period_s / 0.0615 - 1.0).abs() < 0.03,
            "{}",
            many.period_s
        );
    }

    #[test]
    fn one_partner_alone_repeats_with_every_message() {
        let found = iterations(&sends([1; 200])).unwrap();
        assert_eq!(found.count, 199);
    }
}
