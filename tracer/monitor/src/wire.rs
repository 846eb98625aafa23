//! The messages between an agent and the collector.
//!
//! ```text
//! agent                                        collector
//!   Hello   who, nonce                  ->                     signed with the shared key
//!                       <-   Welcome   nonce, nonce of its own signed with the shared key
//!   Ask     who, nonce, time            ->                     signed with the key of the session
//!                       <-   Answer    times, period, counters, whether to end
//!   Sample  number, time, totals        ->
//!   Final   (over TCP) the last totals  ->
//!                       <-   Done
//! ```
//!
//! The key of a session is derived from the shared key and both nonces, so that no message of an earlier
//! session can be sent again; the numbers of samples keep them from being taken twice within one session. A
//! message is magic, kind, body, signature; integers are little endian, totals of variable length.

use flowtrace_schema::HostCounter;

use super::key::{Key, MAC};

/// Longest message: it is never cut into fragments.
pub const LONGEST: usize = 511;
const MAGIC: &[u8; 4] = b"FTM2";
/// Greatest time and count that is accepted, as in a trace: 9 years.
const MOST: u64 = 1 << 58;
/// Longest name of a machine that is sent, and of a boot.
const LONGEST_NAME: usize = 64;
const LONGEST_BOOT: usize = 40;

/// A value that is used once.
pub type Nonce = [u8; 16];
/// Number of a session: the first half of the agent's nonce.
pub type Session = [u8; 8];

/// Totals of a machine: counter, by its place in [`HostCounter::ALL`], and value.
pub type Totals = Vec<(u8, u64)>;

/// A choice of counters: a bit for each, by its place in [`HostCounter::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters(u64);

const _: () = assert!(HostCounter::ALL.len() <= u64::BITS as usize);

impl Default for Counters {
    /// All counters.
    fn default() -> Counters {
        Counters(u64::MAX)
    }
}

impl Counters {
    /// The counters that `names` choose, each a counter as `disk.read_bytes` or a kind as `cpu`.
    ///
    /// # Errors
    /// The name that is no counter.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Counters, &'a str> {
        let mut chosen = 0;
        for name in names {
            let is_meant = |counter: &HostCounter| {
                let own = counter.describe().0.replace(".*", "");
                own == name || own.split('.').next() == Some(name)
            };
            let found = HostCounter::ALL.iter().enumerate();
            let bits = found
                .filter(|(_, counter)| is_meant(counter))
                .map(|(at, _)| 1 << at);
            let bits = bits.fold(0, |all, bit: u64| all | bit);
            if bits == 0 {
                return Err(name);
            }
            chosen |= bits;
        }
        Ok(Counters(chosen))
    }

    /// True if the choice has a counter.
    pub fn has(self, counter: u8) -> bool {
        self.0
            .checked_shr(u32::from(counter))
            .is_some_and(|bits| bits & 1 == 1)
    }
}

/// Identity of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Who {
    /// Node name.
    pub name: String,
    /// Id of its boot.
    pub boot: String,
    /// Grows with every session of the node: wall clock at its begin, ns.
    pub incarnation: u64,
    /// Chosen by the agent, and used once.
    pub nonce: Nonce,
}

impl Who {
    /// Number of the session.
    pub fn session(&self) -> Session {
        let mut session = [0; 8];
        session.copy_from_slice(&self.nonce[..8]);
        session
    }

    /// All fields as bytes, for the nonce that the collector derives.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_who(&mut out, self);
        out
    }
}

/// Totals at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The session.
    pub session: Session,
    /// Counted from 0 in the session.
    pub number: u64,
    /// Agent's clock, ns.
    pub t_ns: u64,
    /// To be added to `t_ns` for the collector's clock, ns.
    pub offset_ns: i64,
    /// Bound of the error of the offset, ns.
    pub error_ns: u64,
    /// Drift of the agent's clock against the collector's, parts per billion.
    pub drift_ppb: i32,
    /// Time between samples at present, ms.
    pub period_ms: u32,
    /// Totals.
    pub totals: Totals,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// An agent asks for a session.
    Hello {
        /// Identity of the agent.
        who: Who,
    },
    /// The collector's answer.
    Welcome {
        /// The agent's nonce.
        nonce: Nonce,
        /// The collector's nonce.
        answer: Nonce,
    },
    /// Asks for the time, and opens the session.
    Ask {
        /// Identity of the agent.
        who: Who,
        /// Agent's clock, ns.
        t1: u64,
        /// Samples sent so far.
        sent: u64,
    },
    /// The time.
    Answer {
        /// The session.
        session: Session,
        /// `t1` of the question.
        t1: u64,
        /// Collector's clock when the question came, ns.
        t2: u64,
        /// Collector's clock when the answer was sent, ns.
        t3: u64,
        /// Requested time between samples, ms.
        period_ms: u32,
        /// Samples that came.
        received: u64,
        /// Requested counters.
        counters: Counters,
        /// True if the agent is to send its last totals and end.
        stop: bool,
    },
    /// Totals.
    Sample(Sample),
    /// The last totals; `number` is the number of samples sent.
    Final(Sample),
    /// The last totals are stored.
    Done {
        /// The session.
        session: Session,
        /// As in [`Message::Final`].
        number: u64,
    },
}

impl Message {
    /// The session whose key signs the message; `None`: the shared key signs it.
    pub fn session(&self) -> Option<Session> {
        match self {
            Message::Hello { .. } | Message::Welcome { .. } => None,
            Message::Ask { who, .. } => Some(who.session()),
            Message::Answer { session, .. } | Message::Done { session, .. } => Some(*session),
            Message::Sample(sample) | Message::Final(sample) => Some(sample.session),
        }
    }

    /// The signed message, at most [`LONGEST`] bytes. Totals that do not fit are left out, the last first;
    /// all counters of this version fit.
    pub fn sealed(&self, key: &Key) -> Vec<u8> {
        let mut out = Vec::with_capacity(LONGEST);
        out.extend_from_slice(MAGIC);
        match self {
            Message::Hello { who } => {
                out.push(1);
                put_who(&mut out, who);
            }
            Message::Welcome { nonce, answer } => {
                out.push(2);
                out.extend_from_slice(nonce);
                out.extend_from_slice(answer);
            }
            Message::Ask { who, t1, sent } => {
                out.push(3);
                put_who(&mut out, who);
                put(&mut out, *t1);
                put(&mut out, *sent);
            }
            Message::Answer {
                session,
                t1,
                t2,
                t3,
                period_ms,
                received,
                counters,
                stop,
            } => {
                out.push(4);
                out.extend_from_slice(session);
                for value in [*t1, *t2, *t3, *received, counters.0] {
                    put(&mut out, value);
                }
                out.extend_from_slice(&period_ms.to_le_bytes());
                out.push(u8::from(*stop));
            }
            Message::Sample(sample) => {
                out.push(5);
                put_sample(&mut out, sample);
            }
            Message::Final(sample) => {
                out.push(6);
                put_sample(&mut out, sample);
            }
            Message::Done { session, number } => {
                out.push(7);
                out.extend_from_slice(session);
                put(&mut out, *number);
            }
        }
        let signature = key.sign(&[&out]);
        out.extend_from_slice(&signature);
        out
    }
}

fn put(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str, longest: usize) {
    let mut end = text.len().min(longest);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.push(end as u8);
    out.extend_from_slice(&text.as_bytes()[..end]);
}

fn put_who(out: &mut Vec<u8>, who: &Who) {
    out.extend_from_slice(&who.nonce);
    put(out, who.incarnation);
    put_text(out, &who.name, LONGEST_NAME);
    put_text(out, &who.boot, LONGEST_BOOT);
}

fn put_sample(out: &mut Vec<u8>, sample: &Sample) {
    out.extend_from_slice(&sample.session);
    put(out, sample.number);
    put(out, sample.t_ns);
    put(out, sample.offset_ns as u64);
    put(out, sample.error_ns);
    out.extend_from_slice(&sample.drift_ppb.to_le_bytes());
    out.extend_from_slice(&sample.period_ms.to_le_bytes());
    let count_at = out.len();
    out.push(0);
    for (counter, value) in &sample.totals {
        let mut entry = vec![*counter];
        let mut value = *value;
        while value >= 0x80 {
            entry.push(value as u8 | 0x80);
            value >>= 7;
        }
        entry.push(value as u8);
        if out.len() + entry.len() + MAC > LONGEST || out[count_at] == u8::MAX {
            break;
        }
        out.extend_from_slice(&entry);
        out[count_at] += 1;
    }
}

/// A message whose signature has not been checked.
#[derive(Clone, Debug)]
pub struct Sealed<'a> {
    /// Message that it claims to be.
    pub message: Message,
    signed: &'a [u8],
    signature: &'a [u8],
}

impl Sealed<'_> {
    /// The message, if this key signed it.
    pub fn verified(self, key: &Key) -> Option<Message> {
        key.verifies(self.signed, self.signature)
            .then_some(self.message)
    }
}

/// Reads a message; `None`: the bytes are no message. Any bytes are accepted.
pub fn parse(bytes: &[u8]) -> Option<Sealed<'_>> {
    if bytes.len() > LONGEST || bytes.len() < MAGIC.len() + 1 + MAC {
        return None;
    }
    let (signed, signature) = bytes.split_at(bytes.len() - MAC);
    let mut reader = Reader(signed.strip_prefix(MAGIC)?);
    let message = match reader.byte()? {
        1 => Message::Hello { who: reader.who()? },
        2 => Message::Welcome {
            nonce: reader.array()?,
            answer: reader.array()?,
        },
        3 => Message::Ask {
            who: reader.who()?,
            t1: reader.amount()?,
            sent: reader.amount()?,
        },
        4 => {
            let session = reader.array()?;
            let (t1, t2, t3) = (reader.amount()?, reader.amount()?, reader.amount()?);
            Message::Answer {
                session,
                t1,
                t2,
                t3,
                received: reader.amount()?,
                counters: Counters(reader.integer()?),
                period_ms: u32::from_le_bytes(reader.array()?),
                stop: reader.byte()? != 0,
            }
        }
        5 => Message::Sample(reader.sample()?),
        6 => Message::Final(reader.sample()?),
        7 => Message::Done {
            session: reader.array()?,
            number: reader.amount()?,
        },
        _ => return None,
    };
    reader.0.is_empty().then_some(Sealed {
        message,
        signed,
        signature,
    })
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|taken| taken[0])
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn integer(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A valid time or count: sums and differences of several do not overflow, and fit into a trace.
    fn amount(&mut self) -> Option<u64> {
        self.integer().filter(|&amount| amount <= MOST)
    }

    fn text(&mut self, longest: usize) -> Option<String> {
        let length = usize::from(self.byte()?);
        let bytes = self.take(length).filter(|_| length <= longest)?;
        let text = std::str::from_utf8(bytes).ok()?;
        // The name is shown on terminals.
        (!text.chars().any(char::is_control)).then(|| text.to_owned())
    }

    fn who(&mut self) -> Option<Who> {
        Some(Who {
            nonce: self.array()?,
            incarnation: self.integer()?,
            name: self.text(LONGEST_NAME).filter(|name| !name.is_empty())?,
            boot: self.text(LONGEST_BOOT)?,
        })
    }

    fn sample(&mut self) -> Option<Sample> {
        Some(Sample {
            session: self.array()?,
            number: self.amount()?,
            t_ns: self.amount()?,
            offset_ns: Some(self.integer()? as i64)
                .filter(|offset| offset.unsigned_abs() <= MOST)?,
            error_ns: self.amount()?,
            drift_ppb: i32::from_le_bytes(self.array()?),
            period_ms: u32::from_le_bytes(self.array()?),
            totals: self.totals()?,
        })
    }

    fn totals(&mut self) -> Option<Totals> {
        let count = self.byte()?;
        let mut totals = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let counter = self.byte()?;
            let mut value = 0u64;
            for shift in (0..).step_by(7) {
                let byte = self.byte()?;
                let bits = u64::from(byte & 0x7f);
                if shift > 56 || bits << shift > MOST {
                    return None;
                }
                value |= bits << shift;
                if byte < 0x80 {
                    break;
                }
            }
            // A newer agent may have counters that this version does not know.
            if usize::from(counter) < HostCounter::ALL.len() {
                totals.push((counter, value));
            }
        }
        Some(totals)
    }
}

#[cfg(test)]
mod tests;
