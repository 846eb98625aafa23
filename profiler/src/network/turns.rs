//! What processes work that take turns.
//!
//! A process that answers its partner at once had finished before it was asked: what it worked lies
//! somewhere in its waiting and does not show. One that answers late was working all along since its
//! own event before, and one that sends first waits for nobody: theirs shows to the microsecond. So
//! the rounds of a process are shown or hidden, and only shown ones are compared. Whoever holds the
//! others up answers late in nearly every round (unless it is the one that begins: then everybody
//! else is hidden, and there is nothing to compare it with).

use std::collections::BTreeMap;

use super::balance::{GATE, Range};
use super::chance::Chance;
use super::messages::Message;
use super::quantile;
use super::run::Node;
use super::schedule::{Round, Schedule};
use super::slowdown;

/// A round shows the work when the time in which work may be hidden is no more than this share of it.
const SHOWN: f64 = 0.2;
/// A send that follows its partner's message after no more than this share of the time since the own
/// event before follows it at once.
const AT_ONCE: f64 = 0.1;
/// Rounds that must show, as a share, of a process that is compared with; of one that is named.
const SOME: f64 = 0.1;
const MOST: f64 = 0.75;
/// Shown rounds needed.
const LEAST_ROUNDS: usize = 8;
/// Resamples of the rounds, and the share of them outside of the range at either end.
const RESAMPLES: usize = 500;
const TAIL: f64 = 0.025;

/// The rounds of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// Work of each round that shows it, s.
    pub shown_s: Vec<f64>,
    /// How long the partners waited for its messages in each of these, s: no more would be gained by less work.
    pub late_s: Vec<f64>,
    /// Number of all rounds.
    pub count: usize,
}

impl Rounds {
    fn is_shown(&self, share: f64) -> bool {
        self.shown_s.len() >= LEAST_ROUNDS && self.shown_s.len() as f64 >= share * self.count as f64
    }

    /// Mean work of a round that shows it, s; 0: too few do.
    fn mean_s(&self) -> f64 {
        match self.is_shown(SOME) {
            true => quantile::mean(&self.shown_s).unwrap_or(0.0),
            false => 0.0,
        }
    }
}

/// What the rounds of a program that takes turns say of its balance.
#[derive(Clone, Debug, PartialEq)]
pub struct Turns {
    /// Rounds of each process.
    pub rounds: Vec<Rounds>,
    /// Processes that work so much more than those whose work shows, the most loaded first.
    pub loaded: Vec<Node>,
    /// The process whose rounds are longest, of those that show.
    pub first: Node,
    /// Its work over the next (of the least loaded over the most of the others).
    pub ratio: f64,
    /// Within what that lies with other rounds drawn, 95 %.
    pub ratio_range: Range,
    /// What the load cost, s.
    pub slowdown_s: Range,
    /// Processes whose work does not show.
    pub hidden: usize,
}

/// The messages of each ordered pair, in the order of sending.
type Pairs<'a> = BTreeMap<(Node, Node), Vec<&'a Message>>;

/// What one send shows, ns.
#[derive(Clone, Copy, Default)]
struct Shown {
    /// Work that is certain.
    work: i64,
    /// What may be hidden in its waiting besides.
    hidden: i64,
    /// Since it was asked; where it was not, since its work began.
    late: i64,
}

impl Shown {
    fn and(self, next: Shown) -> Shown {
        Shown {
            work: self.work + next.work,
            hidden: self.hidden + next.hidden,
            late: self.late + next.late,
        }
    }
}

/// What the sends of each process show, with their receivers.
///
/// Of two partners one begins and the other answers, or both send and then receive: in either case
/// what a process does next begins when the partner's message of the same round is there.
fn works(schedule: &Schedule) -> Vec<Vec<(Node, Shown)>> {
    let mut pairs: Pairs<'_> = Pairs::new();
    let mut arrivals: Vec<Vec<i64>> = vec![Vec::new(); schedule.nodes];
    for message in &schedule.messages {
        pairs
            .entry((message.src, message.dst))
            .or_default()
            .push(message);
        if let Some(of) = arrivals.get_mut(usize::from(message.dst)) {
            of.push(message.received_ns.1);
        }
    }
    for of in &mut arrivals {
        of.sort_unstable();
    }
    let mut number: BTreeMap<(Node, Node), usize> = BTreeMap::new();
    // End of the own send before, and when its answer came.
    let mut before: Vec<Option<(i64, Option<i64>)>> = vec![None; schedule.nodes];
    let mut works = vec![Vec::new(); schedule.nodes];
    for message in &schedule.messages {
        let (me, to, t) = (message.src, message.dst, message.sent_ns.0);
        let n = number.entry((me, to)).or_default();
        let theirs = pairs.get(&(to, me)).and_then(|list| list.get(*n));
        let asked = theirs.map(|message| message.received_ns.1);
        *n += 1;
        let Some(last) = before.get_mut(usize::from(me)) else {
            continue;
        };
        if let Some((own, answer)) = last.replace((message.sent_ns.1, asked)) {
            let base = answer.filter(|at| *at <= t).map_or(own, |at| at.max(own));
            let base = base.min(t);
            let at_once = (AT_ONCE * (t - base) as f64) as i64;
            // What came just before it, of whomever, may be what it waited for.
            let came = &arrivals[usize::from(me)];
            let latest = came.partition_point(|at| *at <= t).checked_sub(1);
            let latest = latest.map(|at| came[at]);
            let waited = latest.filter(|at| *at > base && t - at <= at_once);
            let ready = waited.unwrap_or(base);
            let asked = asked.filter(|at| *at <= t).map_or(base, |at| at.max(base));
            let shown = Shown {
                work: t - ready,
                hidden: ready - base,
                late: t - asked,
            };
            works[usize::from(me)].push((to, shown));
        }
    }
    works
}

/// The rounds of each process: once to each partner.
fn rounds(schedule: &Schedule) -> Vec<Rounds> {
    let of_process = |steps: Vec<(Node, Shown)>| {
        let mut partners = Round::default();
        let mut list: Vec<Shown> = Vec::new();
        for (to, step) in steps {
            let begins = partners.begins_with(to);
            match list.last_mut() {
                Some(round) if !begins => *round = round.and(step),
                _ => list.push(step),
            }
        }
        let is_shown = |round: &&Shown| round.hidden as f64 <= SHOWN * round.work as f64;
        let shown = || list.iter().filter(is_shown);
        Rounds {
            shown_s: shown().map(|round| round.work as f64 / 1e9).collect(),
            late_s: shown().map(|round| round.late as f64 / 1e9).collect(),
            count: list.len(),
        }
    };
    works(schedule).into_iter().map(of_process).collect()
}

/// Whether nearly all rounds of a process show its work: it does not answer at once.
pub fn mostly_shows(schedule: &Schedule, process: Node) -> bool {
    let rounds = rounds(schedule);
    rounds
        .get(usize::from(process))
        .is_some_and(|rounds| rounds.is_shown(MOST))
}

/// Weighs the rounds of a program whose processes take turns; `None` where the work of fewer than
/// two processes shows.
pub fn weigh(schedule: &Schedule) -> Option<Turns> {
    let rounds = rounds(schedule);
    let means: Vec<f64> = rounds.iter().map(Rounds::mean_s).collect();
    let (mut loaded, ratio) = slowdown::loaded(&means, GATE, |several| {
        !slowdown::are_of_a_kind(schedule, several)
    })?;
    let shown: Vec<usize> = (0..means.len()).filter(|&i| means[i] > 0.0).collect();
    let first = *shown
        .iter()
        .max_by(|&&a, &&b| means[a].total_cmp(&means[b]))?;
    let ahead: Vec<usize> = match loaded.as_slice() {
        [] => vec![first],
        loaded => loaded.iter().map(|&node| usize::from(node)).collect(),
    };
    let others: Vec<usize> = shown
        .iter()
        .copied()
        .filter(|node| !ahead.contains(node))
        .collect();
    let ratio_range = drawn(&rounds, &ahead, &others);
    // Nearly always late, and not because of some long rounds: where processors are shared, these
    // come to everybody now and then.
    let usual = others
        .iter()
        .filter_map(|&node| quantile::median(rounds[node].shown_s.iter().copied()));
    let usual = usual.fold(0.0, f64::max);
    let is_steady = |&node: &usize| {
        let sorted = quantile::sorted(rounds[node].shown_s.iter().copied());
        let low = quantile::quantile(&sorted, 1.0 - MOST).unwrap_or(0.0);
        rounds[node].is_shown(MOST) && low >= (1.0 + GATE) / 2.0 * usual
    };
    if !ahead.iter().all(is_steady) {
        loaded.clear();
    }
    let slowdown_s = match loaded.is_empty() {
        true => Range::default(),
        false => cost(schedule, &rounds, &ahead, &others)?,
    };
    Some(Turns {
        hidden: schedule.nodes - shown.len(),
        rounds,
        loaded,
        first: first as Node,
        ratio,
        ratio_range,
        slowdown_s,
    })
}

/// 95 % of the ratios that other rounds would have given.
fn drawn(rounds: &[Rounds], ahead: &[usize], others: &[usize]) -> Range {
    let mut chance = Chance(0x2545_f491_4f6c_dd1d);
    let mut mean = |node: usize| {
        let shown = &rounds[node].shown_s;
        let sum: f64 = (0..shown.len())
            .map(|_| shown[chance.below(shown.len())])
            .sum();
        sum / shown.len().max(1) as f64
    };
    let ratio = |_| {
        let least = ahead
            .iter()
            .map(|&node| mean(node))
            .fold(f64::INFINITY, f64::min);
        let most = others.iter().map(|&node| mean(node)).fold(0.0, f64::max);
        if most > 0.0 {
            least / most
        } else {
            f64::INFINITY
        }
    };
    let ratios = quantile::sorted((0..RESAMPLES).map(ratio));
    Range {
        low: quantile::quantile(&ratios, TAIL).unwrap_or(0.0),
        high: quantile::quantile(&ratios, 1.0 - TAIL).unwrap_or(f64::INFINITY),
    }
}

/// What the load cost, s: what the rounds of the loaded took above those of the others (their lower quartile) while
/// somebody waited for them, and by how much two runs of the same work differ. Those that answer at once are taken to work like the others, as
/// everywhere where processes are meant to work alike. Then it cost less by what the load hides: without it each
/// round takes as long as the slowest of all.
fn cost(
    schedule: &Schedule,
    rounds: &[Rounds],
    ahead: &[usize],
    others: &[usize],
) -> Option<Range> {
    let usual = others
        .iter()
        .flat_map(|&node| rounds[node].shown_s.iter().copied());
    let usual = quantile::quantile(&quantile::sorted(usual), 0.25)?;
    let spread = |own: &Rounds| 1.4826 * quantile::deviation(&own.shown_s).unwrap_or(0.0);
    let above = |&node: &usize| {
        let own = &rounds[node];
        let all = own.count as f64 / own.shown_s.len().max(1) as f64;
        let of_round = |(work, late): (&f64, &f64)| (work - usual).min(*late);
        let cost = own
            .shown_s
            .iter()
            .zip(&own.late_s)
            .map(of_round)
            .sum::<f64>()
            * all;
        let chance = 2.0 * std::f64::consts::SQRT_2 * spread(own) * (own.count as f64).sqrt();
        (cost, chance, own.count)
    };
    let above = ahead.iter().map(above);
    let (cost, chance, count) = above.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let spread = others
        .iter()
        .map(|&node| spread(&rounds[node]))
        .fold(0.0, f64::max);
    let slowest = largest_of(schedule.nodes) * spread;
    let differ = slowdown::between_runs(schedule) * schedule.run_s();
    Some(Range {
        low: (cost - chance - differ - slowest * count as f64).max(0.0),
        high: cost + chance + differ,
    })
}

/// What the largest of `n` values of a normal distribution is on average, in standard deviations (by the limit law
/// of extreme values: Gumbel; a tenth too much for few).
fn largest_of(n: usize) -> f64 {
    const EULER: f64 = 0.577_215_664_9;
    let n = n.max(2) as f64;
    let a = (2.0 * n.ln()).sqrt();
    a - (n.ln().ln() + (4.0 * std::f64::consts::PI).ln()) / (2.0 * a) + EULER / a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::messages;
    use crate::network::schedule;
    use crate::network::testing::{Bsp, Style, bsp};

    fn of(program: &Bsp) -> (Option<Turns>, f64) {
        let made = bsp(program);
        let found = messages::messages(&made.run).unwrap();
        let schedule = schedule::schedule(&found, program.work_s.len());
        assert!(schedule.takes_turns);
        (weigh(&schedule), made.seconds)
    }

    /// Any but the one that begins: 30 to 100 % more than the others.
    #[test]
    fn whoever_answers_late_is_named_with_its_cost() {
        for (n, loaded, factor) in [(4, 1, 1.3), (4, 2, 1.6), (4, 3, 2.0), (8, 5, 1.45)] {
            let program = Bsp {
                style: Style::Turns,
                seed: 3 + loaded as u64,
                ..Bsp::ring(n)
            };
            let (none, base_s) = of(&program);
            assert!(none.is_none_or(|none| none.loaded.is_empty()));
            let mut slow = program.clone();
            slow.work_s[loaded] *= factor;
            slow.seed += 50;
            let (found, seconds) = of(&slow);
            let found = found.unwrap();
            assert_eq!(found.loaded, [loaded as Node], "{n} × {factor}: {found:?}");
            let truth = seconds - base_s;
            let range = found.slowdown_s;
            let is_inside = (range.low..=range.high).contains(&truth);
            let is_narrow = range.low > truth / 2.0 && range.high < truth * 1.6;
            assert!(is_inside && is_narrow, "{truth} not in {range:?}");
        }
    }

    /// The others had finished long before, or had not: they answer at once in either case.
    #[test]
    fn of_the_one_that_begins_nothing_is_said() {
        let mut program = Bsp {
            style: Style::Turns,
            jitter: 0.02,
            ..Bsp::ring(4)
        };
        program.work_s[0] *= 1.6;
        let (found, _) = of(&program);
        assert!(found.is_none_or(|found| found.loaded.is_empty()));
    }
}
