//! Finds the packets that two captures have in common.

use std::collections::HashMap;

use flowtrace_schema::{FlowCaptureRow, FlowRow, PacketRow};

use super::pair::{Fit, Ways, fit};

/// Number of packets that may wait for their counterpart. Many wait when clocks differ much, or when
/// one of the captures lost packets. The oldest half is then given up.
const MOST_WAITING: usize = 1 << 20;

/// The fields of a packet that are the same in every capture.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    flow: i64,
    dir: u8,
    flags: u8,
    seq: u32,
    ack: u32,
    payload_bytes: u32,
}

/// The sightings of packets with equal keys. Equal packets are matched in their order.
#[derive(Default)]
struct Waiting {
    sightings: Vec<(i64, f64)>,
    number: u64,
}

/// A flow that captures of two or more hosts saw.
struct Shared {
    captures: Vec<i64>,
    /// The two addresses in a fixed order.
    addresses: u32,
    is_turned: bool,
}

/// Finds the packets that captures of two hosts saw.
pub(super) struct Matcher {
    flows: HashMap<i64, Shared>,
    host_of: HashMap<i64, i64>,
    waiting: HashMap<Key, Waiting>,
    next: u64,
    /// Differences by two hosts and pair of addresses.
    pairs: HashMap<(i64, i64, u32), Ways>,
}

impl Matcher {
    pub(super) fn new(
        seen: &[FlowCaptureRow],
        flows: &[FlowRow],
        host_of: &HashMap<i64, i64>,
    ) -> Self {
        let mut captures: HashMap<i64, Vec<i64>> = HashMap::new();
        for row in seen {
            captures
                .entry(row.flow_id)
                .or_default()
                .push(row.capture_id);
        }
        let mut addresses: HashMap<(&str, &str), u32> = HashMap::new();
        let mut shared = HashMap::new();
        for flow in flows {
            let Some(captures) = captures.remove(&flow.flow_id) else {
                continue;
            };
            let host = |capture: &i64| host_of.get(capture);
            if flow.proto != "tcp" || captures.iter().all(|c| host(c) == host(&captures[0])) {
                continue;
            }
            let is_turned = flow.src > flow.dst;
            let pair = match is_turned {
                true => (flow.dst.as_str(), flow.src.as_str()),
                false => (flow.src.as_str(), flow.dst.as_str()),
            };
            let next = addresses.len() as u32;
            let flow_of = Shared {
                captures,
                addresses: *addresses.entry(pair).or_insert(next),
                is_turned,
            };
            shared.insert(flow.flow_id, flow_of);
        }
        Matcher {
            flows: shared,
            host_of: host_of.clone(),
            waiting: HashMap::new(),
            next: 0,
            pairs: HashMap::new(),
        }
    }

    pub(super) fn packet(&mut self, packet: &PacketRow) {
        let Some(flow) = self.flows.get(&packet.flow_id) else {
            return;
        };
        let (Some(seq), Some(ack), Some(flags)) = (packet.seq, packet.ack, packet.flags) else {
            return;
        };
        let key = Key {
            flow: packet.flow_id,
            dir: packet.dir,
            flags,
            seq,
            ack,
            payload_bytes: packet.payload_bytes,
        };
        self.next += 1;
        let number = self.next;
        let t_ns = packet.t_ns as f64;
        let waiting = self.waiting.entry(key).or_insert_with(|| Waiting {
            number,
            ..Waiting::default()
        });
        let here = packet.capture_id;
        let nth = waiting.sightings.iter().filter(|s| s.0 == here).count();
        for &other in flow.captures.iter().filter(|&&other| other != here) {
            let (Some(&a), Some(&b)) = (self.host_of.get(&here), self.host_of.get(&other)) else {
                continue;
            };
            let mut same = waiting.sightings.iter().filter(|s| s.0 == other);
            if let (Some(&(_, there_ns)), true) = (same.nth(nth), a != b) {
                let direction = usize::from((packet.dir == 1) != flow.is_turned);
                let (hosts, times) = match a < b {
                    true => ((a, b), (t_ns, there_ns)),
                    false => ((b, a), (there_ns, t_ns)),
                };
                let ways = self
                    .pairs
                    .entry((hosts.0, hosts.1, flow.addresses))
                    .or_default();
                // +1 for a packet sent by the host with the lower number, in the direction from the
                // lower address.
                let sent = match packet.way {
                    1 => 1,
                    2 => -1,
                    _ => 0,
                };
                let sign = if (a < b) == (direction == 0) { 1 } else { -1 };
                ways.reported += sent * sign;
                ways.add(direction, times.0, times.1);
            }
        }
        waiting.sightings.push((here, t_ns));
        let all = flow.captures.len();
        let is_complete = waiting.sightings.len().is_multiple_of(all)
            && flow.captures.iter().all(|&capture| {
                let seen = waiting.sightings.iter().filter(|s| s.0 == capture);
                seen.count() == waiting.sightings.len() / all
            });
        if is_complete {
            self.waiting.remove(&key);
        } else if self.waiting.len() > MOST_WAITING {
            let until = number - MOST_WAITING as u64 / 2;
            self.waiting.retain(|_, waiting| waiting.number > until);
        }
    }

    /// The fitted clocks by pairs of hosts.
    pub(super) fn fits(self) -> Vec<((i64, i64), Fit)> {
        let mut hosts: Vec<_> = self.pairs.keys().map(|&(a, b, _)| (a, b)).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let fits = hosts.into_iter().filter_map(|(a, b)| {
            let own = self
                .pairs
                .iter()
                .filter(|(key, _)| (key.0, key.1) == (a, b));
            Some(((a, b), fit(own.map(|(_, ways)| ways))?))
        });
        fits.collect()
    }
}
