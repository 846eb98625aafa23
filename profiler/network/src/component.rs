//! Losses of a run by component (7.3.4): the decision that all pages about balance and delays share.
//!
//! A process that keeps others waiting, the latency of the network, and its bandwidth are compared on
//! one scale: the time by which the run would have been shorter without them. For a process this is the
//! cost of its load ([`evidence`]). For the network it is the gain in a replay of the messages
//! ([`replay`]): without latency, messages arrive at once; without transfer time, none waits for its
//! turn on a link or takes time to come in. A loss below [`SIGNIFICANT`] of the run does not stand out,
//! however far it is above the median of its kind, since two runs of one program differ by as much.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::balance::{self, Range};
use super::ball;
use super::decomposition::{self, Component};
use super::evidence::{self, Basis, Evidence, Verdict, bootstrap};
use super::held::{self, Held};
use super::messages::{self, Message};
use super::quantile;
use super::replay::{Change, Reading, replay};
use super::run::{Node, Run, Unknown};
use super::{repeat, schedule};

/// Least share of the run for a loss that stands out.
pub const SIGNIFICANT: f64 = 0.05;
/// Number of messages from which their schedule is made only if it would show which process waited for
/// which.
const MANY_MESSAGES: usize = 20_000;
/// Number of parts of a run over which the network's losses are resampled.
const PARTS: usize = 16;

/// Loss of the run to one component.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// The process, or the pair whose messages have the largest part in it.
    pub component: Component,
    /// Time by which the run would have been shorter, s.
    pub lost_s: Range,
    /// Distance of the time of the component above the median of its kind (7.3.4), s.
    pub above_median_s: f64,
    /// True if the loss is certainly more than nothing: by the balance for a process, by the range for
    /// the network.
    pub is_certain: bool,
    /// True if the range is only a lower bound, since delays hide a part of the cost of a load.
    pub is_least: bool,
}

impl Loss {
    fn middle_s(&self) -> f64 {
        (self.lost_s.low + self.lost_s.high) / 2.0
    }
}

/// The losses of a run and the evidence for them.
#[derive(Clone, Debug, PartialEq)]
pub struct Losses {
    /// The most costly loss first. A process is included only if the balance calls it loaded.
    pub all: Vec<Loss>,
    /// Least loss that stands out, s.
    pub significant_s: f64,
    /// Length of the analysed run, s.
    pub run_s: f64,
    /// Evidence about the processes.
    pub evidence: Result<Evidence, Unknown>,
    /// True if each pair was captured at both ends, so that delays of its messages are known.
    pub are_both_ends: bool,
    /// Segments that waited for an acknowledgement, if they are the largest loss.
    pub held: Option<Held>,
}

impl Losses {
    /// The largest loss, if it certainly stands out.
    pub fn first(&self) -> Option<&Loss> {
        let first = self.all.first()?;
        (first.is_certain && first.middle_s() >= self.significant_s).then_some(first)
    }

    /// The loss that may stand out: its range begins below the significance and ends above it.
    pub fn open(&self) -> Option<&Loss> {
        let is_open = |loss: &&Loss| loss.lost_s.high >= self.significant_s;
        self.all
            .iter()
            .find(is_open)
            .filter(|_| self.first().is_none())
    }
}

/// Finds the component to which the run lost most, by the default rules.
///
/// # Errors
/// When the interval holds no message.
pub fn decide(run: &Run) -> Result<Arc<Losses>, Unknown> {
    run.once(|| decided(run))
}

fn decided(run: &Run) -> Result<Arc<Losses>, Unknown> {
    let found = messages::messages(run)?;
    if found.is_empty() {
        return Err(Unknown::new("no message in this interval"));
    }
    let evidence = evidence::weigh(run);
    // The part in which processes are compared. One wait at start-up may be longer than all others
    // together.
    let iterations = repeat::of_run(run)?;
    let part = match &evidence {
        Ok(evidence) => evidence::compared(&found, iterations.as_deref(), evidence.span_ns),
        Err(_) => &found,
    };
    let from = part.first().map_or(0, |message| message.sent_ns.0);
    let to = part.iter().map(|message| message.received_ns.1).max();
    let run_s = (to.unwrap_or(from) - from).max(0) as f64 / 1e9;
    let significant_s = SIGNIFICANT * run_s;
    let mut all = network(run, part, significant_s);
    all.extend(evidence.as_ref().ok().and_then(|found| process(run, found)));
    all.sort_by(|a, b| b.middle_s().total_cmp(&a.middle_s()));
    let pairs = messages::by_pair(&found);
    let most_s = all.first().map_or(0.0, Loss::middle_s).max(significant_s);
    let held = held::longest(run).filter(|held| held.seconds >= most_s);
    Ok(Arc::new(Losses {
        are_both_ends: pairs.keys().all(|&(src, dst)| run.has_both_ends(src, dst)),
        held,
        all,
        significant_s,
        run_s,
        evidence,
    }))
}

/// The loss to the most loaded process.
fn process(run: &Run, evidence: &Evidence) -> Option<Loss> {
    let Verdict::Loaded(loaded) = &evidence.verdict else {
        return None;
    };
    let &node = loaded.first()?;
    // Delays of the whole run, as in the thesis.
    let delays_s = balance::sums(&ball::table(&ball::all(run).ok()?));
    let median = quantile::median(delays_s.iter().copied())?;
    Some(Loss {
        component: Component::Process(node),
        lost_s: evidence.cost_s()?,
        above_median_s: delays_s.get(usize::from(node))? - median,
        is_certain: true,
        is_least: evidence.basis == Basis::Delays,
    })
}

/// Time of the messages of each pair, and of each of [`PARTS`] parts of the run, s.
struct Times {
    pairs: BTreeMap<(Node, Node), f64>,
    parts: Vec<Vec<f64>>,
}

impl Times {
    fn new() -> Times {
        Times {
            pairs: BTreeMap::new(),
            parts: vec![vec![0.0]; PARTS],
        }
    }

    fn add(&mut self, message: &Message, part: usize, ns: i64) {
        let pair = (message.src, message.dst);
        *self.pairs.entry(pair).or_default() += ns as f64 / 1e9;
        self.parts[part][0] += ns as f64 / 1e9;
    }

    fn sum_s(&self) -> f64 {
        self.pairs.values().sum()
    }

    /// The loss to the pair that has the largest part, given the gain of the run without the times of
    /// all pairs. The lower end is that of other parts of the run, drawn at random: a loss from a few
    /// messages may be chance.
    fn loss(
        &self,
        gained_s: Range,
        significant_s: f64,
        component: fn(Node, Node) -> Component,
    ) -> Option<Loss> {
        let (&(a, b), most) = self.pairs.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
        let drawn = bootstrap::range(&self.parts, |drawn| {
            let sum = drawn.iter().map(|part| part[0]).sum();
            (sum, sum)
        });
        let sum = self.sum_s();
        let steady = if sum > 0.0 { drawn.low / sum } else { 0.0 };
        let low = gained_s.low * steady.min(1.0);
        Some(Loss {
            component: component(a, b),
            lost_s: Range {
                low,
                high: gained_s.high,
            },
            above_median_s: most - quantile::median(self.pairs.values().copied())?,
            is_certain: low >= significant_s,
            is_least: false,
        })
    }
}

/// The losses to latency and bandwidth, each with the pair that has the largest part.
fn network(run: &Run, found: &[Message], significant_s: f64) -> Vec<Loss> {
    let base_ns = decomposition::base_ns(run, found);
    let (mut latency, mut bandwidth) = (Times::new(), Times::new());
    let of = |i: usize| found.get(i).map_or(0, |message| message.sent_ns.0);
    let (from, to) = (of(0), of(found.len().saturating_sub(1)));
    for message in found {
        let base = base_ns.get(&(message.src, message.dst)).copied();
        let (on_way, rest) = message.parts_ns(base.unwrap_or(0));
        let share = (message.sent_ns.0 - from) as f64 / (to - from).max(1) as f64;
        let part = ((share * PARTS as f64) as usize).min(PARTS - 1);
        latency.add(message, part, on_way);
        bandwidth.add(message, part, rest);
    }
    // No run gains more than the sum of the times of all its messages.
    let most = [latency.sum_s(), bandwidth.sum_s()];
    let unplayed = most.map(|high| Range { low: 0.0, high });
    let is_worth_it = most.iter().any(|most| *most >= significant_s);
    let is_feasible = found.len() <= MANY_MESSAGES || !schedule::shows_nothing(found);
    let gained = is_worth_it.then(|| gains(found, run.nodes().len(), base_ns, is_feasible));
    let [by_latency, by_bandwidth] = gained.flatten().unwrap_or(unplayed);
    let latency = latency.loss(by_latency, significant_s, Component::NetworkLatency);
    let bandwidth = bandwidth.loss(by_bandwidth, significant_s, Component::NetworkBandwidth);
    latency.into_iter().chain(bandwidth).collect()
}

/// Gain of the run without latency, and without waiting for links, s: the least and the most of the
/// replays with both readings of the open dependencies. The most is at least the gain if every send
/// waited for the last arrival, as in ball-in-the-court delays; a replay of sends that are not in step
/// would miss that.
fn gains(
    found: &[Message],
    nodes: usize,
    base_ns: BTreeMap<(Node, Node), i64>,
    is_feasible: bool,
) -> Option<[Range; 2]> {
    let found = bursts(found, &base_ns);
    let by_last = [By::Nothing, By::Latency, By::Bandwidth]
        .map(|without| by_last_arrival(&found, nodes, &base_ns, without));
    let last = |without: usize| (by_last[0] - by_last[without]).max(0.0);
    if !is_feasible {
        return Some([1, 2].map(|without| Range {
            low: 0.0,
            high: last(without),
        }));
    }
    let schedule = schedule::schedule(&found, nodes);
    let base = Change {
        base_ns,
        ..Change::default()
    };
    let seconds = |change: &Change| {
        let of = |reading| Some(replay(&schedule, change, reading)?.seconds);
        Some([of(Reading::Waiting)?, of(Reading::Working)?])
    };
    let whole = seconds(&base)?;
    let gain = |change: Change, by_last: f64| {
        let changed = seconds(&change)?;
        let [a, b] = [0, 1].map(|i| (whole[i] - changed[i]).max(0.0));
        Some(Range {
            low: a.min(b),
            high: a.max(b).max(by_last),
        })
    };
    let (no_latency, no_transfer) = (
        Change {
            no_latency: true,
            ..base.clone()
        },
        Change {
            no_transfer: true,
            ..base.clone()
        },
    );
    Some([gain(no_latency, last(1))?, gain(no_transfer, last(2))?])
}

/// The messages, where those of one direction within a round trip and without an answer in between are
/// put together. These are pieces of one write, sent in parts because the kernel paced them or the
/// congestion window was small.
fn bursts(found: &[Message], base_ns: &BTreeMap<(Node, Node), i64>) -> Vec<Message> {
    let base = |a: Node, b: Node| base_ns.get(&(a, b)).copied().unwrap_or(0);
    let mut all: Vec<Message> = Vec::with_capacity(found.len());
    let mut newest: BTreeMap<(Node, Node, u32), usize> = BTreeMap::new();
    // Arrival times of the messages of each direction.
    let mut arrivals: BTreeMap<(Node, Node, u32), Vec<i64>> = BTreeMap::new();
    for message in found {
        let key = (message.src, message.dst, message.flow);
        arrivals.entry(key).or_default().push(message.received_ns.1);
    }
    for message in found {
        let (src, dst, flow) = (message.src, message.dst, message.flow);
        let round_trip = base(src, dst) + base(dst, src);
        let answers = arrivals
            .get(&(dst, src, flow))
            .map_or(&[][..], Vec::as_slice);
        if let Some(&at) = newest.get(&(src, dst, flow)) {
            let before = &mut all[at];
            let until = |t: i64| answers.partition_point(|answer| *answer <= t);
            let is_answer = until(message.sent_ns.0) > until(before.sent_ns.0);
            if !is_answer && message.sent_ns.0 - before.sent_ns.1 < round_trip {
                before.sent_ns.1 = before.sent_ns.1.max(message.sent_ns.1);
                before.received_ns.1 = before.received_ns.1.max(message.received_ns.1);
                before.bytes += message.bytes;
                before.segments += message.segments;
                continue;
            }
        }
        newest.insert((src, dst, flow), all.len());
        all.push(*message);
    }
    all
}

/// The component without which the length of a run is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Nothing,
    Latency,
    Bandwidth,
}

/// Length of the run if every send waited for the process's own send before it and for the last
/// arrival, s.
fn by_last_arrival(
    found: &[Message],
    nodes: usize,
    base_ns: &BTreeMap<(Node, Node), i64>,
    without: By,
) -> f64 {
    let mut arrivals: Vec<usize> = (0..found.len()).collect();
    arrivals.sort_by_key(|&i| found[i].received_ns.1);
    let mut arrivals = arrivals.into_iter().peekable();
    let mut last_sent: Vec<Option<usize>> = vec![None; nodes];
    let mut last_arrived = last_sent.clone();
    // Times at which each message was sent, left, and had come in, ns.
    let mut times = vec![(0i64, 0i64); found.len()];
    let first_ns = found.first().map_or(0, |message| message.sent_ns.0);
    let mut end_ns = first_ns;
    for (i, message) in found.iter().enumerate() {
        while let Some(&at) = arrivals.peek()
            && found[at].received_ns.1 <= message.sent_ns.0
        {
            // Later messages of the same instant have no times yet.
            if at < i {
                last_arrived[usize::from(found[at].dst)] = Some(at);
            }
            arrivals.next();
        }
        let me = usize::from(message.src);
        let own = last_sent[me].map(|at| (found[at].sent_ns.1, times[at].0));
        let arrived = last_arrived[me].map(|at| (found[at].received_ns.1, times[at].1));
        // The work before the send began with the later of the two.
        let cause = own.into_iter().chain(arrived).max_by_key(|(was, _)| *was);
        let begin = cause.map_or(message.sent_ns.0, |(was, now)| {
            now.max(own.map_or(now, |own| own.1)) + (message.sent_ns.0 - was).max(0)
        });
        let base = base_ns.get(&(message.src, message.dst)).copied();
        let (on_way, rest) = message.parts_ns(base.unwrap_or(0));
        let span = message.sent_ns.1 - message.sent_ns.0;
        let (left, there) = match without {
            By::Nothing => (span, on_way + rest),
            By::Latency => (span, rest),
            By::Bandwidth => (0, on_way),
        };
        times[i] = (begin + left, begin + there);
        last_sent[me] = Some(i);
        end_ns = end_ns.max(begin + there);
    }
    (end_ns - first_ns) as f64 / 1e9
}

#[cfg(test)]
mod tests;
