//! Links of hosts that carry one message after the other, slower than the program sends.
//!
//! Behind a narrow link a message waits for those before it. How long is no property of the message: were somebody
//! faster, others would come at the same time as it and wait, or no longer. So where a run is played again, messages
//! go through such links once more.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::messages::Message;
use super::quantile;
use super::run::Node;

/// Messages that were under way when the one before them arrived, from which a link is known.
const LEAST_WAITING: usize = 12;
/// Share of these that follow each other as soon as the link allows.
const SOONEST: f64 = 0.1;
/// A message takes a narrow link for more than this, ns: less is the time of the hosts.
const NARROW_NS: f64 = 100_000.0;
/// Share of the messages of each pair over a narrow link that take as long as it keeps them, at least.
const HELD: f64 = 0.9;
/// Messages over a narrow link differ in time by this share of what it keeps them, at least, and beside the link by no more
/// than that share of it.
const LEAST_SPREAD: f64 = 0.05;
const EXPLAINED: f64 = 0.5;
/// Times in which a link was busy that are remembered.
const REMEMBERED: usize = 256;

/// The links of all hosts.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    /// By host, and whether it receives; only narrow ones.
    narrow: BTreeMap<(Node, bool), Link>,
    /// Time that each message took beside the links, ns.
    beside_ns: Vec<f64>,
}

/// A link in one direction.
#[derive(Clone, Debug, Default)]
struct Link {
    /// Time that a message keeps the link busy, ns.
    takes_ns: f64,
    /// Time by which a message is through sooner after a pause (a token bucket), ns.
    credit_ns: f64,
    /// When it is busy, in the order of time.
    busy: VecDeque<(f64, f64)>,
}

impl Link {
    /// When a message is through that comes at an instant, ns. Messages may be asked about in another order than they
    /// come: each takes the first time that is free.
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
    /// Links that keep no message: each takes as long as it took.
    pub(super) fn wide(messages: &[Message]) -> Links {
        let mut links = Links::default();
        links.measure(messages);
        links
    }

    /// The links that these messages, in the order of sending, show.
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

    /// Finds what each message took beside the narrow links.
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

    /// When the message of this place is there that is sent at an instant; both ns since the first was sent.
    pub(super) fn carry(&mut self, place: usize, message: &Message, sent_ns: f64) -> f64 {
        let beside = self.beside_ns.get(place).copied().unwrap_or(0.0);
        self.through(message, sent_ns) + beside
    }
}

/// A run that is played again.
pub(super) trait Play {
    /// Messages that one needs: those behind it in the order of sending do not count.
    fn needs(&self, place: usize) -> Vec<usize>;
    /// When a message is sent, of which all that it needs was sent; ns or s.
    fn begin(&mut self, place: usize) -> f64;
    /// Sends it then.
    fn send(&mut self, place: usize, begin: f64, links: &mut Links);
}

/// Plays so many messages over links. Over narrow ones in the order in which they are sent now, which may be another than
/// that in which they were.
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

/// A time that has an order.
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

/// Link by the messages over it, in the order of arrival; `None`: it is not narrow.
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
        // Who is never held does not go over it.
        if quantile::quantile(&took, HELD)? < HELD * takes_ns {
            return None;
        }
        least = least.min(quantile::quantile(&took, 1.0 - HELD)?);
    }
    let link = Link {
        takes_ns,
        credit_ns: (takes_ns - least).max(0.0),
        busy: VecDeque::new(),
    };
    link.explains(messages).then_some(link)
}

impl Link {
    /// True if these messages took as long as they did because they waited for each other: beside that they take alike.
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

    /// Messages of 0 to 1 and 2, sent and there at these instants, ms.
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
        // Apart, none waits; whoever comes first.
        assert_eq!([there(0, 0.0), there(1, 5.0)], [2.0, 7.0]);
        assert_eq!([there(3, 10.0), there(2, 11.0)], [12.0, 14.0]);
        // Each takes as long as it took.
        let mut wide = Links::wide(&sent);
        assert_eq!(wide.carry(1, &sent[1], 5e6), 8.5e6);
    }

    #[test]
    fn a_token_bucket_lets_the_first_through() {
        let pairs = (0..30).flat_map(|i| {
            let t = 10.0 * f64::from(i);
            [(t, t + 0.5), (t + 0.1, t + 2.5)]
        });
        // Both partners come first in every other pair.
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

    /// Latency is no narrow link, and neither is a partner that is slower to reach than another.
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

    /// The length of a run whose links are narrow follows from one in which messages came otherwise.
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
