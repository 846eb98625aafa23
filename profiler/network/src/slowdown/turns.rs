//! Work of processes that take turns.
//!
//! A process that answers its partner at once had finished before the message came. Its work is
//! somewhere in its wait and does not show. A process that answers late was working since its own event
//! before, and one that sends first waits for no other; their work shows to the microsecond. So rounds
//! are either shown or hidden, and only shown ones are compared. A process that holds the others up
//! answers late in nearly every round. The exception is the process that begins: then all others are
//! hidden, and cannot be compared with it.

use super::{Lead, between_runs};
use crate::balance::{GATE, Range};
use crate::chance::Chance;
use crate::links::Links;
use crate::quantile;
use crate::roles;
use crate::run::Node;
use crate::schedule;
use crate::schedule::Schedule;

mod replay;
mod round;
mod steps;

use replay::Unloaded;
pub use round::Rounds;
use round::SOME;
use steps::{Shown, Step};

/// Largest share of a round's work for the time that may hide more work, if the round shows its work.
const SHOWN: f64 = 0.2;
/// Least share of the rounds of a loaded process that show their work.
const MOST: f64 = 0.75;
/// Number of resamples of the rounds.
const RESAMPLES: usize = 500;
/// Share of the resamples outside of the range, at each end.
const TAIL: f64 = 0.025;

/// Balance of a program that takes turns, by its rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Turns {
    /// Rounds of each process.
    pub rounds: Vec<Rounds>,
    /// Processes that work more than the others with known work by enough, the most loaded first.
    pub loaded: Vec<Node>,
    /// The process with the longest shown rounds.
    pub first: Node,
    /// Work of the first process over the next; if several are loaded, of the least loaded over the
    /// largest of the others.
    pub ratio: f64,
    /// 95 % range of the ratio with other rounds drawn.
    pub ratio_range: Range,
    /// Cost of the load, s.
    pub slowdown_s: Range,
    /// Number of processes whose work does not show.
    pub hidden: usize,
}

/// The rounds of each process.
fn rounds(steps: &[Option<Step>], nodes: usize) -> Vec<Rounds> {
    let mut lists: Vec<Vec<Shown>> = vec![Vec::new(); nodes];
    for step in steps.iter().flatten() {
        let list = &mut lists[usize::from(step.process)];
        match list.last_mut() {
            Some(round) if !step.begins => *round = round.and(step.shown),
            _ => list.push(step.shown),
        }
    }
    let of_process = |list: Vec<Shown>| {
        let is_shown = |round: &&Shown| round.hidden as f64 <= SHOWN * round.work as f64;
        let shown = list.iter().filter(is_shown);
        Rounds {
            shown_s: shown.map(|round| round.work as f64 / 1e9).collect(),
            count: list.len(),
        }
    };
    lists.into_iter().map(of_process).collect()
}

/// True if nearly all rounds of a process show its work, so that it does not answer at once.
pub fn mostly_shows(schedule: &Schedule, process: Node) -> bool {
    let rounds = rounds(&steps::steps(schedule), schedule.nodes);
    rounds
        .get(usize::from(process))
        .is_some_and(|rounds| rounds.is_shown(MOST))
}

/// Weighs the rounds of a program whose processes take turns; `None` if fewer than two processes show
/// their work.
pub fn weigh(schedule: &Schedule) -> Option<Turns> {
    let steps = steps::steps(schedule);
    let rounds = rounds(&steps, schedule.nodes);
    let means: Vec<f64> = rounds.iter().map(Rounds::mean_s).collect();
    let alike = roles::of_work(&schedule.messages, schedule.nodes).about_longest(&means);
    let mut order: Vec<usize> = alike.iter().copied().filter(|&i| means[i] > 0.0).collect();
    order.sort_by(|&a, &b| means[b].total_cmp(&means[a]));
    if order.len() < 2 {
        return None;
    }
    let most = (alike.len() / 2).min(order.len() - 1);
    let ahead = (1..=most)
        .rev()
        .map(|k| order.split_at(k))
        .find(|(ahead, others)| are_loaded(schedule, &rounds, ahead, others));
    let (ahead, others) = ahead.unwrap_or(order.split_at(1));
    let is_loaded = are_loaded(schedule, &rounds, ahead, others);
    let loaded = match is_loaded {
        true => ahead.iter().map(|&node| node as Node).collect(),
        false => Vec::new(),
    };
    Some(Turns {
        hidden: alike.len() - order.len(),
        first: ahead[0] as Node,
        ratio: means[ahead[ahead.len() - 1]] / means[others[0]],
        ratio_range: drawn(&rounds, ahead, others),
        slowdown_s: match is_loaded {
            true => cost(schedule, &steps, &rounds, ahead, others)?,
            false => Range::default(),
        },
        loaded,
        rounds,
    })
}

/// True if the first processes work more than the others that show their work by enough. `ahead` is in
/// the order of work, the most first.
///
/// They must nearly always be late, and not because of some long rounds, which all processes have now
/// and then on shared CPUs.
fn are_loaded(schedule: &Schedule, rounds: &[Rounds], ahead: &[usize], others: &[usize]) -> bool {
    let (Some(&last), Some(&next)) = (ahead.last(), others.first()) else {
        return false;
    };
    let is_shown = |&node: &usize| rounds[node].is_shown(MOST);
    let sorted = |node: &usize| quantile::sorted(rounds[*node].shown_s.iter().copied());
    let nodes: Vec<Node> = ahead.iter().map(|&node| node as Node).collect();
    rounds[last].mean_s() >= GATE * rounds[next].mean_s()
        && ahead.iter().all(is_shown)
        && Lead::of(ahead.iter().map(sorted), others.iter().map(sorted)).is_clear()
        && (ahead.len() == 1 || !schedule::are_of_a_kind(schedule, &nodes))
}

/// The 95 % range of the ratio with other rounds.
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

/// Cost of the load of these processes if the program takes turns, s; `None` if no other process shows
/// its work.
pub(super) fn cost_of(schedule: &Schedule, loaded: &[Node]) -> Option<Range> {
    let steps = steps::steps(schedule);
    let rounds = rounds(&steps, schedule.nodes);
    let ahead: Vec<usize> = loaded.iter().map(|&node| usize::from(node)).collect();
    let alike = roles::of_work(&schedule.messages, schedule.nodes);
    let is_alike = |node: &usize| ahead.iter().all(|&of| alike.are_alike(of, *node));
    let is_other =
        |node: &usize| !ahead.contains(node) && is_alike(node) && rounds[*node].is_shown(SOME);
    let others: Vec<usize> = (0..schedule.nodes).filter(is_other).collect();
    cost(schedule, &steps, &rounds, &ahead, &others)
}

/// Cost of the load, s: the time that the run saves in a replay with the work of the loaded processes
/// cut to that of the others. The range comes from the quartiles of the others, and from the
/// differences between runs of the same work. Processes that answer at once are assumed to work like
/// the others.
fn cost(
    schedule: &Schedule,
    steps: &[Option<Step>],
    rounds: &[Rounds],
    ahead: &[usize],
    others: &[usize],
) -> Option<Range> {
    let usual = others
        .iter()
        .flat_map(|&node| rounds[node].shown_s.iter().copied());
    let usual = quantile::sorted(usual);
    let links = Links::of(&schedule.messages);
    let mut costs = Vec::new();
    for (q, seed) in [(0.25, 1), (0.25, 2), (0.75, 1), (0.75, 2)] {
        let to_s = quantile::quantile(&usual, q)?;
        let unloaded = Unloaded::new(rounds, ahead, &usual, to_s, seed);
        costs.push(replay::saved_s(schedule, steps, unloaded, links.clone()));
    }
    let chance = |&node: &usize| {
        let spread = 1.4826 * quantile::deviation(&rounds[node].shown_s).unwrap_or(0.0);
        2.0 * std::f64::consts::SQRT_2 * spread * (rounds[node].count as f64).sqrt()
    };
    let chance = ahead.iter().map(chance).fold(0.0, f64::max);
    let differ = between_runs(schedule) * schedule.run_s();
    Some(Range {
        low: (costs.iter().copied().fold(f64::INFINITY, f64::min) - chance - differ).max(0.0),
        high: costs.iter().copied().fold(0.0, f64::max) + chance + differ,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{self, Verdict};
    use crate::messages;
    use crate::schedule;
    use crate::testing::{Bsp, Style, bsp};

    fn of(program: &Bsp) -> (Option<Turns>, f64) {
        let made = bsp(program);
        let found = messages::messages(&made.run).unwrap();
        let schedule = schedule::schedule(&found, program.work_s.len());
        assert!(schedule.takes_turns);
        (weigh(&schedule), made.seconds)
    }

    /// Any process but the one that begins works 30 to 100 % more than the others.
    #[test]
    fn a_process_that_answers_late_is_named_with_its_cost() {
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

    /// Each of two loaded processes is later than the message for which it waits. The second in the
    /// order of the messages must have more load.
    #[test]
    fn two_that_answer_late_are_both_named_with_their_cost() {
        let all = |n: usize| (0..n).flat_map(move |a| (a + 1..n).map(move |b| (a, b)));
        for (edges, n, loads) in [
            (all(4).collect(), 4, [(1, 1.4), (2, 1.9)]),
            (Bsp::ring(4).edges, 4, [(1, 1.32), (2, 1.89)]),
            (Bsp::ring(8).edges, 8, [(4, 1.35), (5, 1.8)]),
        ] {
            let mut program = Bsp {
                edges,
                style: Style::Turns,
                jitter: 0.03,
                ..Bsp::ring(n)
            };
            let (_, base_s) = of(&program);
            for (node, load) in loads {
                program.work_s[node] *= load;
            }
            program.seed = 51;
            let (found, seconds) = of(&program);
            let found = found.unwrap();
            let mut names = found.loaded.clone();
            names.sort_unstable();
            assert_eq!(names, loads.map(|load| load.0 as Node), "{found:?}");
            let (truth, range) = (seconds - base_s, found.slowdown_s);
            assert!(
                (range.low..=range.high).contains(&truth),
                "{truth} not in {range:?}"
            );
        }
    }

    /// No process waits for the message that it answers, since the last of the chain holds all of them
    /// up. That might be an exchange, in which the link would hide nothing of the load.
    #[test]
    fn a_chain_whose_last_is_loaded_may_take_turns() {
        let mut program = Bsp {
            edges: (0..3).map(|i| (i, i + 1)).collect(),
            style: Style::Turns,
            jitter: 0.01,
            slow_link: Some((1, 0.5e-3)),
            ..Bsp::ring(4)
        };
        let base_s = bsp(&program).seconds;
        program.work_s[3] *= 1.6;
        let made = bsp(&program);
        let found = messages::messages(&made.run).unwrap();
        let schedule = schedule::schedule(&found, 4);
        assert!(schedule.keeps_order);
        let evidence = evidence::weigh(&made.run).unwrap();
        assert_eq!(evidence.verdict, Verdict::Loaded(vec![3]));
        let (range, truth) = (evidence.slowdown_s.unwrap(), made.seconds - base_s);
        assert!(
            (range.low..=range.high).contains(&truth),
            "{truth} not in {range:?}"
        );
    }

    /// The others may have finished long before or not; they answer at once in both cases.
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
