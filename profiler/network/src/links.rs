//! Narrow links: links of hosts that carry one message after the other, more slowly than the program
//! sends.
//!
//! Behind a narrow link a message waits for the messages before it. The length of this wait is no
//! property of the message: if one process were faster, other messages would arrive at the link with
//! it, and wait longer or no more. A replay therefore sends the messages through such links again.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::messages::Message;
use super::quantile;
use super::run::Node;

/// Least number of messages that were under way when the one before them arrived; fewer do not show a
/// link.
const LEAST_WAITING: usize = 12;
/// Share of these that follow each other as soon as the link allows.
const SOONEST: f64 = 0.1;
/// Least time of a message on a narrow link, ns. Shorter times are those of the hosts.
const NARROW_NS: f64 = 100_000.0;
/// Over a narrow link, this quantile of the times of each pair's messages is at least this share of the
/// link's time per message.
const DELAYED: f64 = 0.9;
/// Least spread of the times of messages over a narrow link, as a share of the link's time per message.
const LEAST_SPREAD: f64 = 0.05;
/// Largest part of that spread that may be left without the waits for the link.
const EXPLAINED: f64 = 0.5;
/// Number of busy intervals that are kept for a link.
const REMEMBERED: usize = 256;

/// The links of all hosts.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    /// Narrow links by host; true for the receiving direction.
    narrow: BTreeMap<(Node, bool), Link>,
    /// Time that each message took in addition to the links, ns.
    beside_ns: Vec<f64>,
}

/// A link in one direction.
#[derive(Clone, Debug, Default)]
struct Link {
    /// Time that a message keeps the link busy, ns.
    takes_ns: f64,
    /// Time that a message saves after a pause (a token bucket), ns.
    credit_ns: f64,
    /// Busy intervals, in the order of time.
    busy: VecDeque<(f64, f64)>,
}

impl Link {
    /// End of the transfer of a message that comes to the link at instant `at`, ns. Messages need not
    /// be given in the order in which they come: each takes the first free time.
    fn through(&mut self, at: f64) -> f64 {
        let mut begin = at;
        let mut place = self.busy.partition_point(|(_, end)| *end <= at);
        while let Some((from, until)) = self.busy.get(place)
            && *from < begin + self.takes_ns
        {
            begin = begin.max(*until);
            place += 1;
        }
        let end = begin + self.takes_ns;
        self.busy.insert(place, (begin, end));
        if self.busy.len() > REMEMBERED {
            self.busy.pop_front();
        }
        (end - self.credit_ns).max(at)
    }
}

impl Links {
    /// Links that delay no message: each takes as long as it took.
    pub(super) fn wide(messages: &[Message]) -> Links {
        let mut links = Links::default();
        links.measure(messages);
        links
    }

    /// The narrow links that these messages, given in the order of sending, show.
    pub(super) fn of(messages: &[Message]) -> Links {
        let mut by_link: BTreeMap<(Node, bool), Vec<&Message>> = BTreeMap::new();
        for message in messages {
            by_link
                .entry((message.src, false))
                .or_default()
                .push(message);
            by_link
                .entry((message.dst, true))
                .or_default()
                .push(message);
        }
        let narrow = by_link.into_iter().filter_map(|(key, mut list)| {
            list.sort_by_key(|message| message.received_ns.1);
            Some((key, link(&list)?))
        });
        let mut links = Links {
            narrow: narrow.collect(),
            beside_ns: Vec::new(),
        };
        links.measure(messages);
        links
    }

    /// Computes the time that each message took in addition to the narrow links.
    fn measure(&mut self, messages: &[Message]) {
        let mut links = self.clone();
        let first = messages.first().map_or(0, |message| message.sent_ns.0);
        let beside = |message: &Message| {
            let through = links.through(message, (message.sent_ns.0 - first) as f64);
            (message.received_ns.1 - first) as f64 - through
        };
        self.beside_ns = messages.iter().map(beside).collect();
    }

    /// True if no message waits for another.
    fn are_wide(&self) -> bool {
        self.narrow.is_empty()
    }

    fn through(&mut self, message: &Message, sent_ns: f64) -> f64 {
        let mut at = sent_ns;
        for key in [(message.src, false), (message.dst, true)] {
            if let Some(link) = self.narrow.get_mut(&key) {
                at = link.through(at);
            }
        }
        at
    }

    /// Arrival of the message at this place if it is sent at the instant `sent_ns`. Both are ns since
    /// the first send.
    pub(super) fn carry(&mut self, place: usize, message: &Message, sent_ns: f64) -> f64 {
        let beside = self.beside_ns.get(place).copied().unwrap_or(0.0);
        self.through(message, sent_ns) + beside
    }
}

/// A run that is played again.
pub(super) trait Play {
    /// Messages that one needs. Messages after it in the order of sending do not count.
    fn needs(&self, place: usize) -> Vec<usize>;
    /// Time at which a message is sent, given that all messages that it needs have been sent; ns or s.
    fn begin(&mut self, place: usize) -> f64;
    /// Sends the message at that time.
    fn send(&mut self, place: usize, begin: f64, links: &mut Links);
}

/// Replays the first `count` messages over links. Over narrow links they go in the order in which the
/// replay sends them, which may differ from the recorded one.
pub(super) fn play(of: &mut impl Play, count: usize, mut links: Links) {
    if links.are_wide() {
        for place in 0..count {
            let begin = of.begin(place);
            of.send(place, begin, &mut links);
        }
        return;
    }
    let mut missing = vec![0u32; count];
    let mut followers: Vec<Vec<u32>> = vec![Vec::new(); count];
    for (place, missing) in missing.iter_mut().enumerate() {
        for needed in of.needs(place).into_iter().filter(|needed| *needed < place) {
            followers[needed].push(place as u32);
            *missing += 1;
        }
    }
    let free = (0..count).filter(|&place| missing[place] == 0);
    let mut next: BTreeSet<(Start, usize)> =
        free.map(|place| (Start(of.begin(place)), place)).collect();
    while let Some((Start(begin), place)) = next.pop_first() {
        of.send(place, begin, &mut links);
        for &follower in &followers[place] {
            let follower = follower as usize;
            missing[follower] -= 1;
            if missing[follower] == 0 {
                next.insert((Start(of.begin(follower)), follower));
            }
        }
    }
}

/// A time that can be ordered.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Start(f64);

impl Eq for Start {}

impl PartialOrd for Start {
    fn partial_cmp(&self, other: &Start) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Start {
    fn cmp(&self, other: &Start) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The link of these messages, in the order of arrival; `None` if it is not narrow.
fn link(messages: &[&Message]) -> Option<Link> {
    let follows = messages.windows(2).filter_map(|pair| {
        let there = pair[0].received_ns.1;
        (pair[1].sent_ns.0 < there).then(|| (pair[1].received_ns.1 - there) as f64)
    });
    let follows = quantile::sorted(follows);
    if follows.len() < LEAST_WAITING {
        return None;
    }
    let takes_ns = quantile::quantile(&follows, SOONEST)?;
    if takes_ns < NARROW_NS {
        return None;
    }
    let mut pairs: BTreeMap<(Node, Node), Vec<f64>> = BTreeMap::new();
    for message in messages {
        let took = (message.received_ns.1 - message.sent_ns.0) as f64;
        pairs
            .entry((message.src, message.dst))
            .or_default()
            .push(took);
    }
    let mut least = f64::INFINITY;
    for took in pairs.into_values().map(quantile::sorted) {
        // A pair without the delay does not use the link.
        if quantile::quantile(&took, DELAYED)? < DELAYED * takes_ns {
            return None;
        }
        least = least.min(quantile::quantile(&took, 1.0 - DELAYED)?);
    }
    let link = Link {
        takes_ns,
        credit_ns: (takes_ns - least).max(0.0),
        busy: VecDeque::new(),
    };
    link.explains(messages).then_some(link)
}

impl Link {
    /// True if the messages took as long as they did because they waited for each other, so that
    /// without the waits they took nearly the same time.
    fn explains(&self, messages: &[&Message]) -> bool {
        let mut link = self.clone();
        let mut sent = messages.to_vec();
        sent.sort_by_key(|message| message.sent_ns.0);
        let first = sent.first().map_or(0, |message| message.sent_ns.0);
        let (mut took, mut beside) = (Vec::new(), Vec::new());
        for message in sent {
            let (at, there) = (message.sent_ns.0 - first, message.received_ns.1 - first);
            took.push((there - at) as f64);
            beside.push(there as f64 - link.through(at as f64));
        }
        let spread = |values: &[f64]| {
            let middle = quantile::median(values.iter().copied()).unwrap_or(0.0);
            let off: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
            quantile::mean(&off).unwrap_or(0.0)
        };
        let (before, after) = (spread(&took), spread(&beside));
        before >= LEAST_SPREAD * self.takes_ns && after <= EXPLAINED * before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages;
    use crate::testing::{Bsp, Style, bsp};

    const MS: i64 = 1_000_000;

    /// Messages from 0 to 1 and 2 in turn, with times of sending and arrival, ms.
    fn made(times: &[(f64, f64)]) -> Vec<Message> {
        let ns = |ms: f64| (ms * MS as f64) as i64;
        let message = |(i, &(sent, there)): (usize, &(f64, f64))| Message {
            dst: 1 + (i % 2) as Node,
            sent_ns: (ns(sent), ns(sent)),
            received_ns: (ns(there), ns(there)),
            ..Message::default()
        };
        times.iter().enumerate().map(message).collect()
    }

    #[test]
    fn messages_wait_for_those_before_them_over_a_narrow_link() {
        let pairs = (0..30).flat_map(|i| {
            let t = 10.0 * f64::from(i);
            [(t, t + 2.0), (t + 0.5, t + 4.0)]
        });
        let sent = made(&pairs.collect::<Vec<_>>());
        let mut links = Links::of(&sent);
        assert_eq!(links.narrow.keys().collect::<Vec<_>>(), [&(0, false)]);
        let mut there =
            |place: usize, ms: f64| links.carry(place, &sent[place], ms * MS as f64) / MS as f64;
        // Messages that are apart do not wait, in any order.
        assert_eq!([there(0, 0.0), there(1, 5.0)], [2.0, 7.0]);
        assert_eq!([there(3, 10.0), there(2, 11.0)], [12.0, 14.0]);
        // Without narrow links each message takes as long as it took.
        let mut wide = Links::wide(&sent);
        assert_eq!(wide.carry(1, &sent[1], 5e6), 8.5e6);
    }

    #[test]
    fn a_token_bucket_lets_the_first_through() {
        let pairs = (0..30).flat_map(|i| {
            let t = 10.0 * f64::from(i);
            [(t, t + 0.5), (t + 0.1, t + 2.5)]
        });
        // Each partner comes first in every other pair.
        let mut sent = made(&pairs.collect::<Vec<_>>());
        for (i, message) in sent.iter_mut().enumerate() {
            message.dst = 1 + ((i / 2 + i) % 2) as Node;
        }
        let mut links = Links::of(&sent);
        let link = &links.narrow[&(0, false)];
        assert_eq!((link.takes_ns, link.credit_ns), (2e6, 1.5e6));
        let mut there = |ms: f64| links.carry(0, &sent[0], ms * MS as f64) / MS as f64;
        assert_eq!([there(0.0), there(0.1), there(8.0)], [0.5, 2.5, 8.5]);
    }

    /// Latency is no narrow link. A partner that takes longer to reach is none either.
    #[test]
    fn far_hosts_have_no_narrow_links() {
        for style in Style::ALL {
            let run = bsp(&Bsp {
                style,
                latency_s: 1e-3,
                ..Bsp::ring(4)
            });
            let found = messages::messages(&run.run).unwrap();
            assert!(Links::of(&found).are_wide(), "{style:?}");
        }
        let pairs = (0..30).flat_map(|i| {
            let t = 10.0 * f64::from(i);
            [(t, t + 0.1), (t, t + 2.0)]
        });
        assert!(Links::of(&made(&pairs.collect::<Vec<_>>())).are_wide());
    }

    /// The length of a run with narrow links follows from a run in which messages came in another
    /// order.
    #[test]
    fn a_slow_link_hides_a_part_of_a_load() {
        use crate::evidence::{self, Verdict};
        let mut narrow = 0;
        for (style, slow, loaded) in [
            (Style::AllFirst, 1, 0),
            (Style::ByEdge, 3, 3),
            (Style::ByEdge, 2, 1),
            (Style::Turns, 2, 1),
        ] {
            let mut program = Bsp {
                style,
                slow_link: Some((slow, 1.2e-3)),
                ..Bsp::ring(4)
            };
            let base_s = bsp(&program).seconds;
            program.work_s[loaded] *= 1.6;
            program.seed = 9;
            let made = bsp(&program);
            let truth = made.seconds - base_s;
            let found = evidence::weigh(&made.run).unwrap();
            assert_eq!(
                found.verdict,
                Verdict::Loaded(vec![loaded as Node]),
                "{style:?} {slow} {loaded}"
            );
            let range = found.slowdown_s.unwrap();
            assert!(
                (range.low..=range.high).contains(&truth),
                "{style:?}: {truth} not in {range:?}"
            );
            narrow += usize::from(range.high - range.low <= 0.3 * (range.high + range.low));
        }
        assert!(narrow >= 2, "{narrow}");
    }
}
