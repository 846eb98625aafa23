//! What each send had to wait for, from the packets alone.
//!
//! A process that sends after an arrival may have waited for it, or may have been computing all
//! along while it came in; ball-in-the-court delays always assume the former. Over many
//! repetitions the two differ: what a send depends on is never late, and moves the send when it
//! moves. So the number of a partner's messages that *every* n-th send had seen bounds what it
//! needs from above, and where the last of them was always early, the regression of the send on
//! that arrival tells whether it was needed: slope 1 needed, slope 0 not.

use std::collections::BTreeMap;

use super::messages::Message;
use super::run::Node;

/// Repetitions of a slot from which a slope is believed.
const LEAST_SAMPLES: usize = 12;
/// Repetitions that a slope is worked out from at most, evenly spread: all pairs of them are looked at.
const MOST_SAMPLES: usize = 300;
/// The same where there are many slots.
const FEW_SAMPLES: usize = 50;
/// Slots (as pairs of processes) from which there are many.
const MANY_PAIRS: usize = 500;
/// Half the width of the interval of a slope, in standard deviations of Kendall's statistic.
const SURE: f64 = 2.0;
/// A slope of 1 is excluded below 1 less this, one of 0 above this.
const APART: f64 = 0.2;
/// Slack of a send after the arrival that it waited for, ns.
const SLACK_NS: i64 = 20_000;
/// Numbers of messages in both directions may differ by this share and still be in step.
const IN_STEP: f64 = 0.05;

/// One send with what it waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The message.
    pub message: usize,
    /// The process.
    pub process: Node,
    /// When it was sent, ns.
    pub t_ns: i64,
    /// The send of the same process before it.
    pub before: Option<usize>,
    /// Messages that it needs in any case.
    pub needs: Vec<usize>,
    /// Messages that it may need, or may only have seen.
    pub may_need: Vec<usize>,
    /// Messages that came before the send before, and may be needed: that shows only when others
    /// become faster.
    pub may_hold: Vec<usize>,
}

/// How certain the dependencies are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Certainty {
    /// Slots (sender, receiver, source) whose dependency is known.
    pub decided: usize,
    /// Slots that could be either.
    pub open: usize,
    /// Slots that are not in step, so that the last arrival is all that is known.
    pub loose: usize,
}

/// All sends of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// The messages, in the order of sending.
    pub messages: Vec<Message>,
    /// A step per message, in the same order.
    pub steps: Vec<Step>,
    /// How much was decided.
    pub certainty: Certainty,
    /// Number of processes.
    pub nodes: usize,
    /// Whether it is a plain exchange: every pair known to send without the other's message of the
    /// same round, in step, messages of one size. Only then do packets show when who worked: where
    /// processes take turns, work hides in waiting, and where rounds differ, slots mix.
    pub is_exchange: bool,
}

/// What the n-th send of a slot needs of a source: the first `n + offset` messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Those. A send within `delay_ns` of the last of them had waited for it; a later one may have
    /// been computing since before it came.
    Offset { offset: i64, delay_ns: i64 },
    /// The last of them may not be needed.
    Either(i64),
    /// The same, but the last of them nearly always came before the own send before: whether it is
    /// needed does not change the work.
    Hidden(i64),
    /// Not in step: what had arrived last.
    Last,
}

/// Works out what every send waited for. Messages must be in the order of sending.
pub fn schedule(messages: &[Message], nodes: usize) -> Schedule {
    let mut sent: BTreeMap<(Node, Node), Vec<usize>> = BTreeMap::new();
    for (i, message) in messages.iter().enumerate() {
        sent.entry((message.src, message.dst)).or_default().push(i);
    }
    let arrivals: BTreeMap<(Node, Node), Vec<i64>> = sent
        .iter()
        .map(|(&pair, list)| {
            let mut times: Vec<i64> = list.iter().map(|&i| messages[i].received_ns.1).collect();
            // In order within a connection; two connections of one pair may differ.
            times.sort_unstable();
            (pair, times)
        })
        .collect();
    let mut own: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for (i, message) in messages.iter().enumerate() {
        if let Some(list) = own.get_mut(usize::from(message.src)) {
            list.push(i);
        }
    }
    let mut before = vec![None; messages.len()];
    for list in &own {
        for pair in list.windows(2) {
            before[pair[1]] = Some(pair[0]);
        }
    }
    let context = Context {
        messages,
        sent: &sent,
        arrivals: &arrivals,
        before: &before,
    };
    let mut needs = Needs::new();
    for &(me, to) in sent.keys() {
        let begins = context.begins(me, to);
        for &(from, receiver) in sent.keys() {
            if receiver == me {
                needs.insert((me, to, from), context.need(me, to, from, &begins));
            }
        }
    }
    let all_exchange = decide_by_symmetry(&mut needs, |(me, to, from), offset| {
        let lists = sent.get(&(me, to)).zip(arrivals.get(&(from, me)));
        lists.map_or(0, |(sends, arrivals)| {
            context.delay_ns(sends, arrivals, offset)
        })
    });
    let mut certainty = Certainty::default();
    for need in needs.values() {
        match need {
            Need::Offset { .. } | Need::Hidden(_) => certainty.decided += 1,
            Need::Either(_) => certainty.open += 1,
            Need::Last => certainty.loose += 1,
        }
    }
    let mut schedule = Schedule {
        messages: messages.to_vec(),
        steps: Vec::with_capacity(messages.len()),
        certainty,
        nodes,
        is_exchange: all_exchange && certainty.loose == 0 && are_alike(messages, &sent),
    };
    let mut number: BTreeMap<(Node, Node), i64> = BTreeMap::new();
    for (i, message) in messages.iter().enumerate() {
        let n = number.entry((message.src, message.dst)).or_default();
        let (needed, maybe, hidden) =
            context.of_send(message.src, message.dst, *n, message.sent_ns.0, &needs);
        *n += 1;
        schedule.steps.push(Step {
            message: i,
            process: message.src,
            t_ns: message.sent_ns.0,
            before: before[i],
            needs: needed,
            may_need: maybe,
            may_hold: hidden
                .into_iter()
                .filter(|&m| {
                    let own = before[i].map(|b| messages[b].sent_ns.1);
                    own.is_some_and(|own| messages[m].received_ns.1 <= own)
                })
                .collect(),
        });
    }
    schedule
}

/// How a send moves with an arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Slope {
    /// The interval in which the slope lies.
    Within(f64, f64),
    /// The arrival was nearly never the last thing before the send.
    NeverLast,
    TooFew,
}

/// The interval of the slope through points, by Theil, Sen and Kendall: the median of the slopes of
/// all pairs of points, and as many ranks to both sides as chance may shift it.
fn slope_of(points: &[(f64, f64)]) -> Slope {
    let n = points.len();
    if n < LEAST_SAMPLES {
        return Slope::TooFew;
    }
    let mut slopes: Vec<f64> = Vec::with_capacity(n * (n - 1) / 2);
    for (i, a) in points.iter().enumerate() {
        for b in &points[..i] {
            if a.0 != b.0 {
                slopes.push((a.1 - b.1) / (a.0 - b.0));
            }
        }
    }
    let count = n as f64;
    let shift = SURE * (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
    let (low, high) = (
        ((slopes.len() as f64 - shift) / 2.0).floor(),
        ((slopes.len() as f64 + shift) / 2.0).ceil(),
    );
    if low < 0.0 || high >= slopes.len() as f64 {
        return Slope::TooFew;
    }
    let mut at = |rank: f64| {
        *slopes
            .select_nth_unstable_by(rank as usize, f64::total_cmp)
            .1
    };
    Slope::Within(at(low), at(high))
}

/// Whether nearly all messages of each pair have one size.
fn are_alike(messages: &[Message], sent: &BTreeMap<(Node, Node), Vec<usize>>) -> bool {
    sent.values().all(|list| {
        let mut sizes: Vec<u64> = list.iter().map(|&i| messages[i].bytes).collect();
        sizes.sort_unstable();
        let usual = sizes.get(sizes.len() / 2);
        let same = sizes.iter().filter(|size| Some(*size) == usual).count();
        same * 10 >= sizes.len() * 9
    })
}

struct Context<'a> {
    messages: &'a [Message],
    sent: &'a BTreeMap<(Node, Node), Vec<usize>>,
    arrivals: &'a BTreeMap<(Node, Node), Vec<i64>>,
    before: &'a [Option<usize>],
}

impl Context<'_> {
    /// Of how many messages more than it has sent itself before nearly every send from `me` to `to`
    /// had seen of `from`. `None`: the two are not in step.
    fn surplus(&self, me: Node, to: Node, from: Node) -> Option<i64> {
        let sends = self.sent.get(&(me, to))?;
        let arrivals = self.arrivals.get(&(from, me))?;
        let (own, theirs) = (sends.len() as f64, arrivals.len() as f64);
        if sends.len() < LEAST_SAMPLES || (own - theirs).abs() > IN_STEP * own.max(theirs) + 2.0 {
            return None;
        }
        let time = |n: usize| self.messages[sends[n]].sent_ns.0;
        let seen = |n: usize| arrivals.partition_point(|&t| t < time(n)) as i64 - n as i64;
        // What nearly every send had seen: a stray one at start-up is no rule.
        let mut surplus: Vec<i64> = (0..sends.len()).map(seen).collect();
        surplus.sort_unstable();
        Some(surplus[surplus.len() / 50])
    }

    /// When the work before each send from `me` to `to` began at the latest, if none of the
    /// messages in doubt is needed: after the own send before and all that is needed for certain.
    /// `None`: it is the first send.
    fn begins(&self, me: Node, to: Node) -> Vec<Option<i64>> {
        let sends = self.sent.get(&(me, to)).map_or(&[][..], Vec::as_slice);
        let own = |&i: &usize| Some(self.messages[self.before[i]?].sent_ns.1);
        let mut begins: Vec<Option<i64>> = sends.iter().map(own).collect();
        for (&(from, receiver), arrivals) in self.arrivals {
            let Some(floor) = (receiver == me)
                .then(|| self.surplus(me, to, from))
                .flatten()
            else {
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

    /// What the sends from `me` to `to` need of `from`.
    fn need(&self, me: Node, to: Node, from: Node, begins: &[Option<i64>]) -> Need {
        let (Some(sends), Some(arrivals), Some(floor)) = (
            self.sent.get(&(me, to)),
            self.arrivals.get(&(from, me)),
            self.surplus(me, to, from),
        ) else {
            return Need::Last;
        };
        let of_offset = |offset: i64| Need::Offset {
            offset,
            delay_ns: self.delay_ns(sends, arrivals, offset),
        };
        // At most 0: the partner's message of this round is not needed, for some sends came first.
        if floor <= 0 {
            return of_offset(floor);
        }
        // Always early: needed, or only always faster?
        match self.slope(sends, arrivals, floor, begins) {
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
        }
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

    /// How soon after the last arrival it needs a process sends when it had waited: twice what
    /// nine of ten exceed.
    fn delay_ns(&self, sends: &[usize], arrivals: &[i64], offset: i64) -> i64 {
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

    /// The messages that a send needs, those that it may need, and those whose need does not show.
    fn of_send(
        &self,
        me: Node,
        to: Node,
        n: i64,
        t: i64,
        needs: &Needs,
    ) -> (Vec<usize>, Vec<usize>, Vec<usize>) {
        let (mut needed, mut maybe, mut hidden) = (Vec::new(), Vec::new(), Vec::new());
        let of_me = needs.range((me, to, 0)..=(me, to, Node::MAX));
        for (&(_, _, from), need) in of_me {
            let Some(list) = self.sent.get(&(from, me)) else {
                continue;
            };
            let nth = |count: i64| {
                let at = usize::try_from(count.checked_sub(1)?).ok()?;
                let &i = list.get(at)?;
                // Whatever the rule says, nobody waits for what comes later.
                (self.messages[i].received_ns.1 <= t).then_some(i)
            };
            match *need {
                Need::Offset { offset, delay_ns } => {
                    if let Some(i) = nth(n + offset) {
                        let has_waited = t - self.messages[i].received_ns.1 <= delay_ns;
                        if has_waited {
                            needed.push(i);
                        } else {
                            maybe.push(i);
                        }
                    }
                }
                Need::Either(offset) => {
                    needed.extend(nth(n + offset - 1));
                    maybe.extend(nth(n + offset));
                }
                Need::Hidden(offset) => {
                    needed.extend(nth(n + offset - 1));
                    hidden.extend(nth(n + offset));
                }
                Need::Last => {
                    let times = &self.arrivals[&(from, me)];
                    maybe.extend(nth(times.partition_point(|&at| at < t) as i64));
                }
            }
        }
        (needed, maybe, hidden)
    }
}

/// All processes run the same program: where pairs are known to exchange (each sends without the
/// other's message) the open ones do so too, and where pairs are known to take turns, they do.
fn decide_by_symmetry(needs: &mut Needs, delay: impl Fn((Node, Node, Node), i64) -> i64) -> bool {
    let (mut exchanging, mut taking_turns) = (0, 0);
    let known = |a: Node, b: Node| match needs.get(&(a, b, b)) {
        Some(Need::Offset { offset, .. }) => Some(*offset),
        _ => None,
    };
    let pairs = needs.keys().filter(|(me, to, from)| to == from && me < to);
    for &(a, b, _) in pairs {
        match known(a, b).zip(known(b, a)) {
            Some((0, 0)) => exchanging += 1,
            Some((x, y)) if x + y == 1 => taking_turns += 1,
            _ => {}
        }
    }
    // One pair in four may be mistaken; a program that does both is none of the two.
    let (few, many) = (exchanging.min(taking_turns), exchanging.max(taking_turns));
    if many == 0 || few * 3 > many {
        return false;
    }
    let is_exchange = exchanging > taking_turns;
    for (&slot, need) in needs.iter_mut() {
        if let Need::Offset {
            offset: offset @ 1,
            delay_ns,
        } = need
            && slot.1 == slot.2
            && is_exchange
        {
            *offset = 0;
            *delay_ns = delay(slot, 0);
        }
        // Of the direct partner only: edge by edge, a send needs what came over the edge before.
        if let Need::Either(floor) = *need
            && slot.1 == slot.2
        {
            // In an exchange nobody needs this round's message of the one it sends to.
            let offset = if is_exchange { floor - 1 } else { floor };
            *need = Need::Offset {
                offset,
                delay_ns: delay(slot, offset),
            };
        }
    }
    is_exchange
}

/// What the sends of each slot need: sender, receiver, source.
type Needs = BTreeMap<(Node, Node, Node), Need>;

impl Schedule {
    /// Time that each step worked, ns: from the moment at which all it needs was there; the least
    /// (everything it may need was needed) and the most (nothing of that was).
    pub fn work_ns(&self, step: &Step) -> (i64, i64) {
        let arrival = |list: &[usize]| list.iter().map(|&i| self.messages[i].received_ns.1).max();
        let own = step.before.map(|b| self.messages[b].sent_ns.1);
        let from = own.into_iter().chain(arrival(&step.needs)).max();
        let Some(from) = from.or_else(|| arrival(&step.may_need)) else {
            // Its first send: work before the first packet is not seen.
            return (0, 0);
        };
        let most = (step.t_ns - from).max(0);
        let least = arrival(&step.may_need).map_or(most, |at| (step.t_ns - at.max(from)).max(0));
        (least, most)
    }

    /// The sums of that by process, s.
    pub fn work_s(&self) -> Vec<(f64, f64)> {
        let mut sums = vec![(0.0, 0.0); self.nodes];
        for step in &self.steps {
            let (least, most) = self.work_ns(step);
            if let Some(sum) = sums.get_mut(usize::from(step.process)) {
                sum.0 += least as f64 / 1e9;
                sum.1 += most as f64 / 1e9;
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests;
