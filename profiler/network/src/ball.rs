//! Ball in the court (chapter 4): the time that each process kept the next message waiting.

use std::collections::BTreeMap;

use super::matrix::Matrix;
use super::run::{Node, Packet, RST, Run, Unknown};

/// Kind of a packet, seen from the process whose stream it is in (4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Received acknowledgement.
    RA,
    /// Received payload.
    RP,
    /// Sent acknowledgement.
    SA,
    /// Sent payload.
    SP,
}

impl Kind {
    /// All kinds, in the order of declaration.
    const ALL: [Kind; 4] = [Kind::RA, Kind::RP, Kind::SA, Kind::SP];

    /// True if the process sent the packet.
    pub fn is_send(self) -> bool {
        matches!(self, Kind::SA | Kind::SP)
    }

    /// Name of the kind in the text.
    pub fn name(self) -> &'static str {
        match self {
            Kind::RA => "RA",
            Kind::RP => "RP",
            Kind::SA => "SA",
            Kind::SP => "SP",
        }
    }
}

/// One packet of a process: time, kind, the other process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time, ns.
    pub t_ns: i64,
    /// Kind.
    pub kind: Kind,
    /// The other process.
    pub peer: Node,
}

/// Sum of gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Sum of the gaps, ns.
    pub ns: i64,
    /// Number of gaps.
    pub gaps: u64,
}

impl Total {
    fn add(&mut self, ns: i64) {
        self.ns += ns;
        self.gaps += 1;
    }
}

/// The delays of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Time of the first and the last record, ns.
    pub span_ns: (i64, i64),
    /// Gaps for which the process is responsible.
    pub total: Total,
    /// The same gaps by the process that waited, which is the recipient of the send.
    pub by_peer: BTreeMap<Node, Total>,
    /// All gaps by pair of records, also those for which the process is not responsible.
    pub by_pair: BTreeMap<(Kind, Kind), Total>,
    /// Gaps for which the process is responsible, by pair of records and peer.
    pub by_both: BTreeMap<(Kind, Kind, Node), Total>,
    /// Gaps before the process's own data, ignoring pure acknowledgements: the kernel acknowledges
    /// promptly even for a process that does not run.
    pub data: Total,
}

/// Kind of a packet for a process; `None` if the packet is not the process's, or says nothing about it
/// (RST).
pub fn kind(packet: &Packet, me: Node) -> Option<Kind> {
    if packet.flags & RST != 0 || packet.src == packet.dst {
        return None;
    }
    let is_payload = packet.payload > 0;
    match (packet.src == me, packet.dst == me) {
        (true, _) => Some(if is_payload { Kind::SP } else { Kind::SA }),
        (_, true) => Some(if is_payload { Kind::RP } else { Kind::RA }),
        _ => None,
    }
}

/// The records of a process. A segment with payload that carries an acknowledgement is a payload,
/// as in tables 4.1 and 4.2.
pub fn records(run: &Run, me: Node) -> impl Iterator<Item = Record> {
    run.stream(me).filter_map(move |packet| {
        Some(Record {
            t_ns: packet.t_ns,
            kind: kind(packet, me)?,
            peer: if packet.src == me {
                packet.dst
            } else {
                packet.src
            },
        })
    })
}

/// Sums the gaps between records, given in the order of time. A gap that ends with a send is the
/// process's own: the ball was in its court.
pub fn delays(records: impl IntoIterator<Item = Record>) -> Delays {
    let mut delays = Delays::default();
    // Gaps by the kinds of both records: all of them, and those that end with a send by receiver.
    let mut pairs = Pairs::default();
    let mut sends: Vec<Pairs> = Vec::new();
    let mut last: Option<Record> = None;
    let mut last_data: Option<i64> = None;
    for record in records {
        if let Some(before) = last {
            let gap = record.t_ns - before.t_ns;
            let (from, to) = (before.kind as usize, record.kind as usize);
            pairs[from][to].add(gap);
            if record.kind.is_send() {
                delays.total.add(gap);
                let peer = usize::from(record.peer);
                if sends.len() <= peer {
                    sends.resize(peer + 1, Pairs::default());
                }
                sends[peer][from][to].add(gap);
            }
        } else {
            delays.span_ns.0 = record.t_ns;
        }
        if let (Kind::SP, Some(before)) = (record.kind, last_data) {
            delays.data.add(record.t_ns - before);
        }
        if matches!(record.kind, Kind::SP | Kind::RP) {
            last_data = Some(record.t_ns);
        }
        delays.span_ns.1 = record.t_ns;
        last = Some(record);
    }
    delays.by_pair.extend(seen(&pairs));
    for (peer, pairs) in sends.iter().enumerate() {
        let peer = peer as Node;
        for ((from, to), total) in seen(pairs) {
            delays.by_both.insert((from, to, peer), total);
            let of_peer = delays.by_peer.entry(peer).or_default();
            of_peer.ns += total.ns;
            of_peer.gaps += total.gaps;
        }
    }
    delays
}

/// Sums by the kinds of two records in sequence.
type Pairs = [[Total; Kind::ALL.len()]; Kind::ALL.len()];

/// The pairs of kinds that occur.
fn seen(pairs: &Pairs) -> impl Iterator<Item = ((Kind, Kind), Total)> {
    let all = Kind::ALL.into_iter();
    let all = all.flat_map(|from| Kind::ALL.into_iter().map(move |to| (from, to)));
    all.map(|(from, to)| ((from, to), pairs[from as usize][to as usize]))
        .filter(|(_, total)| total.gaps > 0)
}

/// True if a process is responsible for any gap.
pub fn is_waited_for(run: &Run, me: Node) -> bool {
    let mut before = i64::MAX;
    records(run, me).any(|record| {
        let gap_ends = record.t_ns > before;
        before = record.t_ns;
        gap_ends && record.kind.is_send()
    })
}

/// The delays of every process.
///
/// # Errors
/// When the interval holds no packet.
pub fn all(run: &Run) -> Result<Vec<Delays>, Unknown> {
    run.need_packets()?;
    Ok(run.all().map(|me| delays(records(run, me))).collect())
}

/// The table of delays in seconds, row towards column.
pub fn table(delays: &[Delays]) -> Matrix<f64> {
    let mut table = Matrix::new(delays.len());
    for (me, delays) in delays.iter().enumerate() {
        for (&peer, total) in &delays.by_peer {
            *table.at_mut(me, usize::from(peer)) = total.ns as f64 / 1e9;
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KINDS: [&str; 12] = [
        "RP", "SA", "SP", "SP", "RA", "RP", "RP", "SA", "SP", "SP", "RA", "RP",
    ];
    const PEERS: [Node; 12] = [173, 173, 172, 172, 172, 172, 172, 172, 175, 175, 175, 175];

    fn excerpt(fractions: [i64; 12]) -> Delays {
        let kind = |name| match name {
            "RA" => Kind::RA,
            "RP" => Kind::RP,
            "SA" => Kind::SA,
            _ => Kind::SP,
        };
        delays((0..12).map(|i| Record {
            t_ns: fractions[i] * 1000,
            kind: kind(KINDS[i]),
            peer: PEERS[i],
        }))
    }

    /// Tables 4.1 and 4.2, process .176. (Table 4.1 prints 497 µs where the times give 397.)
    #[test]
    fn the_excerpts_have_their_sums() {
        use Kind::{RA, RP, SA, SP};
        let none = excerpt([
            763595, 763659, 769566, 769567, 769964, 775789, 776001, 776073, 781934, 781955, 782320,
            788203,
        ]);
        let loaded = excerpt([
            385764, 409586, 415445, 415467, 415845, 421760, 421944, 445565, 451530, 451558, 451932,
            457419,
        ]);
        for (delays, pairs, bic, peers, span) in [
            (
                none,
                [
                    (RP, SA, 136),
                    (SA, SP, 11768),
                    (SP, SP, 22),
                    (SP, RA, 762),
                    (RA, RP, 11708),
                    (RP, RP, 212),
                ],
                11926,
                [(173, 64), (172, 5980), (175, 5882)],
                24608,
            ),
            (
                loaded,
                [
                    (RP, SA, 47443),
                    (SA, SP, 11824),
                    (SP, SP, 50),
                    (SP, RA, 752),
                    (RA, RP, 11402),
                    (RP, RP, 184),
                ],
                59317,
                [(173, 23822), (172, 29502), (175, 5993)],
                71655,
            ),
        ] {
            for (from, to, us) in pairs {
                assert_eq!(delays.by_pair[&(from, to)].ns, us * 1000, "{from:?}-{to:?}");
            }
            assert_eq!(delays.total.ns, bic * 1000);
            for (peer, us) in peers {
                assert_eq!(delays.by_peer[&peer].ns, us * 1000, "to {peer}");
            }
            assert_eq!(delays.span_ns.1 - delays.span_ns.0, span * 1000);
        }
    }

    proptest! {
        #[test]
        fn gaps_add_up(steps in proptest::collection::vec((0i64..1_000_000, 0u8..4, 0u16..4), 0..200)) {
            let mut t_ns = 0;
            let records: Vec<Record> = steps.iter().map(|&(gap, kind, peer)| {
                t_ns += gap;
                let kind = [Kind::RA, Kind::RP, Kind::SA, Kind::SP][usize::from(kind)];
                Record { t_ns, kind, peer }
            }).collect();
            let delays = delays(records.iter().copied());
            let all: i64 = delays.by_pair.values().map(|total| total.ns).sum();
            prop_assert_eq!(all, delays.span_ns.1 - delays.span_ns.0);
            let peers: i64 = delays.by_peer.values().map(|total| total.ns).sum();
            prop_assert_eq!(peers, delays.total.ns);
            let own: i64 = delays.by_pair.iter().filter(|((_, to), _)| to.is_send()).map(|(_, t)| t.ns).sum();
            prop_assert_eq!(own, delays.total.ns);
            let both: i64 = delays.by_both.values().map(|total| total.ns).sum();
            prop_assert_eq!(both, delays.total.ns);
        }
    }

    /// Section 3.6b: both processes compute, then both send. The fast peer's data splits the slow one's
    /// gap, so that the sums are equal and the method sees no load. `slowdown` must see it.
    #[test]
    fn symmetric_exchange_hides_the_load() {
        let mut packets = Vec::new();
        const S: i64 = 1_000_000_000;
        for step in 0..100 {
            let begin = step * 2 * S;
            packets.push(crate::testing::data(begin + S, 0, 1, 100));
            packets.push(crate::testing::data(begin + 2 * S, 1, 0, 100));
        }
        let run = crate::testing::run_of(2, &packets);
        let delays = all(&run).unwrap();
        let seconds = |node: usize| delays[node].total.ns / S;
        assert_eq!((seconds(0), seconds(1)), (99, 100));
    }
}
