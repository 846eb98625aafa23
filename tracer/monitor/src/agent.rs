//! One machine's side: the messages to send, and their times. Has no socket and no clock; the caller gives
//! the time.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use super::exchange::Exchange;
use super::key::Key;
use super::wire::{Counters, Message, Nonce, Sample, Totals, Who, parse};

/// The least time between samples, ms.
pub(super) const LEAST_PERIOD_MS: u32 = 10;
const MS: u64 = 1_000_000;
/// First and longest time between two hellos without an answer.
const HELLO_NS: (u64, u64) = (500 * MS, 5_000 * MS);
/// Time between questions at the begin of a session, and later.
const ASK_NS: (u64, u64) = (100 * MS, 5_000 * MS);
/// Questions at the begin that find the shortest way.
const FIRST_ASKS: u64 = 8;
/// Questions without an answer after which the collector is taken for gone: if half of all datagrams are
/// lost, it takes so many to be sure.
const UNANSWERED: u32 = 20;
/// Largest factor by which samples are rarer while the network is busy.
const MOST_BACK_OFF: u32 = 16;
/// Samples between two readings of the loss.
const LOSS_AFTER: u64 = 20;

/// State of an agent.
#[derive(Debug)]
pub struct Agent {
    key: Key,
    who: Who,
    /// The session's key, from the collector's welcome on.
    session: Option<Key>,
    exchange: Exchange,
    /// Questions that wait for their answer.
    asked: VecDeque<u64>,
    asks: u64,
    unanswered: u32,
    hello_pause: u64,
    next_hello: u64,
    next_ask: u64,
    next_sample: u64,
    number: u64,
    period_ms: u32,
    back_off: u32,
    /// Samples sent and received at the last reading of the loss.
    counted: (u64, u64),
    /// Counters that the collector wants.
    counters: Counters,
    /// True if the collector wants no more samples.
    is_stopped: bool,
    done: bool,
}

impl Agent {
    /// An agent of the machine `name` of boot `boot`. `incarnation` is greater than in any session before
    /// (the wall clock, ns); `nonce` was never used before.
    pub fn new(key: Key, name: &str, boot: &str, incarnation: u64, nonce: Nonce) -> Agent {
        Agent {
            key,
            who: Who {
                name: name.into(),
                boot: boot.into(),
                incarnation,
                nonce,
            },
            session: None,
            exchange: Exchange::default(),
            asked: VecDeque::new(),
            asks: 0,
            unanswered: 0,
            hello_pause: HELLO_NS.0,
            next_hello: 0,
            next_ask: 0,
            next_sample: 0,
            number: 0,
            period_ms: 1000,
            back_off: 1,
            counted: (0, 0),
            counters: Counters::default(),
            is_stopped: false,
            done: false,
        }
    }

    /// Messages to send at `now`, and the time until the next call. `nonce` gives a nonce for a new session.
    pub fn poll(
        &mut self,
        now: u64,
        nonce: impl FnOnce() -> Nonce,
        totals: impl FnOnce() -> Totals,
    ) -> (Vec<Vec<u8>>, Duration) {
        let mut out = Vec::new();
        if self.unanswered >= UNANSWERED {
            self.begin_again(nonce());
        }
        let Some(session) = self.session.clone() else {
            if now >= self.next_hello {
                let hello = Message::Hello {
                    who: self.who.clone(),
                };
                out.push(hello.sealed(&self.key));
                self.next_hello = now.saturating_add(self.hello_pause);
                self.hello_pause = (self.hello_pause * 2).min(HELLO_NS.1);
            }
            return (out, wait(now, self.next_hello));
        };
        if now >= self.next_ask {
            out.push(self.ask(now).sealed(&session));
        }
        // Without its time on the collector's clock a sample would have no place.
        if self.exchange.relation(now).is_some() && now >= self.next_sample {
            let sample = self.sample(now, totals());
            out.push(Message::Sample(sample).sealed(&session));
            self.number += 1;
            // A round that was missed is left out.
            self.next_sample = (self.next_sample + self.period_ns()).max(now);
        }
        let next = match self.exchange.relation(now) {
            Some(_) => self.next_ask.min(self.next_sample),
            None => self.next_ask,
        };
        (out, wait(now, next))
    }

    /// Takes a message that came at `now`. A message that is not signed, not asked for, or of another session
    /// changes nothing.
    pub fn receive(&mut self, now: u64, bytes: &[u8]) {
        let Some(sealed) = parse(bytes) else { return };
        let key = match (&sealed.message, &self.session) {
            (Message::Welcome { .. }, None) => &self.key,
            (Message::Answer { session, .. } | Message::Done { session, .. }, Some(key))
                if *session == self.who.session() =>
            {
                key
            }
            _ => return,
        };
        match sealed.verified(key) {
            Some(Message::Welcome { nonce, answer }) if nonce == self.who.nonce => {
                self.session = Some(session_key(&self.key, &self.who, &answer));
                (self.next_ask, self.next_sample) = (now, now);
            }
            Some(Message::Answer {
                t1,
                t2,
                t3,
                period_ms,
                received,
                counters,
                stop,
                ..
            }) => {
                // An answer counts once.
                let Some(at) = self.asked.iter().position(|&asked| asked == t1) else {
                    return;
                };
                self.asked.remove(at);
                self.unanswered = 0;
                self.exchange.add(t1, t2, t3, now);
                self.period_ms = period_ms.clamp(LEAST_PERIOD_MS, 3_600_000);
                self.counters = counters;
                self.is_stopped = stop;
                self.adapt_to_loss(received);
            }
            Some(Message::Done { number, .. }) if number == self.number => self.done = true,
            _ => {}
        }
    }

    /// The last message of all, for the reliable channel; `None`: there is no session yet.
    pub fn last(&self, now: u64, totals: Totals) -> Option<Vec<u8>> {
        let session = self.session.as_ref()?;
        self.exchange.relation(now)?;
        Some(Message::Final(self.sample(now, totals)).sealed(session))
    }

    /// Sends the last totals by `exchange`, a reliable channel that sends a message and returns the answer. A
    /// collector that does not know the session, or never did, gets a new hello.
    ///
    /// # Errors
    /// If the channel fails, or the collector does not take them.
    pub fn conclude(
        &mut self,
        mut now: impl FnMut() -> u64,
        nonce: Nonce,
        totals: &Totals,
        mut exchange: impl FnMut(&[u8]) -> io::Result<Option<Vec<u8>>>,
    ) -> io::Result<()> {
        for attempt in 0..2 {
            if attempt > 0 {
                self.begin_again(nonce);
                // Hello, and the question that opens the session.
                for _ in 0..2 {
                    for bytes in self.poll(now(), || nonce, Totals::new).0 {
                        if let Some(answer) = exchange(&bytes)? {
                            self.receive(now(), &answer);
                        }
                    }
                }
            }
            if let Some(last) = self.last(now(), totals.clone())
                && let Some(answer) = exchange(&last)?
            {
                self.receive(now(), &answer);
            }
            if self.done {
                return Ok(());
            }
        }
        Err(io::Error::other(
            "the collector does not take them: is it the same key?",
        ))
    }

    /// True if the collector wants this agent to send its last totals and end.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// True if the collector has the last totals.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Samples that were sent in this session.
    pub fn sent(&self) -> u64 {
        self.number
    }

    /// Notes that the network would not take a datagram.
    pub fn refused(&mut self) {
        self.back_off = (self.back_off * 2).min(MOST_BACK_OFF);
    }

    /// Time between samples, ns.
    pub fn period_ns(&self) -> u64 {
        u64::from(self.period_ms) * u64::from(self.back_off) * MS
    }

    /// Sends a new hello, as for another channel or a collector that has lost its state.
    pub fn begin_again(&mut self, nonce: Nonce) {
        self.who.nonce = nonce;
        self.who.incarnation += 1;
        self.session = None;
        self.exchange = Exchange::default();
        self.asked.clear();
        (self.asks, self.unanswered, self.number) = (0, 0, 0);
        (self.next_hello, self.hello_pause) = (0, HELLO_NS.0);
        self.counted = (0, 0);
        (self.is_stopped, self.done) = (false, false);
    }

    fn ask(&mut self, now: u64) -> Message {
        self.asks += 1;
        // The first questions find the shortest way; a collector that does not answer is not pestered.
        let is_first = self.asks <= FIRST_ASKS && self.unanswered < 2;
        self.next_ask = now
            + if is_first {
                ASK_NS.0
            } else {
                ASK_NS.1 / 5 * u64::from(self.pace())
            };
        self.unanswered += 1;
        if self.asked.len() == 16 {
            self.asked.pop_front();
        }
        self.asked.push_back(now);
        Message::Ask {
            who: self.who.clone(),
            t1: now,
            sent: self.number,
        }
    }

    /// Every five seconds when all is well, every second while nothing is answered.
    fn pace(&self) -> u32 {
        if self.unanswered == 0 { 5 } else { 1 }
    }

    fn sample(&self, now: u64, mut totals: Totals) -> Sample {
        totals.retain(|&(counter, _)| self.counters.has(counter));
        let relation = self.exchange.relation(now).unwrap_or_default();
        Sample {
            session: self.who.session(),
            number: self.number,
            t_ns: now,
            offset_ns: relation.offset_ns,
            error_ns: relation.error_ns,
            drift_ppb: i32::try_from(relation.drift_ppb).unwrap_or(0),
            period_ms: u32::try_from(self.period_ns() / MS).unwrap_or(u32::MAX),
            totals,
        }
    }

    /// Makes samples rarer if many are lost, which shows that the network is busy.
    fn adapt_to_loss(&mut self, received: u64) {
        let sent = self.number.saturating_sub(self.counted.0);
        let came = received.saturating_sub(self.counted.1);
        if sent < LOSS_AFTER {
            return;
        }
        self.counted = (self.number, received);
        if came * 5 < sent * 4 {
            self.back_off = (self.back_off * 2).min(MOST_BACK_OFF);
        } else if came * 20 >= sent * 19 {
            self.back_off = (self.back_off / 2).max(1);
        }
    }
}

/// The key of a session.
pub(crate) fn session_key(key: &Key, who: &Who, answer: &Nonce) -> Key {
    key.derived(&[b"session", &who.bytes(), answer])
}

fn wait(now: u64, until: u64) -> Duration {
    Duration::from_nanos(until.saturating_sub(now))
}
