//! The needs of each send, from the times of sends and arrivals.

use std::collections::BTreeMap;

use super::need::Need;
use super::phases::{self, Phased};
use super::sends::{MANY_PAIRS, Sends, may_be_in_step};
use super::slope::{LEAST_SAMPLES, Slope, slope_of};
use crate::messages::Message;
use crate::run::Node;

/// Most repetitions, evenly spread, from which a slope is computed. All pairs of them are used.
const MOST_SAMPLES: usize = 300;
/// Most repetitions if there are many slots.
const FEW_SAMPLES: usize = 50;
/// A slope of 1 is excluded by this much below 1, and a slope of 0 by this much above 0.
const APART: f64 = 0.2;
/// Largest share of the wait that may have passed between the arrival and a send that follows at once.
pub(super) const AT_ONCE: f64 = 0.1;
/// Slack between a send and the arrival for which it waited, ns.
const SLACK_NS: i64 = 20_000;

pub(super) struct Context<'a> {
    pub(super) messages: &'a [Message],
    pub(super) sent: &'a BTreeMap<(Node, Node), Sends>,
    pub(super) before: &'a [Option<usize>],
    /// Numbers of the sends of slots (sender, receiver, source) whose pairs talk in different phases.
    pub(super) phased: Phased,
}

impl Context<'_> {
    /// Numbers of the sends of a slot if they differ from the order of sending.
    pub(super) fn numbers(&self, slot: (Node, Node, Node)) -> Option<&[i64]> {
        self.phased.get(&slot).map(Vec::as_slice)
    }

    /// The number of messages from `from` that nearly every send from `me` to `to` had seen, less the
    /// number of sends to `to` before it. `None` if the two are not in step.
    pub(super) fn surplus(&self, me: Node, to: Node, from: Node) -> Option<i64> {
        let sends = self.sent.get(&(me, to))?;
        let arrivals = &self.sent.get(&(from, me))?.arrivals;
        let numbers = self.numbers((me, to, from));
        if numbers.is_none() && !may_be_in_step(sends.times.len(), arrivals.len()) {
            return None;
        }
        let mut arrived = 0;
        let of_send = |(n, t): (usize, i64)| {
            let more = &arrivals[arrived..];
            arrived += match sends.every {
                // Most often one or no message came.
                1 => more.iter().take_while(|at| **at < t).count(),
                _ => more.partition_point(|at| *at < t),
            };
            arrived as i64 - phases::number(numbers, n)
        };
        let mut surplus: Vec<i64> = sends.sampled().map(of_send).collect();
        // The number that nearly every send had seen. A single exception at start-up does not count.
        let rank = surplus.len() / 50;
        Some(*surplus.select_nth_unstable(rank).1)
    }

    /// The sources that are in step with the sends from `me` to `to`, with their surpluses.
    pub(super) fn in_step(&self, me: Node, to: Node, sources: &[Node]) -> Vec<(Node, i64)> {
        // Most slots of many processes have too few sends.
        if self
            .sent
            .get(&(me, to))
            .is_none_or(|sends| sends.messages.len() < LEAST_SAMPLES)
        {
            return Vec::new();
        }
        let of_source = |&from: &Node| Some((from, self.surplus(me, to, from)?));
        sources.iter().filter_map(of_source).collect()
    }

    /// Needs of the sends from `me` to `to`, for sources with these surpluses, in the same order.
    ///
    /// Arrivals with one cause move together, and each alone would seem to move the send. The arrival
    /// that a send follows soonest is therefore accepted first, and the work for the comparison of the
    /// others begins with it.
    pub(super) fn needs(
        &self,
        me: Node,
        to: Node,
        in_step: &[(Node, i64)],
        mut begins: Vec<Option<i64>>,
    ) -> Vec<(Node, Need)> {
        let mut open = in_step.to_vec();
        let mut found = Vec::new();
        loop {
            let of = |&(from, floor): &(Node, i64)| {
                Some((from, self.need(me, to, from, floor, &begins)?))
            };
            let now: Vec<(Node, Need)> = open.iter().filter_map(of).collect();
            let soonest = now.iter().filter_map(|&(from, need)| match need {
                Need::Offset { offset, delay_ns } if offset > 0 => Some((delay_ns, from, offset)),
                _ => None,
            });
            let soonest = soonest.min();
            match soonest {
                Some((_, from, offset)) if open.len() > 1 => {
                    found.extend(now.into_iter().find(|(source, _)| *source == from));
                    open.retain(|(source, _)| *source != from);
                    self.begin_after(me, to, from, offset, &mut begins);
                }
                _ => {
                    found.extend(now);
                    return found;
                }
            }
        }
    }

    /// The latest begin of the work before each sampled send from `me` to `to` if none of the doubtful
    /// messages is needed: after the process's send before and all messages that are certainly needed.
    /// `None` for the first send.
    pub(super) fn begins(&self, me: Node, to: Node, in_step: &[(Node, i64)]) -> Vec<Option<i64>> {
        let Some(sends) = self.sent.get(&(me, to)) else {
            return Vec::new();
        };
        let mut begins: Vec<Option<i64>> = sends.sampled().map(|(n, _)| sends.own[n]).collect();
        for &(from, floor) in in_step {
            if sends.is_long_ago(floor) {
                continue;
            }
            let offset = if floor > 0 { floor - 1 } else { floor };
            self.begin_after(me, to, from, offset, &mut begins);
        }
        begins
    }

    /// Sets the begin of the work before each send from `me` to `to` to the arrival of the first
    /// `n + offset` messages of `from` at the earliest.
    fn begin_after(&self, me: Node, to: Node, from: Node, offset: i64, begins: &mut [Option<i64>]) {
        let (Some(sends), Some(theirs)) = (self.sent.get(&(me, to)), self.sent.get(&(from, me)))
        else {
            return;
        };
        let numbers = self.numbers((me, to, from));
        for (begin, (n, t)) in begins.iter_mut().zip(sends.sampled()) {
            let at = usize::try_from(phases::number(numbers, n) + offset - 1).ok();
            if let (Some(begin), Some(&arrival)) =
                (begin, at.and_then(|at| theirs.arrivals.get(at)))
                && arrival < t
            {
                *begin = arrival.max(*begin);
            }
        }
    }

    /// The need of the sends from `me` to `to` for messages of `from`, which has this surplus.
    fn need(
        &self,
        me: Node,
        to: Node,
        from: Node,
        floor: i64,
        begins: &[Option<i64>],
    ) -> Option<Need> {
        let sends = self.sent.get(&(me, to))?;
        let theirs = self.sent.get(&(from, me))?;
        let numbers = self.numbers((me, to, from));
        let of_offset = |offset: i64| Need::Offset {
            offset,
            delay_ns: delay_ns(sends, theirs, numbers, offset),
        };
        // At most 0: some sends came before the partner's message of their round, so that it is not
        // needed.
        if from != to && sends.is_long_ago(floor) {
            return Some(Need::LongAgo);
        }
        if floor <= 0 {
            return Some(of_offset(floor));
        }
        // Always early: the message was needed, or its sender was only always faster.
        Some(match self.slope((sends, theirs, numbers), floor, begins) {
            Slope::Within(low, high) => match (low <= APART, high >= 1.0 - APART) {
                (true, false) => of_offset(floor - 1),
                (false, true) => of_offset(floor),
                // Neither slope fits, since a third thing moves both, or both fit.
                (false, false) if high < 0.5 => of_offset(floor - 1),
                (false, false) if low > 0.5 => of_offset(floor),
                _ => Need::Either(floor),
            },
            // The message came before the process's send before, so that neither reading changes the
            // work. A message of a third process may still be needed, and delay the send if others
            // become faster.
            Slope::NeverLast if to == from => of_offset(floor - 1),
            Slope::NeverLast => Need::Hidden(floor),
            Slope::TooFew => Need::Either(floor),
        })
    }

    /// True if sends to a partner always come after its message and do not move with it, so that they
    /// do not wait for it. (A message that nearly always comes before the process's send before says
    /// nothing.)
    pub(super) fn stays(
        &self,
        me: Node,
        to: Node,
        in_step: &[(Node, i64)],
        begins: &[Option<i64>],
    ) -> bool {
        let floor = in_step.iter().find(|(from, _)| *from == to);
        let lists = self.sent.get(&(me, to)).zip(self.sent.get(&(to, me)));
        let (Some(&(_, floor)), Some((sends, theirs))) = (floor, lists) else {
            return false;
        };
        let slope = || self.slope((sends, theirs, None), floor, begins);
        floor > 0
            && matches!(slope(), Slope::Within(low, high) if low <= APART && high < 1.0 - APART)
    }

    /// [`delay_ns`] of a slot (sender, receiver, source).
    pub(super) fn delay_ns(&self, (me, to, from): (Node, Node, Node), offset: i64) -> i64 {
        let lists = self.sent.get(&(me, to)).zip(self.sent.get(&(from, me)));
        let numbers = self.numbers((me, to, from));
        lists.map_or(0, |(sends, theirs)| {
            delay_ns(sends, theirs, numbers, offset)
        })
    }

    /// A small part of a round, ns, if three in four sends of a slot that had waited come within it
    /// after the arrival that they need. Later sends then had another delay.
    pub(super) fn soon_ns(&self, (me, to, from): (Node, Node, Node), offset: i64) -> Option<i64> {
        let (sends, theirs) = (self.sent.get(&(me, to))?, self.sent.get(&(from, me))?);
        let mut delays: Vec<i64> = instants(sends, theirs, self.numbers((me, to, from)), offset)
            .filter(|(t, arrival, own)| arrival > own && t >= arrival)
            .map(|(t, arrival, _)| t - arrival)
            .collect();
        let mut rounds: Vec<i64> = sends.times.windows(2).map(|w| w[1] - w[0]).collect();
        if delays.len() < LEAST_SAMPLES || rounds.is_empty() {
            return None;
        }
        let (late, middle) = (delays.len() * 3 / 4, rounds.len() / 2);
        let late = *delays.select_nth_unstable(late).1;
        let part = (AT_ONCE * *rounds.select_nth_unstable(middle).1 as f64) as i64;
        (late <= part).then_some(part)
    }

    /// True if nearly every send from `me` to `to` comes before the process's message to `from` with
    /// the number of the doubtful message from there. Requires that the two are known to be in step,
    /// neither a message ahead.
    pub(super) fn meets_later(&self, (me, to, from): (Node, Node, Node), floor: i64) -> bool {
        let is_level = |a: Node, b: Node| self.surplus(a, b, b).is_some_and(|surplus| surplus >= 0);
        let (Some(sends), Some(own)) = (self.sent.get(&(me, to)), self.sent.get(&(me, from)))
        else {
            return false;
        };
        if !is_level(me, from) || !is_level(from, me) {
            return false;
        }
        let numbers = self.numbers((me, to, from));
        let later = |(n, t): (usize, i64)| {
            let at = usize::try_from(phases::number(numbers, n) + floor - 1).ok();
            at.and_then(|at| own.times.get(at))
                .is_none_or(|own| *own > t)
        };
        let later: Vec<bool> = sends.sampled().map(later).collect();
        later.iter().filter(|is_later| **is_later).count() * 10 >= later.len() * 9
    }

    /// The sends to a partner that had a message of it to answer: times of the send, of the arrival and
    /// of the process's send before. `None` if the two do not exchange messages.
    fn exchanged(&self, me: Node, to: Node) -> Option<impl Iterator<Item = (i64, i64, i64)>> {
        let (sends, theirs) = (self.sent.get(&(me, to))?, self.sent.get(&(to, me))?);
        let floor = self.surplus(me, to, to)?;
        Some(instants(sends, theirs, None, floor))
    }

    /// True if sends to a partner follow its message at once whenever it comes: many within a short
    /// time after it and few in the same time after that, while the time of the message varies. If the
    /// message always comes at the same time, three in four sends within a small part of the wait are
    /// enough. That may be chance, but then the work of the two does not show either.
    pub(super) fn follows(&self, me: Node, to: Node) -> bool {
        let Some(instants) = self.exchanged(me, to) else {
            return false;
        };
        let waits: Vec<(i64, i64)> = instants
            .filter(|(t, arrival, own)| arrival > own && t >= arrival)
            .map(|(t, arrival, own)| (t - arrival, arrival - own))
            .collect();
        if waits.len() < LEAST_SAMPLES {
            return false;
        }
        let mut delays: Vec<i64> = waits.iter().map(|wait| wait.0).collect();
        delays.sort_unstable();
        let mut before: Vec<i64> = waits.iter().map(|wait| wait.1).collect();
        before.sort_unstable();
        if delays[delays.len() * 3 / 4] as f64 <= AT_ONCE * before[before.len() / 2] as f64 {
            return true;
        }
        let soon = 2 * delays[delays.len() / 20] + SLACK_NS;
        let within = |from: i64, to: i64| {
            delays.partition_point(|&d| d <= to) - delays.partition_point(|&d| d <= from)
        };
        if within(-1, soon) < 3 * within(soon, 2 * soon) + 5 {
            return false;
        }
        let mut before: Vec<i64> = waits
            .iter()
            .filter(|wait| wait.0 <= soon)
            .map(|wait| wait.1)
            .collect();
        before.sort_unstable();
        let spread = before[before.len() * 3 / 4] - before[before.len() / 4];
        spread >= 3 * soon
    }

    /// True if three in four sends to a partner come within a small part of a round after its message,
    /// and nearly none before it.
    pub(super) fn answers(&self, me: Node, to: Node) -> bool {
        let (Some(sends), Some(instants)) = (self.sent.get(&(me, to)), self.exchanged(me, to))
        else {
            return false;
        };
        let mut delays: Vec<i64> = instants
            .filter(|(t, arrival, _)| t >= arrival)
            .map(|(t, arrival, _)| t - arrival)
            .collect();
        let mut rounds: Vec<i64> = sends.times.windows(2).map(|w| w[1] - w[0]).collect();
        delays.sort_unstable();
        rounds.sort_unstable();
        let (Some(&late), Some(&round)) = (
            delays.get(delays.len() * 3 / 4),
            rounds.get(rounds.len() / 2),
        ) else {
            return false;
        };
        delays.len() >= LEAST_SAMPLES && late as f64 <= AT_ONCE * round as f64
    }

    /// Slope of the send on the arrival that it may need. Both are counted from the begin of the work
    /// without that need. (Counted from the process's send before, both would move together with it.)
    fn slope(
        &self,
        (sends, theirs, numbers): (&Sends, &Sends, Option<&[i64]>),
        floor: i64,
        begins: &[Option<i64>],
    ) -> Slope {
        let point = |((n, t), begin): ((usize, i64), &Option<i64>)| {
            let at = usize::try_from((phases::number(numbers, n) + floor).checked_sub(1)?).ok()?;
            let (arrival, begin) = (*theirs.arrivals.get(at)?, (*begin)?);
            (arrival > begin && t > arrival)
                .then_some(((arrival - begin) as f64, (t - begin) as f64))
        };
        let points = sends.sampled().zip(begins).filter_map(point);
        let points: Vec<(f64, f64)> = points.collect();
        if points.len() * 10 < begins.len() {
            return Slope::NeverLast;
        }
        let most = if self.sent.len() > MANY_PAIRS {
            FEW_SAMPLES
        } else {
            MOST_SAMPLES
        };
        let step = points.len().div_ceil(most).max(1);
        slope_of(&points.into_iter().step_by(step).collect::<Vec<_>>())
    }
}

/// For each sampled send: its time, the arrival of the last message that it needs, and the process's
/// send before.
fn instants<'a>(
    sends: &'a Sends,
    theirs: &'a Sends,
    numbers: Option<&'a [i64]>,
    offset: i64,
) -> impl Iterator<Item = (i64, i64, i64)> + use<'a> {
    let of_send = move |(n, t): (usize, i64)| {
        let at = usize::try_from((phases::number(numbers, n) + offset).checked_sub(1)?).ok()?;
        Some((t, *theirs.arrivals.get(at)?, sends.own[n]?))
    };
    sends.sampled().filter_map(of_send)
}

/// Delay of a send after the last arrival that it needs, if the process had waited: twice the value
/// that nine in ten exceed, and a slack.
fn delay_ns(sends: &Sends, theirs: &Sends, numbers: Option<&[i64]>, offset: i64) -> i64 {
    let mut delays: Vec<i64> = instants(sends, theirs, numbers, offset)
        .filter(|(t, arrival, own)| arrival > own && t >= arrival)
        .map(|(t, arrival, _)| t - arrival)
        .collect();
    if delays.is_empty() {
        return 0;
    }
    let rank = delays.len() / 10;
    2 * *delays.select_nth_unstable(rank).1 + SLACK_NS
}
