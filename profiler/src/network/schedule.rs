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
use super::quantile;
use super::run::Node;

/// Repetitions of a slot from which a slope is believed.
const LEAST_SAMPLES: usize = 12;
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
        for &(from, receiver) in sent.keys() {
            if receiver == me {
                needs.insert((me, to, from), context.need(me, to, from));
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
            Need::Offset { .. } => certainty.decided += 1,
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
        let (needed, maybe) =
            context.of_send(message.src, message.dst, *n, message.sent_ns.0, &needs);
        *n += 1;
        schedule.steps.push(Step {
            message: i,
            process: message.src,
            t_ns: message.sent_ns.0,
            before: before[i],
            needs: needed,
            may_need: maybe,
        });
    }
    schedule
}

/// How a send moves with an arrival.
enum Slope {
    /// Slope and its error.
    Of(f64, f64),
    /// The arrival was nearly never the last thing before the send.
    NeverLast,
    TooFew,
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
    /// What the sends from `me` to `to` need of `from`.
    fn need(&self, me: Node, to: Node, from: Node) -> Need {
        let (Some(sends), Some(arrivals)) =
            (self.sent.get(&(me, to)), self.arrivals.get(&(from, me)))
        else {
            return Need::Last;
        };
        let (own, theirs) = (sends.len() as f64, arrivals.len() as f64);
        if sends.len() < LEAST_SAMPLES || (own - theirs).abs() > IN_STEP * own.max(theirs) + 2.0 {
            return Need::Last;
        }
        let time = |n: usize| self.messages[sends[n]].sent_ns.0;
        let seen = |n: usize| arrivals.partition_point(|&t| t < time(n)) as i64 - n as i64;
        // What nearly every send had seen: a stray one at start-up is no rule.
        let mut surplus: Vec<i64> = (0..sends.len()).map(seen).collect();
        surplus.sort_unstable();
        let floor = surplus[surplus.len() / 50];
        let of_offset = |offset: i64| Need::Offset {
            offset,
            delay_ns: self.delay_ns(sends, arrivals, offset),
        };
        // At most 0: the partner's message of this round is not needed, for some sends came first.
        if floor <= 0 {
            return of_offset(floor);
        }
        // Always early: needed, or only always faster?
        match self.slope(sends, arrivals, floor) {
            Slope::Of(slope, error) if slope - 2.0 * error > 0.5 => of_offset(floor),
            Slope::Of(slope, error) if slope + 2.0 * error < 0.5 => of_offset(floor - 1),
            // It came before this process' own send before: neither reading changes the work.
            Slope::NeverLast => of_offset(floor - 1),
            Slope::Of(..) | Slope::TooFew => Need::Either(floor),
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

    /// Slope of the send on the arrival it may need, both from the own send before; median over
    /// pairs of repetitions, with its error.
    fn slope(&self, sends: &[usize], arrivals: &[i64], floor: i64) -> Slope {
        let mut points: Vec<(f64, f64)> = self
            .moments(sends, arrivals, floor)
            .filter(|(t, arrival, own)| arrival > own && t > arrival)
            .map(|(t, arrival, own)| ((arrival - own) as f64, (t - own) as f64))
            .collect();
        if points.len() * 10 < sends.len() {
            return Slope::NeverLast;
        }
        if points.len() < LEAST_SAMPLES {
            return Slope::TooFew;
        }
        // Pairs far apart in the arrival, as in Theil and Sen, half a list apart.
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let half = points.len() / 2;
        let slopes: Vec<f64> = (0..points.len() - half)
            .filter_map(|k| {
                let (a, b) = (points[k], points[k + half]);
                (b.0 > a.0).then(|| (b.1 - a.1) / (b.0 - a.0))
            })
            .collect();
        match (
            quantile::median(slopes.iter().copied()),
            quantile::deviation(&slopes),
        ) {
            (Some(middle), Some(spread)) => {
                Slope::Of(middle, 1.86 * spread / (slopes.len() as f64).sqrt())
            }
            _ => Slope::TooFew,
        }
    }

    /// The messages that a send needs, and those that it may need.
    fn of_send(
        &self,
        me: Node,
        to: Node,
        n: i64,
        t: i64,
        needs: &Needs,
    ) -> (Vec<usize>, Vec<usize>) {
        let (mut needed, mut maybe) = (Vec::new(), Vec::new());
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
                            needed.push(i)
                        } else {
                            maybe.push(i)
                        }
                    }
                }
                Need::Either(offset) => {
                    needed.extend(nth(n + offset - 1));
                    maybe.extend(nth(n + offset));
                }
                Need::Last => {
                    let times = &self.arrivals[&(from, me)];
                    maybe.extend(nth(times.partition_point(|&at| at < t) as i64));
                }
            }
        }
        (needed, maybe)
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
    if (exchanging == 0) == (taking_turns == 0) {
        return false;
    }
    for (&slot, need) in needs.iter_mut() {
        // Of the direct partner only: edge by edge, a send needs what came over the edge before.
        if let Need::Either(floor) = *need
            && slot.1 == slot.2
        {
            // In an exchange nobody needs this round's message of the one it sends to.
            let offset = if exchanging > 0 { floor - 1 } else { floor };
            *need = Need::Offset {
                offset,
                delay_ns: delay(slot, offset),
            };
        }
    }
    exchanging > 0
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
