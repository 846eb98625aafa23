//! The capture that is nearest to each process.
//!
//! A capture at a host has only that host's packets, so a process's share of the packets in a capture
//! shows its host. Groups of processes without packets between them are treated apart: a host with IPv4
//! and IPv6 has two addresses, each in all packets of its kind. Two processes that only have each other
//! are in all packets of both captures. Then the capture in which a packet appears earlier, relative to
//! the packets of the other direction, is the nearer one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ahash::AHashMap;

use super::data::Capture;
use super::packet::{Node, Packet};

/// Least share of the packets in a host's own capture that the host sent or received, percent.
const OWN_PERCENT: u64 = 98;

/// Two processes, the lower number first.
type Pair = (usize, usize);

/// For each process the capture that is nearest to it, and true if that is its own. The processes of a
/// capture may be known beforehand, else the list is empty.
pub(super) fn nearest(
    nodes: usize,
    captures: &[Capture],
    given: &[Vec<Node>],
) -> Vec<(usize, bool)> {
    let groups: Vec<Vec<Group>> = captures.iter().map(|c| groups(nodes, c)).collect();
    let asked = groups
        .iter()
        .zip(given)
        .filter(|(_, given)| given.is_empty());
    let asked = asked.flat_map(|(groups, _)| groups).filter_map(Group::two);
    let shared = Shared::new(captures, &asked.collect());
    // By capture and process: the packets, and the relation of the capture to the process.
    let mut counts = vec![vec![0; nodes]; captures.len()];
    let mut views = vec![vec![View::Others; nodes]; captures.len()];
    for (at, groups) in groups.iter().enumerate() {
        for group in groups {
            let owner = match (given[at].is_empty(), group.two()) {
                (false, _) => None,
                (true, Some(pair)) => shared.nearer(captures, at, pair),
                (true, None) => group.owner(),
            };
            for (&node, &packets) in &group.packets {
                counts[at][node] = packets;
                views[at][node] = match owner {
                    None if given[at].is_empty() => View::Between,
                    Some(owner) if owner == node => View::Own,
                    _ => View::Others,
                };
            }
        }
        for &node in &given[at] {
            if let Some(view) = views[at].get_mut(usize::from(node)) {
                *view = View::Own;
            }
        }
    }
    let best = |node: usize, of: &dyn Fn(View) -> bool| {
        let seen = (0..captures.len()).filter(|&at| of(views[at][node]));
        seen.max_by_key(|&at| counts[at][node])
    };
    let of_node = |node| {
        let own = best(node, &|view| view == View::Own);
        // A capture between hosts, at a switch or a bridge, is used for all of them.
        let own = own.or_else(|| best(node, &|view| view == View::Between));
        match own {
            Some(own) => (own, true),
            None => (best(node, &|_| true).unwrap_or(usize::MAX), false),
        }
    };
    (0..nodes).map(of_node).collect()
}

/// Relation of a capture to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Own,
    /// A capture of none of the processes in its group.
    Between,
    Others,
}

/// Processes with packets between them in one capture, directly or through others.
#[derive(Debug, Default)]
struct Group {
    /// Number of packets of each process.
    packets: BTreeMap<usize, u64>,
    whole: u64,
}

impl Group {
    /// The processes that are in (nearly) all packets.
    fn owners(&self) -> impl Iterator<Item = usize> {
        let is_in_all = |n: u64| n * 100 >= self.whole * OWN_PERCENT;
        let all = self.packets.iter().filter(move |(_, n)| is_in_all(**n));
        all.map(|(node, _)| *node)
    }

    /// The only process that is in all packets, if there is one.
    fn owner(&self) -> Option<usize> {
        let mut owners = self.owners();
        owners.next().filter(|_| owners.next().is_none())
    }

    /// The two processes that are in all packets, if there are two.
    fn two(&self) -> Option<Pair> {
        let mut owners = self.owners();
        owners.next().zip(owners.next())
    }
}

fn groups(nodes: usize, capture: &Capture) -> Vec<Group> {
    let mut pairs: AHashMap<Pair, u64> = AHashMap::new();
    for packet in &capture.packets {
        *pairs.entry(pair(packet)).or_default() += 1;
    }
    pairs.retain(|&(_, high), _| high < nodes);
    // Each process points to another one of its group, the last one to itself.
    let mut leads: Vec<usize> = (0..nodes).collect();
    for &(a, b) in pairs.keys() {
        let (a, b) = (end(&mut leads, a), end(&mut leads, b));
        leads[a] = b;
    }
    let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
    for ((a, b), packets) in pairs {
        let group = groups.entry(end(&mut leads, a)).or_default();
        group.whole += packets;
        for node in BTreeSet::from([a, b]) {
            *group.packets.entry(node).or_default() += packets;
        }
    }
    groups.into_values().collect()
}

/// The process at the end of the pointers from a process.
fn end(leads: &mut [usize], mut node: usize) -> usize {
    while leads[node] != node {
        leads[node] = leads[leads[node]];
        node = leads[node];
    }
    node
}

fn pair(packet: &Packet) -> Pair {
    let (src, dst) = (usize::from(packet.src), usize::from(packet.dst));
    (src.min(dst), src.max(dst))
}

/// The packets between two processes, by capture, as indices.
struct Shared(HashMap<Pair, BTreeMap<usize, Vec<u32>>>);

impl Shared {
    fn new(captures: &[Capture], pairs: &BTreeSet<Pair>) -> Shared {
        let mut shared: HashMap<Pair, BTreeMap<usize, Vec<u32>>> = HashMap::new();
        for (at, capture) in captures.iter().enumerate().filter(|_| !pairs.is_empty()) {
            for (index, packet) in capture.packets.iter().enumerate() {
                let pair = pair(packet);
                if pairs.contains(&pair) {
                    let captures = shared.entry(pair).or_default();
                    captures.entry(at).or_default().push(index as u32);
                }
            }
        }
        Shared(shared)
    }

    /// The one of two processes that is nearer to a capture in which both have every packet. Another
    /// capture of the same packets is needed; a single one counts as between them.
    fn nearer(&self, captures: &[Capture], at: usize, pair: Pair) -> Option<usize> {
        let places = self.0.get(&pair)?;
        let packets = |at: usize, indices: &'_ [u32]| {
            let all = &captures[at].packets;
            indices.iter().map(|&i| all[i as usize]).collect::<Vec<_>>()
        };
        let key = |p: &Packet| (p.flow, p.src, p.dst, p.seq, p.ack, p.payload, p.flags);
        let mut here: HashMap<_, i64> = HashMap::new();
        for (&other, indices) in places.iter().filter(|(other, _)| **other != at) {
            if here.is_empty() {
                let own = packets(at, places.get(&at)?);
                here = own.iter().map(|p| (key(p), p.t_ns)).collect();
            }
            // Least value of (there - here) by direction. The difference of the two does not depend on
            // the clocks' offset.
            let mut least: [Option<i64>; 2] = [None; 2];
            for packet in packets(other, indices) {
                if let Some(t) = here.get(&key(&packet)) {
                    let delay = packet.t_ns - t;
                    let least = &mut least[usize::from(usize::from(packet.src) != pair.0)];
                    *least = Some(least.map_or(delay, |least| least.min(delay)));
                }
            }
            if let [Some(ab), Some(ba)] = least
                && ab != ba
            {
                return Some(if ab > ba { pair.0 } else { pair.1 });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::ACK;

    /// Captures of `hosts` by which the same packets pass, 1 ms later at the receiver's. Each host has
    /// its own clock.
    fn captures(hosts: usize, pairs: &[(Node, Node)], host: fn(Node) -> usize) -> Vec<Capture> {
        let mut captures = vec![Capture::default(); hosts];
        for (i, &(a, b)) in pairs.iter().enumerate() {
            for (k, (src, dst)) in [(a, b), (b, a)].into_iter().enumerate() {
                let (from, to) = (host(src), host(dst));
                let mut packet = Packet {
                    t_ns: (i * 10 + k * 5) as i64 * 1_000_000 + from as i64 * 777_000_000,
                    seq: 2 * i as u32,
                    flow: (src.min(dst) * 100 + src.max(dst)).into(),
                    src,
                    dst,
                    flags: ACK,
                    ..Packet::default()
                };
                captures[from].packets.push(packet);
                packet.t_ns += 1_000_000 + (to as i64 - from as i64) * 777_000_000;
                captures[to].packets.push(packet);
            }
        }
        captures
    }

    #[test]
    fn a_host_with_two_addresses_has_its_capture_for_both() {
        // Addresses 0 to 2 are of one kind, 3 to 5 of the other.
        let host = |node: Node| usize::from(node % 3);
        let pairs = [(0, 1), (3, 4), (0, 2), (3, 5), (1, 2), (4, 5)].repeat(5);
        let unknown = || vec![Vec::new(); 3];
        let found = nearest(6, &captures(3, &pairs, host), &unknown());
        assert_eq!(found, [0, 1, 2, 0, 1, 2].map(|at| (at, true)));
        // Two hosts alone, so that each address has one partner.
        let host = |node: Node| usize::from(node % 2);
        let pairs = [(0, 1), (2, 3)].repeat(5);
        let found = nearest(4, &captures(2, &pairs, host), &unknown()[..2]);
        assert_eq!(found, [0, 1, 0, 1].map(|at| (at, true)));
    }

    #[test]
    fn a_capture_between_hosts_is_everybodys() {
        let one = captures(1, &[(0, 1), (0, 2), (1, 2)].repeat(5), |_| 0);
        assert_eq!(nearest(4, &one, &[vec![]])[..3], [(0, true); 3]);
        assert_eq!(nearest(4, &one, &[vec![]])[3], (0, false));
        assert_eq!(nearest(2, &[], &[]), [(usize::MAX, false); 2]);
        // The capture of a host is not its partners' own.
        let given = captures(1, &[(0, 1), (0, 2)].repeat(5), |_| 0);
        let found = nearest(3, &given, &[vec![]]);
        assert_eq!(found, [(0, true), (0, false), (0, false)]);
        assert_eq!(nearest(3, &given, &[vec![0]]), found);
        // On loopback it is.
        assert_eq!(nearest(3, &given, &[vec![0, 1, 2]]), [(0, true); 3]);
    }
}
