//! Slowdown of a run by a process that is slower than the others. In a symmetric exchange
//! ball-in-the-court delays do not show it.
//!
//! The work of each process comes from [`schedule`](crate::schedule). The run is replayed with the work
//! of the loaded processes cut to that of the others. This assumes that all processes are meant to work
//! alike, unless a base run of the same program is given.

use std::collections::BTreeMap;

use super::balance::{GATE, Range};
use super::links::Links;
use super::quantile;
use super::replay::{Change, Reading, replay_over};
use super::roles;
use super::run::Node;
use super::schedule::Schedule;

mod between_runs;
mod lead;
mod loaded;
mod rounds;
pub mod turns;

use crate::schedule::are_of_a_kind;
pub(super) use between_runs::{RUN_TO_RUN, between_runs};
pub(super) use lead::Lead;
use lead::lead;
use loaded::{loaded, stand_apart};
use rounds::{ByStep, Rounds, delay_factor, noise, rounds};

/// Least share of a round for messages that take significant time.
const SLOW: f64 = 0.05;

/// The loaded processes and their cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Slowdown {
    /// Work of each process, least and most, s.
    pub work_s: Vec<(f64, f64)>,
    /// Loaded processes, the most loaded first. Empty if none stands out.
    pub loaded: Vec<Node>,
    /// Processes that would stand out but answer every message at once, as the end of a chain does.
    /// Their work does not show, and their waits look like work.
    pub hidden: Vec<Node>,
    /// Processes that do other work than those compared, as a coordinator or a server does.
    pub apart: Vec<Node>,
    /// Work of the loaded process over that of the next, from the middle of both readings.
    pub ratio: f64,
    /// Length of the run between its first and last message, s.
    pub run_s: f64,
    /// Factor of the mean work of processes over that of quiet rounds.
    pub noise: f64,
    /// Cost of the load, s; 0 without a loaded process.
    pub slowdown_s: Range,
}

impl Slowdown {
    /// The most work of one process over the least work of the next: the largest factor that the two
    /// readings of the dependencies allow.
    pub fn most_ratio(&self) -> f64 {
        let is_shown = |node: &Node| !self.hidden.contains(node) && !self.apart.contains(node);
        let shown = || (0..self.work_s.len()).filter(|&i| is_shown(&(i as Node)));
        let of = |node: usize| {
            let others = shown().filter(|&other| other != node);
            let next = others.map(|other| self.work_s[other].0).fold(0.0, f64::max);
            if next > 0.0 {
                self.work_s[node].1 / next
            } else {
                f64::INFINITY
            }
        };
        shown().map(of).fold(0.0, f64::max)
    }

    /// Half the width of the range over its middle; `None` when there is no slowdown.
    pub fn relative_width(&self) -> Option<f64> {
        let middle = (self.slowdown_s.low + self.slowdown_s.high) / 2.0;
        let half = (self.slowdown_s.high - self.slowdown_s.low) / 2.0;
        (middle > 0.0).then(|| half / middle)
    }
}

/// Estimates the slowdown of a schedule; `None` with fewer than two processes that work alike, or if it
/// is no plain exchange.
pub fn slowdown(schedule: &Schedule) -> Option<Slowdown> {
    if !schedule.is_exchange {
        return None;
    }
    let work_s = schedule.work_s();
    let mut middle: Vec<f64> = work_s
        .iter()
        .map(|(least, most)| (least + most) / 2.0)
        .collect();
    let rounds = rounds(schedule);
    let noise = noise(&rounds);
    let gate = shown_at(noise);
    let hidden = hidden(schedule, &middle, gate);
    let alike = roles::of_work(&schedule.messages, schedule.nodes).about_longest(&middle);
    if alike.len() < 2 {
        return None;
    }
    let all = 0..schedule.nodes;
    let apart = all.filter(|node| !alike.contains(node));
    let apart: Vec<Node> = apart.map(|node| node as Node).collect();
    let uncompared = [&hidden[..], &apart].concat();
    for &node in &uncompared {
        middle[usize::from(node)] = 0.0;
    }
    // On shared CPUs some processes may have waited in more of their long rounds than others.
    let least = GATE * delay_factor(&rounds);
    let may_be = |several: &[Node]| {
        stand_apart(&work_s, &uncompared, several, least)
            && !are_of_a_kind(schedule, several)
            && lead(&rounds, several, &uncompared).is_steady()
    };
    let found = loaded(&middle, gate, may_be);
    let (loaded, ratio) = match uncompared.is_empty() {
        true => found?,
        false => found.unwrap_or_default(),
    };
    // A program that may take turns must meet the conditions of turns as well.
    let is_named = !schedule.keeps_order || lead(&rounds, &loaded, &uncompared).is_clear();
    let loaded = if is_named { loaded } else { Vec::new() };
    let links = Links::of(&schedule.messages);
    let played = |change: &Change, reading| {
        Some(replay_over(schedule, change, reading, links.clone())?.seconds)
    };
    let base = [Reading::Waiting, Reading::Working]
        .map(|reading| Some((reading, played(&Change::default(), reading)?)));
    let run_s = base.iter().flatten().map(|b| b.1).fold(0.0, f64::max);
    let mut costs: Vec<f64> = Vec::new();
    for (reading, whole) in base.into_iter().flatten() {
        // The others do not work exactly alike, so their quartiles bound the work that the loaded
        // processes would have. The apparent work of processes that answer at once is a wait for the
        // loaded ones.
        let cut: Vec<Node> = loaded.iter().chain(&hidden).copied().collect();
        for q in [0.25, 0.75] {
            let change = Change {
                steps: unloaded(schedule, reading, &cut, &apart, q),
                ..Change::default()
            };
            costs.push((whole - played(&change, reading)?).max(0.0));
        }
    }
    let slowdown_s = if loaded.is_empty() {
        Range::default()
    } else {
        // No two runs take exactly the same time: neither this one nor the one without load.
        let chance = 2.0 * std::f64::consts::SQRT_2 * deviation(schedule, &loaded)
            + between_runs(schedule) * run_s;
        let cost = Range {
            low: (costs.iter().copied().reduce(f64::min)? - chance).max(0.0),
            high: costs.iter().copied().reduce(f64::max)? * with_first(&rounds, &loaded) + chance,
        };
        // If all pairs keep an order, they may take turns and answer late because of the load. Each
        // process then waits for the message before its own, and the gain without the load is less if
        // messages take significant time.
        let may_wait = schedule.keeps_order && share_under_way(schedule) >= SLOW;
        let by_turns = may_wait.then(|| turns::cost_of(schedule, &loaded));
        by_turns.flatten().map_or(cost, |other| Range {
            low: cost.low.min(other.low),
            high: cost.high.max(other.high),
        })
    };
    Some(Slowdown {
        work_s,
        loaded,
        hidden,
        apart,
        ratio,
        run_s,
        noise,
        slowdown_s,
    })
}

/// Factors on the steps that make the rounds of these processes as long as those of the others. Each
/// round gets the length of the others' round with the same rank, taken at quantile `q` among the
/// others, without those `apart`. If a load comes and goes, only the rounds that it lengthened become shorter.
fn unloaded(
    schedule: &Schedule,
    reading: Reading,
    cut: &[Node],
    apart: &[Node],
    q: f64,
) -> Vec<f64> {
    let rounds = ByStep::of(schedule, reading);
    let sorted = rounds.sorted();
    let works = |works: &&Vec<f64>| works.iter().sum::<f64>() > 0.0;
    let is_other = |node: &Node| !cut.contains(node) && !apart.contains(node);
    let others = sorted.iter().filter(|(node, _)| is_other(node));
    let others: Vec<&Vec<f64>> = others.map(|(_, works)| works).filter(works).collect();
    let usual = |at: f64| {
        let of = others
            .iter()
            .filter_map(|works| quantile::quantile(works, at));
        quantile::quantile(&quantile::sorted(of), q)
    };
    let factor = |node: &Node, work: f64| {
        let own = &sorted[node];
        let place = own.partition_point(|other| *other < work) as f64;
        let at = place / (own.len() - 1).max(1) as f64;
        let usual = usual(at).filter(|_| work > 0.0);
        usual.map_or(1.0, |usual| (usual / work).min(1.0))
    };
    let by_round = cut.iter().filter_map(|node| {
        let works = rounds.work_s.get(node)?;
        let factors = works.iter().map(|work| factor(node, *work)).collect();
        Some((*node, factors))
    });
    let by_round: BTreeMap<Node, Vec<f64>> = by_round.collect();
    let steps = schedule.steps.iter().zip(&rounds.number);
    steps
        .map(|(step, number)| by_round.get(&step.process).map_or(1.0, |of| of[*number]))
        .collect()
}

/// Factor of the whole cost of the load over the cost in the rounds with known work: the work before a
/// process's first send does not show.
fn with_first(rounds: &Rounds, loaded: &[Node]) -> f64 {
    let counts = loaded.iter().filter_map(|node| rounds.get(node));
    let shown = counts
        .map(|works| works.len().saturating_sub(1).max(1))
        .min();
    shown.map_or(1.0, |shown| (shown + 1) as f64 / shown as f64)
}

/// Time under way of the messages of the slowest pair, as a share of a round.
fn share_under_way(schedule: &Schedule) -> f64 {
    let mut pairs: BTreeMap<(Node, Node), Vec<f64>> = BTreeMap::new();
    for message in &schedule.messages {
        let took = (message.received_ns.1 - message.sent_ns.0) as f64 / 1e9;
        pairs
            .entry((message.src, message.dst))
            .or_default()
            .push(took);
    }
    let rounds = pairs.values().map(Vec::len).max().unwrap_or(0);
    let middle = pairs.into_values().filter_map(quantile::median);
    let round_s = schedule.run_s() / rounds.max(1) as f64;
    match round_s > 0.0 {
        true => middle.fold(0.0, f64::max) / round_s,
        false => 0.0,
    }
}

/// The processes that answer at once and would stand out from the others. Their apparent work may as
/// well be a wait for a loaded process.
fn hidden(schedule: &Schedule, work: &[f64], gate: f64) -> Vec<Node> {
    let is_answering = |node: &usize| schedule.answering.contains(&(*node as Node));
    let shown = (0..work.len()).filter(|node| !is_answering(node) && work[*node] > 0.0);
    let Some(usual) = quantile::median(shown.map(|node| work[node])) else {
        return schedule.answering.clone();
    };
    let answering = schedule.answering.iter().copied();
    answering
        .filter(|&node| work[usize::from(node)] >= gate * usual)
        .collect()
}

/// The factor at which a load of [`GATE`] shows if rounds take `noise` times the work of quiet ones.
/// The time above that of quiet rounds is no work, and makes the factor smaller.
pub(super) fn shown_at(noise: f64) -> f64 {
    1.0 + (GATE - 1.0) / noise.max(1.0)
}

/// Difference of the whole work of the loaded processes from run to run, s: the standard deviation of
/// the sum of their steps, from the spread of each kind of step (those with one receiver).
fn deviation(schedule: &Schedule, loaded: &[Node]) -> f64 {
    let mut kinds: BTreeMap<(Node, Node), Vec<f64>> = BTreeMap::new();
    for step in &schedule.steps {
        if loaded.contains(&step.process) {
            let to = schedule.messages[step.message].dst;
            let (_, most) = schedule.work_ns(step);
            kinds
                .entry((step.process, to))
                .or_default()
                .push(most as f64 / 1e9);
        }
    }
    let variance = |works: &Vec<f64>| {
        // The median deviation, since a step that is delayed now and then does not show a spread of
        // work.
        let spread = 1.4826 * quantile::deviation(works).unwrap_or(0.0);
        works.len() as f64 * spread * spread
    };
    kinds.values().map(variance).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages;
    use crate::schedule;
    use crate::testing::{Bsp, Style, bsp};

    fn of(program: &Bsp) -> (Option<Slowdown>, f64) {
        let made = bsp(program);
        let found = messages::messages(&made.run).unwrap();
        let schedule = schedule::schedule(&found, program.work_s.len());
        (slowdown(&schedule), made.seconds)
    }

    #[test]
    fn loads_of_30_to_100_percent_are_found_with_their_cost() {
        let (mut inside, mut runs, mut unknown) = (0, 0, 0);
        for style in [Style::AllFirst, Style::ByEdge] {
            for (n, load) in [(4, 1.3), (4, 1.6), (8, 2.0)] {
                let balanced = Bsp {
                    style,
                    seed: 7,
                    ..Bsp::ring(n)
                };
                let (none, base_s) = of(&balanced);
                // Unknown is an honest answer, but must not be the only one.
                let is_quiet = none.as_ref().is_none_or(|none| none.loaded.is_empty());
                assert!(is_quiet, "{style:?}, {n}: {none:?}");
                unknown += usize::from(none.is_none());
                let mut program = balanced.clone();
                program.work_s[2] *= load;
                program.seed = 11;
                let (found, seconds) = of(&program);
                let Some(found) = found else {
                    unknown += 1;
                    continue;
                };
                assert_eq!(
                    found.loaded,
                    [2],
                    "{style:?}, {n} × {load}: {:?}",
                    found.work_s
                );
                let truth = seconds - base_s;
                runs += 1;
                let (low, high) = (found.slowdown_s.low, found.slowdown_s.high);
                eprintln!("{style:?} n {n} load {load}: {low:.4} to {high:.4}, true {truth:.4}");
                inside += usize::from(low * 0.9 <= truth && truth <= high * 1.1);
            }
        }
        assert!(inside * 10 >= runs * 8, "{inside} of {runs}");
        assert!(unknown <= 1, "{unknown} of 12 unknown");
    }

    /// On a busy machine the processes of a chain, which take turns, send each other their messages at
    /// about the same time, as in an exchange. The end of the chain still answers its only partner.
    #[test]
    fn a_process_that_only_answers_a_loaded_one_is_not_named() {
        let n = 8;
        let mut program = Bsp {
            edges: (0..n - 1).map(|i| (i, i + 1)).collect(),
            style: Style::ByEdge,
            jitter: 0.02,
            seed: 5,
            ..Bsp::ring(n)
        };
        program.work_s[6] *= 1.65;
        // The process has done its own work long before the message comes.
        program.answering = vec![7];
        let found = of(&program).0.unwrap();
        assert_eq!(found.loaded, [6], "{found:?}");
        assert_eq!(found.hidden, [7], "{found:?}");
    }

    #[test]
    fn two_loaded_processes_are_both_named() {
        let mut program = Bsp::ring(8);
        program.work_s[1] *= 2.0;
        program.work_s[5] *= 2.1;
        let found = of(&program).0.unwrap();
        let mut loaded = found.loaded.clone();
        loaded.sort_unstable();
        assert_eq!(loaded, [1, 5], "{:?}", found.work_s);
    }

    /// Two loads with different factors, the smaller one at the gate of a single load; on four hosts
    /// and on eight.
    #[test]
    fn of_two_loads_the_lesser_is_named_as_well() {
        for (n, loads) in [(4, [(1, 1.35), (2, 1.9)]), (8, [(0, 2.0), (3, 1.3)])] {
            let mut program = Bsp {
                style: Style::ByEdge,
                jitter: 0.02,
                seed: 31,
                ..Bsp::ring(n)
            };
            let (_, base_s) = of(&program);
            for (node, load) in loads {
                program.work_s[node] *= load;
            }
            program.seed = 32;
            let (found, seconds) = of(&program);
            let found = found.unwrap();
            let mut loaded = found.loaded.clone();
            loaded.sort_unstable();
            assert_eq!(loaded, loads.map(|load| load.0 as Node), "{found:?}");
            let (truth, range) = (seconds - base_s, found.slowdown_s);
            assert!(
                (range.low..=range.high).contains(&truth),
                "{truth}: {range:?}"
            );
        }
    }

    #[test]
    fn several_are_named_only_where_either_reading_says_so_and_no_role_explains_it() {
        let sure = [(1.3, 1.3), (1.0, 1.0), (1.3, 1.35), (0.9, 1.0)];
        assert!(stand_apart(&sure, &[], &[0, 2], GATE));
        let open = [(1.0, 1.6), (1.0, 1.0), (1.3, 1.35), (0.9, 1.0)];
        assert!(!stand_apart(&open, &[], &[0, 2], GATE));
        // Processes of which nothing is known are not compared with.
        let hiding = [(1.3, 1.3), (1.2, 1.2), (1.3, 1.35), (0.9, 1.0)];
        assert!(!stand_apart(&hiding, &[], &[0, 2], GATE));
        assert!(stand_apart(&hiding, &[1], &[0, 2], GATE));
        // The inner processes of a chain send twice as much as its ends.
        let made = bsp(&Bsp {
            edges: vec![(0, 1), (1, 2), (2, 3)],
            ..Bsp::ring(4)
        });
        let chain = schedule::schedule(&messages::messages(&made.run).unwrap(), 4);
        assert!(are_of_a_kind(&chain, &[1, 2]));
        assert!(!are_of_a_kind(&chain, &[0, 3]) && !are_of_a_kind(&chain, &[0, 1]));
    }

    #[test]
    fn where_processes_take_turns_nothing_is_claimed() {
        let made = bsp(&Bsp {
            style: Style::Turns,
            ..Bsp::ring(4)
        });
        let found = messages::messages(&made.run).unwrap();
        assert_eq!(slowdown(&schedule::schedule(&found, 4)), None);
    }

    #[test]
    fn who_answers_a_loaded_process_at_once_does_not_hide_it() {
        let mut schedule = schedule::schedule(&[], 4);
        schedule.answering = vec![3];
        assert_eq!(hidden(&schedule, &[1.0, 1.0, 1.5, 1.51], GATE), [3]);
        // The process does as the others do, and is compared with them.
        assert!(hidden(&schedule, &[1.0, 1.0, 1.0, 1.1], GATE).is_empty());
        assert_eq!(hidden(&schedule, &[0.0, 0.0, 0.0, 1.0], GATE), [3]);
    }

    #[test]
    fn one_process_alone_is_no_comparison() {
        assert_eq!(slowdown(&schedule::schedule(&[], 3)), None);
        assert_eq!(loaded(&[1.0], GATE, |_| true), None);
    }
}
