//! Passive available bandwidth (Wren, B.2), and stalled receivers.
//!
//! A train of segments that is faster than the free bandwidth of a path queues at the narrowest link,
//! so that the delays of its segments grow. While each segment comes to the link before the one before
//! has left it, the link is always busy. It carries `R` bytes a second: the sender's, and those that
//! others send meanwhile. A train of `L` bytes that was sent within `S` and came out within `S + Δ`
//! left `A = (L - R Δ) / S` to the sender: its own rate, less the growth of the queue. A train whose
//! delays do not grow shows `A` by its rate alone, which is the rule of the thesis. `A` includes the
//! share of the observed program itself (B.2.2).
//!
//! The rate of a train that found the link idle does not show the link's rate: a token bucket passes
//! the first bytes at once, and a tap before the link only shows the speed of the sender's memory.

use std::collections::BTreeSet;
use std::ops::Range;

use ahash::AHashMap;

use super::balance;
use super::evidence::bootstrap;
use super::page::Cell;
use super::quantile;
use super::run::{ACK, Node, PSH, Packet, RST, Run, SYN, Unknown};

/// Least duration of all trains together, ns. With less, jitter is too large a part.
const LEAST_NS: i64 = 100_000_000;
/// Least duration of a train, ns.
const TRAIN_NS: i64 = 5_000_000;
/// Least duration of a train whose queue is before the tap, so that its growth is not seen, ns.
const UNSEEN_NS: i64 = 200_000_000;
/// Approximate number of blocks into which trains are cut.
const BLOCKS: i64 = 32;
/// Least and largest length of a block, ns.
const BLOCK_NS: std::ops::RangeInclusive<i64> = 10_000_000..=250_000_000;
/// Least number of blocks for a spread.
const LEAST_BLOCKS: usize = 6;
/// Largest width of a bracket on either side of its middle; a wider one is no answer.
pub const WIDEST: f64 = 0.25;
/// Share by which every bracket is widened on either side, for unseen headers and errors of clocks.
const SLACK: f64 = 0.02;
/// Time over which the carried rate of a link that was never busy is measured, ns. In less time a token
/// bucket passes more.
const CARRIED_NS: i64 = 1_000_000_000;
/// Segments that every connection may have under way (RFC 6928). If a sender with more to send has
/// fewer, something other than the network behind the tap limits it.
const AT_ONCE: i64 = 10;
/// Segments that came within this share of the time in which they came out show the link's rate.
const NEARLY_AT_ONCE: f64 = 0.3;
/// Least time in which such segments came out, ns.
const PAIR_NS: f64 = 50_000.0;
/// Least number of such segments.
const LEAST_PAIRS: usize = 8;
/// Bound without such segments: others use at most nine tenths of a link.
const MOST_OF_OTHERS: f64 = 10.0;
/// Square of the least relative spread of the rates of blocks that show the link's rate, about.
const APART: f64 = 1e-3;
/// Payload of a full segment where no smaller frame shows it, bytes.
const SEGMENT: u32 = 1448;

/// Available bandwidth of an ordered pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Available {
    /// Sender.
    pub src: Node,
    /// Receiver.
    pub dst: Node,
    /// Number of trains that kept the link busy. `congested`: number of those with growing delays.
    pub trains: usize,
    /// See `trains`.
    pub congested: usize,
    /// Lower bound of the free bandwidth, bytes/s. Without `at_most`: the carried rate.
    pub at_least: Option<f64>,
    /// Upper bound of the free bandwidth, bytes/s.
    pub at_most: Option<f64>,
    /// The reason why there is no bracket, or too wide a one.
    pub why: Option<String>,
}

impl Available {
    /// The middle of the bracket, bytes/s, if there is one.
    pub fn middle(&self) -> Option<f64> {
        Some((self.at_least? + self.at_most?) / 2.0)
    }
}

/// A segment that was sent for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sent {
    /// Time of the send, ns.
    t_ns: i64,
    /// Time at which its last byte, or a later one, had come out of the link, ns.
    out_ns: i64,
    /// Bytes of its frames on the wire.
    bytes: f64,
    /// Those bytes that were sent again, since they did not come out of the link the first time.
    lost: f64,
    /// Bytes under way after it was sent.
    under_way: i64,
    /// True if the connection had more to send, and neither the receiver's window nor the initial limit
    /// delayed it.
    is_waiting: bool,
}

/// Place of the queue that shows trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    /// The queue is behind the tap of the sender.
    Behind,
    /// The queue is before it.
    Before,
}

/// One part of a train.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Block {
    /// Bytes sent after its first segment.
    bytes: f64,
    /// Time in which they were sent, s.
    sent_s: f64,
    /// Time by which they took longer to come out, s.
    growth_s: f64,
}

impl Block {
    /// Rate at which the block came out, bytes/s.
    fn out(&self) -> f64 {
        self.bytes / (self.sent_s + self.growth_s).max(1e-9)
    }
}

/// Segments of one connection in one direction, from the captures.
#[derive(Default)]
struct Direction {
    /// Sequence number and place in the stream of the newest segment.
    newest: Option<(u32, i64)>,
    /// Payload of a full segment.
    segment: u32,
    /// Segments with their places in the stream.
    sent: Vec<(Sent, Range<i64>)>,
    /// Times of arrivals, each with the end of the bytes that had arrived by then.
    arrived: Vec<(i64, i64)>,
    acked: i64,
    /// Right edge of the receiver's window.
    edge: Option<i64>,
    /// True if the newest segment was a full one, so that more data waited.
    has_more: bool,
}

impl Direction {
    /// The place of a sequence number in the stream.
    fn place(&mut self, seq: u32) -> i64 {
        let (newest, at) = *self.newest.get_or_insert((seq, 0));
        at + i64::from(seq.wrapping_sub(newest) as i32)
    }

    fn sends(&mut self, packet: &Packet) {
        let begin = self.place(packet.seq);
        let end = begin + i64::from(packet.payload);
        self.newest = Some((packet.seq, begin));
        // More data follow the segment, so that it is a full one.
        if packet.wire <= 1514 && packet.flags & PSH == 0 {
            self.segment = self.segment.max(packet.payload);
        }
        let segment = if self.segment > 0 {
            self.segment
        } else {
            SEGMENT
        };
        let header = packet.wire.saturating_sub(packet.payload);
        let frames = packet.payload.div_ceil(segment).max(1);
        let under_way = end - self.acked;
        let has_space = self
            .edge
            .is_none_or(|edge| edge - end >= i64::from(segment));
        let sent = Sent {
            t_ns: packet.t_ns,
            out_ns: i64::MAX,
            bytes: f64::from(packet.payload) + f64::from(header) * f64::from(frames),
            lost: 0.0,
            under_way,
            is_waiting: self.has_more
                && has_space
                && under_way <= AT_ONCE * i64::from(segment) + i64::from(packet.payload),
        };
        self.has_more = packet.flags & PSH == 0 || packet.payload.is_multiple_of(segment);
        self.sent.push((sent, begin..end));
    }

    /// A segment that is sent again was lost the first time.
    fn sends_again(&mut self, packet: &Packet) {
        let begin = self.place(packet.seq);
        let end = begin + i64::from(packet.payload);
        let first = self.sent.partition_point(|(_, place)| place.end <= begin);
        for (sent, place) in &mut self.sent[first..] {
            if place.start >= end {
                break;
            }
            let lost = end.min(place.end) - begin.max(place.start);
            let length = (place.end - place.start).max(1);
            sent.lost = (sent.lost + sent.bytes * lost as f64 / length as f64).min(sent.bytes);
        }
    }

    fn arrives(&mut self, t_ns: i64, end: i64) {
        if self.arrived.last().is_none_or(|(_, last)| end > *last) {
            self.arrived.push((t_ns, end));
        }
    }

    /// The segments with the times at which they came out.
    fn finished(self) -> impl Iterator<Item = Sent> {
        let mut at = 0;
        let Direction { sent, arrived, .. } = self;
        sent.into_iter().filter_map(move |(sent, place)| {
            while arrived.get(at).is_some_and(|(_, until)| *until < place.end) {
                at += 1;
            }
            let out_ns = arrived.get(at)?.0;
            Some(Sent { out_ns, ..sent })
        })
    }
}

/// The segments of an ordered pair, in the order of sending.
fn segments(run: &Run, src: Node, dst: Node) -> Vec<Sent> {
    let mut flows: AHashMap<u32, Direction> = AHashMap::new();
    let both_ends = run.has_both_ends(src, dst);
    for packet in run.stream(src) {
        let is_forth = (packet.src, packet.dst) == (src, dst);
        if is_forth && packet.is_data() {
            flows.entry(packet.flow).or_default().sends(packet);
        } else if is_forth && packet.is_again && packet.payload > 0 {
            if let Some(flow) = flows.get_mut(&packet.flow) {
                flow.sends_again(packet);
            }
        } else if (packet.src, packet.dst) == (dst, src)
            && packet.flags & (ACK | SYN | RST) == ACK
            && let Some(flow) = flows.get_mut(&packet.flow)
        {
            let acked = flow.place(packet.ack);
            flow.acked = flow.acked.max(acked);
            flow.edge = Some(acked + i64::from(packet.window)).filter(|_| packet.window > 0);
            if !both_ends {
                flow.arrives(packet.t_ns, acked);
            }
        }
    }
    if both_ends {
        for packet in run.stream(dst) {
            let is_forth = (packet.src, packet.dst) == (src, dst) && packet.payload > 0;
            if let Some(flow) = flows.get_mut(&packet.flow).filter(|_| is_forth) {
                // The newest segment of the sender is after all others.
                let end = flow.place(packet.seq) + i64::from(packet.payload);
                flow.arrives(packet.t_ns, end);
            }
        }
    }
    let mut all: Vec<Sent> = flows.into_values().flat_map(Direction::finished).collect();
    all.sort_by_key(|sent| sent.t_ns);
    // A segment comes out no earlier than those that came to the link before it.
    let mut out_ns = i64::MIN;
    for sent in &mut all {
        out_ns = out_ns.max(sent.out_ns);
        sent.out_ns = out_ns;
    }
    all
}

/// The trains, as places of their first and last segment. Within each the link was always busy.
fn trains(sent: &[Sent], queue: Queue, has_both_ends: bool) -> Vec<(usize, usize)> {
    let delay = |sent: &Sent| sent.out_ns - sent.t_ns;
    let base_ns = sent.iter().map(delay).min().unwrap_or(0);
    // An acknowledgement may wait for the second segment.
    let before = |k: usize| match has_both_ends {
        true => k.checked_sub(1),
        false => {
            let mut left = 2.0 * f64::from(SEGMENT);
            let mut at = k;
            while left > 0.0 {
                at = at.checked_sub(1)?;
                left -= sent[at].bytes;
            }
            Some(at)
        }
    };
    let is_busy = |k: usize| match queue {
        Queue::Behind => before(k).is_some_and(|b| sent[k].t_ns + base_ns < sent[b].out_ns),
        Queue::Before => sent[k].is_waiting,
    };
    let least_ns = match queue {
        Queue::Behind => TRAIN_NS,
        Queue::Before => UNSEEN_NS,
    };
    let mut found = Vec::new();
    let mut from = 0;
    for k in 1..=sent.len() {
        if k == sent.len() || !is_busy(k) {
            if sent[k - 1].t_ns - sent[from].t_ns >= least_ns {
                found.push((from, k - 1));
            }
            from = k;
        }
    }
    found
}

/// The blocks of the trains.
fn blocks(sent: &[Sent], trains: &[(usize, usize)], queue: Queue) -> Vec<Block> {
    let length = |&(from, to): &(usize, usize)| sent[to].t_ns - sent[from].t_ns;
    let all_ns: i64 = trains.iter().map(length).sum();
    let block_ns = (all_ns / BLOCKS).clamp(*BLOCK_NS.start(), *BLOCK_NS.end());
    let mut found = Vec::new();
    for &(first, last) in trains {
        let mut from = first;
        let (mut bytes, mut lost) = (0.0, 0.0);
        for k in first + 1..=last {
            bytes += sent[k].bytes;
            lost += sent[k].lost;
            let sent_ns = sent[k].t_ns - sent[from].t_ns;
            if sent_ns < block_ns {
                continue;
            }
            // The time at which lost segments would have come out is not known.
            if lost == 0.0 {
                let growth_ns = sent[k].out_ns - sent[from].out_ns - sent_ns;
                found.push(Block {
                    bytes,
                    sent_s: sent_ns as f64 / 1e9,
                    growth_s: match queue {
                        Queue::Behind => growth_ns as f64 / 1e9,
                        Queue::Before => 0.0,
                    },
                });
            }
            (from, bytes, lost) = (k, 0.0, 0.0);
        }
    }
    found
}

/// Rate of the link for all senders together, bytes/s: least and most. Between two segments that came
/// nearly at once there are no segments of others. They come out at a distance of the time that the
/// second takes, or longer by the segments that others sent between the two, which are at most what the
/// link carries in that time.
fn carries(sent: &[Sent], trains: &[(usize, usize)], blocks: &[Block]) -> [f64; 2] {
    let (mut least, mut most) = (Vec::new(), Vec::new());
    for k in trains.iter().flat_map(|&(from, to)| from + 1..=to) {
        let came_ns = (sent[k].t_ns - sent[k - 1].t_ns) as f64;
        let out_ns = (sent[k].out_ns - sent[k - 1].out_ns) as f64;
        if out_ns >= PAIR_NS && came_ns <= NEARLY_AT_ONCE * out_ns {
            least.push(sent[k].bytes / out_ns * 1e9);
            most.push(sent[k].bytes / (out_ns - came_ns) * 1e9);
        }
    }
    let own = blocks.iter().map(Block::out);
    let own = quantile::median(own).unwrap_or(0.0);
    if least.len() < LEAST_PAIRS {
        return [own, own * MOST_OF_OTHERS];
    }
    let at = |rates: Vec<f64>, q: f64| quantile::quantile(&quantile::sorted(rates), q);
    let low = at(least, 0.25).unwrap_or(own).max(own);
    [low, at(most, 0.75).unwrap_or(low).max(low)]
}

/// Rate of the link for all senders together, bytes/s, from blocks that were sent at different rates.
/// Each took the time of its own bytes, and of those that others sent meanwhile, which are assumed to
/// come at one rate. `None` if all were sent at nearly one rate.
fn fitted(blocks: &[&Vec<f64>]) -> Option<f64> {
    // Least squares of out = own / link + others · sent.
    let sum = |of: &dyn Fn(f64, f64, f64) -> f64| {
        let terms = blocks
            .iter()
            .map(|block| of(block[0], block[1], block[1] + block[2]));
        terms.sum::<f64>()
    };
    let (ll, ls, ss) = (
        sum(&|l, _, _| l * l),
        sum(&|l, s, _| l * s),
        sum(&|_, s, _| s * s),
    );
    let (ol, os) = (sum(&|l, _, o| o * l), sum(&|_, s, o| o * s));
    let apart = ll * ss - ls * ls;
    let per_byte = (ol * ss - os * ls) / apart;
    (apart > APART * ll * ss && per_byte > 0.0).then(|| 1.0 / per_byte)
}

/// The bracket from blocks, bytes/s; `None` if there are too few.
fn bracket(blocks: &[Block], carries: [f64; 2]) -> Option<balance::Range> {
    let lasted: f64 = blocks.iter().map(|block| block.sent_s).sum();
    if blocks.len() < LEAST_BLOCKS || lasted < LEAST_NS as f64 / 1e9 {
        return None;
    }
    let parts: Vec<Vec<f64>> = blocks
        .iter()
        .map(|block| vec![block.bytes, block.sent_s, block.growth_s])
        .collect();
    let range = bootstrap::range(&parts, |drawn| {
        let sum = |of: usize| drawn.iter().map(|part| part[of]).sum::<f64>();
        let carries = match fitted(drawn) {
            Some(rate) => [rate.clamp(carries[0], carries[1]); 2],
            None => carries,
        };
        let [a, b] = carries.map(|rate| (sum(0) - rate * sum(2)) / sum(1));
        (a.min(b), a.max(b))
    });
    Some(balance::Range {
        low: (range.low * (1.0 - SLACK)).max(0.0),
        high: range.high * (1.0 + SLACK),
    })
}

/// The highest rate at which segments came out over spans of this length, bytes/s; `None` if all came
/// out in less. The first segment of a span came out before it, and lost bytes do not count.
fn carried(sent: &[Sent], span_ns: i64) -> Option<f64> {
    let (mut from, mut sum) = (0, 0.0);
    let mut most: Option<f64> = None;
    for (at, segment) in sent.iter().enumerate().skip(1) {
        sum += segment.bytes - segment.lost;
        // The shortest span that is long enough and ends here.
        while from + 1 < at && segment.out_ns - sent[from + 1].out_ns >= span_ns {
            from += 1;
            sum -= sent[from].bytes - sent[from].lost;
        }
        let took_ns = segment.out_ns - sent[from].out_ns;
        if took_ns >= span_ns {
            let rate = sum / took_ns as f64 * 1e9;
            most = Some(most.map_or(rate, |most| most.max(rate)));
        }
    }
    most
}

/// Bandwidth of a pair, by its segments.
fn of_pair(src: Node, dst: Node, sent: &[Sent], has_both_ends: bool) -> Available {
    let mut found = Available {
        src,
        dst,
        trains: 0,
        congested: 0,
        at_least: None,
        at_most: None,
        why: None,
    };
    for queue in [Queue::Behind, Queue::Before] {
        let trains = trains(sent, queue, has_both_ends);
        let blocks = blocks(sent, &trains, queue);
        let Some(range) = bracket(&blocks, carries(sent, &trains, &blocks)) else {
            continue;
        };
        found.trains = trains.len();
        let delay = |k: usize| sent[k].out_ns - sent[k].t_ns;
        let grew = |&&(from, to): &&(usize, usize)| delay(to) > delay(from);
        found.congested = trains.iter().filter(grew).count();
        // The sender never had more than the best rate at which its segments came out, since a busy
        // link leaves no more than that.
        let best = carried(sent, *BLOCK_NS.end())
            .unwrap_or_else(|| blocks.iter().map(Block::out).fold(0.0, f64::max))
            * (1.0 + SLACK);
        let middle = (range.low + range.high) / 2.0;
        if range.low > best || range.high <= 0.0 {
            found.why = Some("the trains show a higher rate than the link ever carried".into());
        } else if range.high - middle > WIDEST * middle {
            found.why = Some(format!(
                "the trains differ: {} to {}",
                Cell::BytesPerSecond(range.low).shown(),
                Cell::BytesPerSecond(range.high).shown()
            ));
        } else {
            (found.at_least, found.at_most) = (Some(range.low), Some(range.high.min(best)));
        }
        return found;
    }
    found.at_least = carried(sent, CARRIED_NS);
    found.why = Some("no train kept the link busy for long enough".into());
    found
}

/// Available bandwidth of every pair that sent data and whose sender was captured.
///
/// # Errors
/// When no captured process sent data.
pub fn available_bandwidth(run: &Run) -> Result<Vec<Available>, Unknown> {
    run.need_packets()?;
    let mut pairs = BTreeSet::new();
    for me in run.all().filter(|&me| run.is_own(me)) {
        let sent = run
            .stream(me)
            .filter(|p| p.src == me && p.dst != me && p.is_data());
        pairs.extend(sent.map(|packet| (me, packet.dst)));
    }
    if pairs.is_empty() {
        return Err(Unknown::new("no process that was captured sent data"));
    }
    let of = |(src, dst)| {
        let sent = segments(run, src, dst);
        of_pair(src, dst, &sent, run.has_both_ends(src, dst))
    };
    Ok(pairs.into_iter().map(of).collect())
}

/// Data that a receiver left unread: the right edge of its window stood still, or the window was
/// closed, while data came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Segments with a window of zero.
    pub zero_windows: u64,
    /// Data segments that came while the edge stood still.
    pub while_still: u64,
}

/// Stalled receive windows of every process.
pub fn stalls(run: &Run) -> Vec<Stalls> {
    run.all()
        .map(|me| {
            let mut found = Stalls::default();
            let mut edge: AHashMap<u32, (u32, u64)> = AHashMap::new();
            for packet in run.stream(me) {
                let is_plain = |p: &Packet| p.flags & (SYN | RST) == 0;
                if packet.src == me && is_plain(packet) && packet.flags & ACK != 0 {
                    found.zero_windows += u64::from(packet.window == 0);
                    let right = packet.ack.wrapping_add(packet.window);
                    let (last, waiting) = edge.entry(packet.flow).or_insert((right, 0));
                    if (right.wrapping_sub(*last) as i32) <= 0 && *waiting > 0 {
                        found.while_still += *waiting;
                    }
                    *last = right;
                    *waiting = 0;
                } else if packet.dst == me
                    && packet.is_data()
                    && let Some((_, waiting)) = edge.get_mut(&packet.flow)
                {
                    *waiting += 1;
                }
            }
            found
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Noise, data, run_of};

    /// Segments of 1500 bytes, two at a time, sent at a rate over a link that others use too. The
    /// traffic of others is a fluid.
    fn through(rate: impl Fn(f64) -> f64, seconds: f64, link: f64, others: f64) -> Vec<Sent> {
        let mut noise = Noise(17);
        let (mut t, mut free, mut sent) = (0.0, 0.0f64, Vec::new());
        while t < seconds {
            for gap in [3000.0 / rate(t) * (0.7 + 0.6 * noise.uniform()), 2e-6] {
                t += gap;
                // The bytes that others sent since the last segment are before it.
                free = (free + others * gap / link).max(t) + 1500.0 / link;
                sent.push(Sent {
                    t_ns: (t * 1e9) as i64,
                    out_ns: ((free + 0.001) * 1e9) as i64,
                    bytes: 1500.0,
                    ..Sent::default()
                });
            }
        }
        sent
    }

    /// Links of three rates, with and without others, and trains of two seconds that are faster than
    /// the free bandwidth.
    #[test]
    fn what_is_left_of_a_link_is_found() {
        let mut known = 0;
        for link in [5e6 / 8.0, 20e6 / 8.0, 50e6 / 8.0] {
            for share in [0.0, 0.2, 0.5, 0.8] {
                let free = link * (1.0 - share);
                let rate = |t: f64| {
                    if t % 3.0 < 2.0 {
                        1.2 * free
                    } else {
                        0.2 * free
                    }
                };
                let found = of_pair(0, 1, &through(rate, 12.0, link, link - free), true);
                let Some(high) = found.at_most else {
                    continue;
                };
                known += 1;
                let low = found.at_least.unwrap();
                assert!(low <= free && free <= high, "{free} of {link}: {found:?}");
                assert!(high - low <= 2.0 * WIDEST * free, "{free}: {found:?}");
            }
        }
        assert!(known >= 9, "{known} of 12");
    }

    /// A program that never fills the link shows only the rate that it carried.
    #[test]
    fn an_idle_link_has_no_bracket() {
        let found = of_pair(0, 1, &through(|_| 1e6, 6.0, 6e6, 2e6), true);
        assert_eq!((found.at_most, found.middle()), (None, None));
        let carried = found.at_least.unwrap();
        assert!((carried / 1e6 - 1.0).abs() < 0.1, "{carried}");
        assert!(found.why.is_some());
    }

    /// Blocks that were sent at two rates over a link of 2.5 MB/s, of which others take 1 MB/s.
    #[test]
    fn blocks_of_different_rates_say_what_the_link_carries() {
        let block = |bytes: f64, sent_s: f64| {
            let out_s = (bytes + 1e6 * sent_s) / 2.5e6;
            vec![bytes, sent_s, out_s - sent_s]
        };
        let blocks = [block(400e3, 0.1), block(150e3, 0.1), block(160e3, 0.1)];
        let rate = fitted(&blocks.iter().collect::<Vec<_>>()).unwrap();
        assert!((rate / 2.5e6 - 1.0).abs() < 1e-9, "{rate}");
        let alike = [block(150e3, 0.1), block(300e3, 0.2)];
        assert_eq!(fitted(&alike.iter().collect::<Vec<_>>()), None);
    }

    /// Of six segments the third and fourth are dropped before the link, and arrive when they are sent
    /// again.
    #[test]
    fn lost_segments_did_not_come_out_of_the_link() {
        const MS: i64 = 1_000_000;
        let segment = |seq, t_ns| Packet {
            seq,
            t_ns,
            payload: 1448,
            wire: 1500,
            ..Packet::default()
        };
        let mut direction = Direction::default();
        for k in 0..6 {
            direction.sends(&segment(k * 1448, i64::from(k)));
        }
        for k in [2, 3] {
            direction.sends_again(&segment(k * 1448, 50));
        }
        for (end, t_ns) in [(1, 10), (2, 20), (5, 30), (6, 40)] {
            direction.arrives(t_ns * MS, end * 1448);
        }
        let sent: Vec<Sent> = direction.finished().collect();
        // Bytes after the first segment.
        assert_eq!(carried(&sent, 30 * MS), Some(3.0 * 1500.0 / 0.03));
    }

    /// A damaged trace may give sizes that no network has.
    #[test]
    fn the_largest_sizes_are_no_overflow() {
        let mut direction = Direction::default();
        for (payload, wire) in [(1, 1500), (u32::MAX - 1000, u32::MAX)] {
            direction.sends(&Packet {
                payload,
                wire,
                ..Packet::default()
            });
        }
        assert!(direction.sent[1].0.bytes > 4e12);
    }

    /// Bursts at the speed of memory that a token bucket passes say nothing about the link.
    #[test]
    fn bursts_are_no_bandwidth() {
        let burst = |k: i64| {
            let segment = move |i: i64| Sent {
                t_ns: k * 100_000_000 + i * 1000,
                out_ns: k * 100_000_000 + i * 1000 + 5000,
                bytes: 1500.0,
                ..Sent::default()
            };
            (0..10).map(segment)
        };
        let sent: Vec<Sent> = (0..50).flat_map(burst).collect();
        let found = of_pair(0, 1, &sent, true);
        assert_eq!(found.at_most, None);
        assert!(found.at_least.unwrap() < 200_000.0, "{found:?}");
    }

    /// With a shaper in the sender's own host the delays do not show, but waiting data do.
    #[test]
    fn a_queue_before_the_tap_is_known_from_what_waits() {
        let mut packets = Vec::new();
        for i in 0..2000i64 {
            let mut packet = data(i * 600_000, 0, 1, 1448);
            packet.flags = ACK;
            packet.window = 60_000;
            packets.push(packet);
        }
        let found = available_bandwidth(&run_of(2, &packets)).unwrap();
        let link = 1514.0 / 600e-6;
        let (low, high) = (found[0].at_least.unwrap(), found[0].at_most.unwrap());
        assert!(low <= link && link <= high && high < 1.1 * low, "{found:?}");
        // A program whose segments are all messages of their own sends when it likes.
        for packet in &mut packets {
            packet.payload = 1000;
            packet.flags |= PSH;
        }
        let found = available_bandwidth(&run_of(2, &packets)).unwrap();
        assert_eq!(found[0].at_most, None, "{found:?}");
    }

    #[test]
    fn single_messages_are_no_trains() {
        let packets = [data(0, 0, 1, 10), data(1000, 1, 0, 10)];
        let found = available_bandwidth(&run_of(2, &packets)).unwrap();
        assert!(
            found
                .iter()
                .all(|pair| pair.at_least.is_none() && pair.why.is_some())
        );
        assert!(available_bandwidth(&run_of(2, &[])).is_err());
    }

    #[test]
    fn a_closed_window_is_counted() {
        let mut packets = vec![data(0, 1, 0, 10), data(10, 0, 1, 10)];
        packets.push(data(20, 1, 0, 10));
        let found = stalls(&run_of(2, &packets));
        // Packets made by hand have no window.
        assert!(found[0].zero_windows >= 1);
    }
}
