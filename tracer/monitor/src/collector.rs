//! The side that listens: the machines that may send, their new samples, and the state of the machines. Has
//! no socket and no clock; the caller gives the time.
//!
//! Unknown senders cost a signature and no memory: the answer to a hello is derived from the hello, and only
//! a message signed with the key that follows from it makes an entry.

use std::collections::{HashMap, HashSet};

use super::agent::{LEAST_PERIOD_MS, session_key};
use super::key::Key;
use super::timeline::{Timed, Timeline};
use super::wire::{Counters, Message, Nonce, Sample, Session, Who, parse};

/// Most machines.
const MOST_NODES: usize = 100_000;
const MS: u64 = 1_000_000;
/// Largest number of samples that an agent may claim to have sent when a session begins.
const MOST_AT_ONCE: u64 = 1000;
/// Largest time that a sample may be later than now: clocks are related with an error.
const EARLY_NS: u64 = 3_600_000 * MS;
/// A clock whose speed differs from this one's by more is refused: 10 %.
const MOST_DRIFT_PPB: u32 = 100_000_000;

/// Sampling rates of a collector.
#[derive(Clone, Debug)]
pub struct Rates {
    /// Time between samples, ms.
    pub period_ms: u32,
    /// The time between samples of single machines, by name.
    pub of_node: HashMap<String, u32>,
    /// Most datagrams in a second of all machines together.
    pub most_per_second: u32,
    /// The counters that are wanted of all machines. They stay the same in a trace: for a counter that came
    /// and went, nobody could say if it had grown meanwhile.
    pub counters: Counters,
}

impl Default for Rates {
    fn default() -> Self {
        Rates {
            period_ms: 1000,
            of_node: HashMap::new(),
            most_per_second: 20_000,
            counters: Counters::default(),
        }
    }
}

/// State of the samples of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its boot.
    pub boot: String,
    /// Samples that came in time.
    pub received: u64,
    /// Samples that were sent, as far as is known.
    pub expected: u64,
    /// Samples that came twice or too late.
    pub ignored: u64,
    /// Sessions: 1, and one more for each restart of the agent or loss of contact.
    pub sessions: u64,
    /// True if the last totals came over the reliable channel.
    pub is_final: bool,
    /// Bound of the error of the times of its samples, ns: the largest one; `None`: there is no sample.
    pub error_ns: Option<u64>,
    /// Bound of the error of its clock at present, ns.
    pub present_error_ns: u64,
    /// Drift of its clock, parts per billion: the collector's runs faster by so much.
    pub drift_ppb: i32,
    /// Reading of its clock at the collector's time 0, ns.
    pub zero_ns: Option<i64>,
    /// Time between its samples, ms.
    pub period_ms: u32,
    /// Time of its last message, collector's clock, ns.
    pub heard_ns: u64,
}

impl Status {
    /// Share of the samples that came, 0 to 1.
    pub fn confidence(&self) -> f64 {
        if self.expected == 0 {
            return 0.0;
        }
        self.received as f64 / self.expected as f64
    }
}

/// Totals of a machine at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The machine, in the order of their first messages.
    pub node: usize,
    /// Collector's clock, ns.
    pub t_ns: u64,
    /// Counter, by its place in the list, and total.
    pub totals: Vec<(u8, u64)>,
    /// True if not measured, but interpolated between its neighbours.
    pub is_interpolated: bool,
}

#[derive(Debug)]
struct Node {
    who: Who,
    key: Key,
    timeline: Timeline,
    /// Status of the sessions before this one.
    earlier: Status,
    status: Status,
    last_ns: u64,
    /// Begin of the session on the collector's clock.
    begun_ns: u64,
}

impl Node {
    /// True if so many samples may have been sent in the session. Twice as many as an agent sends at most are
    /// allowed, for clocks differ.
    fn may_have_sent(&self, count: u64, now: u64) -> bool {
        let elapsed = now.saturating_sub(self.begun_ns) / MS;
        count <= MOST_AT_ONCE + 2 * elapsed / u64::from(LEAST_PERIOD_MS)
    }

    /// True if a sample that came at `now` may be one of this machine's: an agent with the key may send
    /// anything.
    fn may_have_taken(&self, sample: &Sample, now: u64) -> bool {
        let last_ns = i64::try_from(now.saturating_add(EARLY_NS)).unwrap_or(i64::MAX);
        self.may_have_sent(sample.number, now)
            && sample.drift_ppb.unsigned_abs() <= MOST_DRIFT_PPB
            && on_scale(sample) <= last_ns
    }
}

/// The state of all machines.
#[derive(Debug)]
pub struct Collector {
    key: Key,
    secret: Key,
    rates: Rates,
    nodes: Vec<Node>,
    /// Machines by name and boot.
    by_machine: HashMap<(String, String), usize>,
    by_session: HashMap<Session, usize>,
    /// Machines that are to end.
    stopped: HashSet<String>,
    rows: Vec<Row>,
    /// Refused messages: without a valid signature, of an earlier session, or with impossible values.
    refused: u64,
}

impl Collector {
    /// A collector; `secret` is random and nobody else has it.
    pub fn new(key: Key, secret: &[u8], rates: Rates) -> Collector {
        Collector {
            key,
            secret: Key::new(secret),
            rates,
            nodes: Vec::new(),
            by_machine: HashMap::new(),
            by_session: HashMap::new(),
            stopped: HashSet::new(),
            rows: Vec::new(),
            refused: 0,
        }
    }

    /// Takes a message that came at `now`, and returns the answer to it.
    pub fn receive(&mut self, now: u64, bytes: &[u8]) -> Option<Vec<u8>> {
        let answer = self.take(now, bytes);
        if answer.is_none() {
            self.refused += 1;
        }
        answer.flatten()
    }

    /// The machine of a message with last totals that was taken.
    pub fn ended_by(&self, message: &[u8]) -> Option<usize> {
        match parse(message)?.message {
            Message::Final(sample) => self.by_session.get(&sample.session).copied(),
            _ => None,
        }
    }

    /// Takes a message; `None`: refused; otherwise the answer, if there is one.
    fn take(&mut self, now: u64, bytes: &[u8]) -> Option<Option<Vec<u8>>> {
        let sealed = parse(bytes)?;
        let is_known = |session: &Session| self.by_session.get(session).copied();
        match &sealed.message {
            Message::Hello { .. } => match sealed.verified(&self.key)? {
                Message::Hello { who } => {
                    let welcome = Message::Welcome {
                        nonce: who.nonce,
                        answer: self.answer_to(&who),
                    };
                    Some(Some(welcome.sealed(&self.key)))
                }
                _ => None,
            },
            Message::Ask { who, .. } => {
                let key = session_key(&self.key, who, &self.answer_to(who));
                match sealed.verified(&key)? {
                    Message::Ask { who, t1, sent } => {
                        let at = self.node(now, &who, &key)?;
                        let period_ms = self.period_of(&who.name);
                        let node = &mut self.nodes[at];
                        if !node.may_have_sent(sent, now) {
                            return None;
                        }
                        node.status.heard_ns = now;
                        node.timeline.sent = node.timeline.sent.max(sent);
                        let answer = Message::Answer {
                            session: who.session(),
                            t1,
                            t2: now,
                            t3: now,
                            period_ms,
                            received: node.timeline.received,
                            counters: self.rates.counters,
                            stop: self.stopped.contains(&who.name),
                        };
                        Some(Some(answer.sealed(&key)))
                    }
                    _ => None,
                }
            }
            Message::Sample(sample) | Message::Final(sample) => {
                let at = is_known(&sample.session)?;
                let key = self.nodes[at].key.clone();
                match sealed.verified(&key)? {
                    Message::Sample(sample) | Message::Final(sample)
                        if !self.nodes[at].may_have_taken(&sample, now) =>
                    {
                        None
                    }
                    Message::Sample(sample) => {
                        self.sample(at, now, &sample);
                        Some(None)
                    }
                    Message::Final(sample) => {
                        self.last(at, now, &sample);
                        // A user who starts an agent there again wants it to run.
                        self.stopped.remove(&self.nodes[at].who.name);
                        let done = Message::Done {
                            session: sample.session,
                            number: sample.number,
                        };
                        Some(Some(done.sealed(&key)))
                    }
                    _ => None,
                }
            }
            Message::Welcome { .. } | Message::Answer { .. } | Message::Done { .. } => None,
        }
    }

    /// Fills in samples that have been missing for longer than two samples take.
    pub fn tick(&mut self, now: u64) {
        let mut out = Vec::new();
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            let patience = u64::from(node.status.period_ms).max(500) * 2 * MS;
            let is_due = |oldest: i64| oldest.saturating_add(patience as i64) < now as i64;
            if node.timeline.oldest_ns().is_some_and(is_due) {
                node.timeline.flush(&mut out);
                self.keep(at, &mut out);
            }
        }
    }

    /// Ends all sessions: missing samples are not waited for any more.
    pub fn finish(&mut self) {
        let mut out = Vec::new();
        for at in 0..self.nodes.len() {
            self.nodes[at].timeline.flush(&mut out);
            self.keep(at, &mut out);
        }
    }

    /// Rows that are final since the last call.
    pub fn rows(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.rows)
    }

    /// Number of machines.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if no machine has sent a message yet.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Status of a machine.
    pub fn status(&self, node: usize) -> Option<Status> {
        let node = self.nodes.get(node)?;
        let mut status = node.status.clone();
        status.received = node.earlier.received + node.timeline.received;
        status.expected = node.earlier.expected.saturating_add(node.timeline.sent);
        status.ignored = node.earlier.ignored + node.timeline.ignored;
        Some(status)
    }

    /// Messages that were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// True if every machine has sent its last totals.
    pub fn is_final(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(|node| node.status.is_final)
    }

    /// Changes the time between samples, of one machine or of all; agents get it with the answer to their
    /// next question.
    pub fn set_period(&mut self, node: Option<&str>, period_ms: u32) {
        match node {
            Some(name) => {
                self.rates.of_node.insert(name.into(), period_ms);
            }
            None => {
                self.rates.of_node.clear();
                self.rates.period_ms = period_ms;
            }
        }
    }

    /// Makes the agent of one machine, or of all that have not ended, send its last totals and end; agents
    /// get that with the answer to their next question. Returns the number of these agents; 0 for an unknown
    /// name.
    pub fn stop(&mut self, node: Option<&str>) -> usize {
        let open = self.nodes.iter().filter(|node| !node.status.is_final);
        let names = open.map(|open| open.who.name.as_str());
        let meant = names.filter(|name| node.is_none_or(|node| node == *name));
        let meant: Vec<String> = meant.map(str::to_owned).collect();
        let count = meant.len();
        self.stopped.extend(meant);
        count
    }

    fn period_of(&self, name: &str) -> u32 {
        let wanted = self
            .rates
            .of_node
            .get(name)
            .copied()
            .unwrap_or(self.rates.period_ms);
        // All together must not send more than can be taken.
        let least =
            (self.nodes.len() as u64 * 1000).div_ceil(u64::from(self.rates.most_per_second.max(1)));
        wanted.max(u32::try_from(least).unwrap_or(u32::MAX))
    }

    fn answer_to(&self, who: &Who) -> Nonce {
        let mut nonce = [0; 16];
        nonce.copy_from_slice(&self.secret.sign(&[b"welcome", &who.bytes()])[..16]);
        nonce
    }

    /// The machine of a session that is proven; `None`: a later session of that machine was seen, or there
    /// are too many machines.
    fn node(&mut self, now: u64, who: &Who, key: &Key) -> Option<usize> {
        let machine = (who.name.clone(), who.boot.clone());
        let Some(&at) = self.by_machine.get(&machine) else {
            if self.nodes.len() >= MOST_NODES || self.by_session.contains_key(&who.session()) {
                return None;
            }
            let at = self.nodes.len();
            self.nodes.push(Node {
                who: who.clone(),
                key: key.clone(),
                timeline: Timeline::default(),
                earlier: Status::default(),
                status: Status {
                    name: who.name.clone(),
                    boot: who.boot.clone(),
                    sessions: 1,
                    ..Status::default()
                },
                last_ns: 0,
                begun_ns: now,
            });
            self.by_machine.insert(machine, at);
            self.by_session.insert(who.session(), at);
            return Some(at);
        };
        if self.nodes[at].who == *who {
            return Some(at);
        }
        let is_older = who.incarnation <= self.nodes[at].who.incarnation;
        if is_older || self.by_session.contains_key(&who.session()) {
            return None;
        }
        // The agent began again.
        let mut out = Vec::new();
        self.nodes[at].timeline.flush(&mut out);
        self.keep(at, &mut out);
        let before = self.status(at)?;
        let node = &mut self.nodes[at];
        self.by_session.remove(&node.who.session());
        self.by_session.insert(who.session(), at);
        node.status.sessions += 1;
        node.status.is_final = false;
        node.earlier = before;
        node.timeline = Timeline::default();
        node.who = who.clone();
        node.key = key.clone();
        node.begun_ns = now;
        Some(at)
    }

    fn sample(&mut self, at: usize, now: u64, sample: &Sample) {
        let mut out = Vec::new();
        let node = &mut self.nodes[at];
        node.status.heard_ns = now;
        node.status.error_ns = Some(sample.error_ns.max(node.status.error_ns.unwrap_or(0)));
        node.status.present_error_ns = sample.error_ns;
        node.status.drift_ppb = sample.drift_ppb;
        node.status.zero_ns = Some(zero(sample));
        node.status.period_ms = sample.period_ms;
        node.timeline.add(sample, on_scale(sample), &mut out);
        self.keep(at, &mut out);
    }

    /// The last totals: its number is that of the samples sent, and it is no sample itself.
    fn last(&mut self, at: usize, now: u64, sample: &Sample) {
        let node = &mut self.nodes[at];
        node.status.heard_ns = now;
        if std::mem::replace(&mut node.status.is_final, true) {
            return;
        }
        node.timeline.sent = node.timeline.sent.max(sample.number);
        let mut out = Vec::new();
        node.timeline.flush(&mut out);
        out.push(Timed {
            t_ns: on_scale(sample),
            totals: sample.totals.clone(),
            is_interpolated: false,
        });
        self.keep(at, &mut out);
    }

    fn keep(&mut self, at: usize, out: &mut Vec<Timed>) {
        let node = &mut self.nodes[at];
        for timed in out.drain(..) {
            // Not before the collector began, nor before a stored time.
            let t_ns = u64::try_from(timed.t_ns).unwrap_or(0).max(node.last_ns + 1);
            node.last_ns = t_ns;
            self.rows.push(Row {
                node: at,
                t_ns,
                totals: timed.totals,
                is_interpolated: timed.is_interpolated,
            });
        }
    }
}

/// Reading of the sender's clock at the collector's time 0.
fn zero(sample: &Sample) -> i64 {
    let elapsed = i128::from(on_scale(sample));
    let own = elapsed - elapsed * i128::from(sample.drift_ppb) / 1_000_000_000;
    i64::try_from(i128::from(sample.t_ns) - own).unwrap_or(0)
}

fn on_scale(sample: &Sample) -> i64 {
    i64::try_from(sample.t_ns)
        .unwrap_or(i64::MAX)
        .saturating_add(sample.offset_ns)
}
