//! What the times of sends and arrivals say of what each send needs.

use std::collections::BTreeMap;

use super::super::messages::Message;
use super::super::run::Node;
use super::Need;
use super::slope::{LEAST_SAMPLES, Slope, slope_of};

/// Repetitions that a slope is worked out from at most, evenly spread: all pairs of them are looked at.
const MOST_SAMPLES: usize = 300;
/// The same where there are many slots.
const FEW_SAMPLES: usize = 50;
/// Slots (as pairs of processes) from which there are many.
const MANY_PAIRS: usize = 500;
/// A slope of 1 is excluded below 1 less this, one of 0 above this.
const APART: f64 = 0.2;
/// A send follows at once when no more than this share of the wait has passed since the arrival.
const AT_ONCE: f64 = 0.1;
/// Slack of a send after the arrival that it waited for, ns.
const SLACK_NS: i64 = 20_000;
/// Numbers of messages in both directions may differ by this share and still be in step.
const IN_STEP: f64 = 0.05;

pub(super) struct Context<'a> {
    pub(super) messages: &'a [Message],
    pub(super) sent: &'a BTreeMap<(Node, Node), Vec<usize>>,
    pub(super) arrivals: &'a BTreeMap<(Node, Node), Vec<i64>>,
    pub(super) before: &'a [Option<usize>],
}

impl Context<'_> {
    /// Of how many messages more than it has sent itself before nearly every send from `me` to `to`
    /// had seen of `from`. `None`: the two are not in step.
    pub(super) fn surplus(&self, me: Node, to: Node, from: Node) -> Option<i64> {
        let sends = self.sent.get(&(me, to))?;
        let arrivals = self.arrivals.get(&(from, me))?;
        let (own, theirs) = (sends.len() as f64, arrivals.len() as f64);
        if sends.len() < LEAST_SAMPLES || (own - theirs).abs() > IN_STEP * own.max(theirs) + 2.0 {
            return None;
        }
        let mut arrived = 0;
        let seen = |(n, &i): (usize, &usize)| {
            let t = self.messages[i].sent_ns.0;
            while arrivals.get(arrived).is_some_and(|&at| at < t) {
                arrived += 1;
            }
            arrived as i64 - n as i64
        };
        // What nearly every send had seen: a stray one at start-up is no rule.
        let mut surplus: Vec<i64> = sends.iter().enumerate().map(seen).collect();
        let rank = surplus.len() / 50;
        Some(*surplus.select_nth_unstable(rank).1)
    }

    /// Of these sources those that are in step with the sends from `me` to `to`, with their surplus.
    pub(super) fn in_step(&self, me: Node, to: Node, sources: &[Node]) -> Vec<(Node, i64)> {
        // Most slots of many processes have too few to say anything.
        if self
            .sent
            .get(&(me, to))
            .is_none_or(|sends| sends.len() < LEAST_SAMPLES)
        {
            return Vec::new();
        }
        let of_source = |&from: &Node| Some((from, self.surplus(me, to, from)?));
        sources.iter().filter_map(of_source).collect()
    }

    /// When the work before each send from `me` to `to` began at the latest, if none of the
    /// messages in doubt is needed: after the own send before and all that is needed for certain.
    /// `None`: it is the first send.
    pub(super) fn begins(&self, me: Node, to: Node, in_step: &[(Node, i64)]) -> Vec<Option<i64>> {
        let sends = self.sent.get(&(me, to)).map_or(&[][..], Vec::as_slice);
        let own = |&i: &usize| Some(self.messages[self.before[i]?].sent_ns.1);
        let mut begins: Vec<Option<i64>> = sends.iter().map(own).collect();
        for &(from, floor) in in_step {
            let Some(arrivals) = self.arrivals.get(&(from, me)) else {
                continue;
            };
            let offset = if floor > 0 { floor - 1 } else { floor };
            for (n, begin) in begins.iter_mut().enumerate() {
                let at = usize::try_from(n as i64 + offset - 1).ok();
                if let (Some(begin), Some(&arrival)) = (begin, at.and_then(|at| arrivals.get(at)))
                    && arrival < self.messages[sends[n]].sent_ns.0
                {
                    *begin = arrival.max(*begin);
                }
            }
        }
        begins
    }

    /// What the sends from `me` to `to` need of `from`, which has this surplus.
    pub(super) fn need(
        &self,
        me: Node,
        to: Node,
        from: Node,
        floor: i64,
        begins: &[Option<i64>],
    ) -> Option<Need> {
        let sends = self.sent.get(&(me, to))?;
        let arrivals = self.arrivals.get(&(from, me))?;
        let of_offset = |offset: i64| Need::Offset {
            offset,
            delay_ns: self.delay_ns(sends, arrivals, offset),
        };
        // At most 0: the partner's message of this round is not needed, for some sends came first.
        if floor <= 0 {
            return Some(of_offset(floor));
        }
        // Always early: needed, or only always faster?
        Some(match self.slope(sends, arrivals, floor, begins) {
            Slope::Within(low, high) => match (low <= APART, high >= 1.0 - APART) {
                (true, false) => of_offset(floor - 1),
                (false, true) => of_offset(floor),
                // Neither fits, for a third thing moves both; or both do.
                (false, false) if high < 0.5 => of_offset(floor - 1),
                (false, false) if low > 0.5 => of_offset(floor),
                _ => Need::Either(floor),
            },
            // It came before this process' own send before: neither reading changes the work. Of a
            // third process it may still be needed, and hold the send up once others are faster.
            Slope::NeverLast if to == from => of_offset(floor - 1),
            Slope::NeverLast => Need::Hidden(floor),
            Slope::TooFew => Need::Either(floor),
        })
    }

    /// Send, arrival of the last message it needs, and the own send before it.
    fn moments<'b>(
        &'b self,
        sends: &'b [usize],
        arrivals: &'b [i64],
        offset: i64,
    ) -> impl Iterator<Item = (i64, i64, i64)> + 'b {
        sends.iter().enumerate().filter_map(move |(n, &i)| {
            let at = usize::try_from((n as i64 + offset).checked_sub(1)?).ok()?;
            let own = self.messages[self.before[i]?].sent_ns.1;
            Some((self.messages[i].sent_ns.0, *arrivals.get(at)?, own))
        })
    }

    /// The moments of the sends to a partner that had a message of it to answer; `None`: the two do not talk.
    fn exchanged(&self, me: Node, to: Node) -> Option<impl Iterator<Item = (i64, i64, i64)>> {
        let (sends, arrivals) = (self.sent.get(&(me, to))?, self.arrivals.get(&(to, me))?);
        let floor = self.surplus(me, to, to)?;
        Some(self.moments(sends, arrivals, floor))
    }

    /// Whether sends to a partner follow its message at once whenever that comes: many within a short
    /// time after it, few in the same time after that, while the message itself comes now early, now
    /// late. Where it always comes at the same time, three in four within a small part of the wait for
    /// it are enough: that may be chance, but then who works how long does not show either.
    pub(super) fn follows(&self, me: Node, to: Node) -> bool {
        let Some(moments) = self.exchanged(me, to) else {
            return false;
        };
        let waits: Vec<(i64, i64)> = moments
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

    /// Whether three in four sends to a partner come within a small part of a round after its message,
    /// and nearly none before it.
    pub(super) fn answers(&self, me: Node, to: Node) -> bool {
        let (Some(sends), Some(moments)) = (self.sent.get(&(me, to)), self.exchanged(me, to))
        else {
            return false;
        };
        let mut delays: Vec<i64> = moments
            .filter(|(t, arrival, _)| t >= arrival)
            .map(|(t, arrival, _)| t - arrival)
            .collect();
        let time = |i: usize| self.messages[i].sent_ns.0;
        let mut rounds: Vec<i64> = sends.windows(2).map(|w| time(w[1]) - time(w[0])).collect();
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

    /// How soon after the last arrival it needs a process sends when it had waited: twice what
    /// nine of ten exceed.
    pub(super) fn delay_ns(&self, sends: &[usize], arrivals: &[i64], offset: i64) -> i64 {
        let moments = self.moments(sends, arrivals, offset);
        let mut delays: Vec<i64> = moments
            .filter(|(t, arrival, own)| arrival > own && t >= arrival)
            .map(|(t, arrival, _)| t - arrival)
            .collect();
        delays.sort_unstable();
        delays
            .get(delays.len() / 10)
            .map_or(0, |delay| 2 * delay + SLACK_NS)
    }

    /// Slope of the send on the arrival it may need, both from the begin of the work if it is not
    /// needed. (Both from the own send before, they would move together with that.)
    fn slope(
        &self,
        sends: &[usize],
        arrivals: &[i64],
        floor: i64,
        begins: &[Option<i64>],
    ) -> Slope {
        let point = |(n, &i): (usize, &usize)| {
            let at = usize::try_from((n as i64 + floor).checked_sub(1)?).ok()?;
            let (t, arrival, begin) = (self.messages[i].sent_ns.0, *arrivals.get(at)?, begins[n]?);
            (arrival > begin && t > arrival)
                .then_some(((arrival - begin) as f64, (t - begin) as f64))
        };
        let points: Vec<(f64, f64)> = sends.iter().enumerate().filter_map(point).collect();
        if points.len() * 10 < sends.len() {
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
