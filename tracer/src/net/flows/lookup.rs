//! From a socket to its flow.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use flowtrace_schema::{End, FlowId};

use super::{Connection, FlowTable, Pair};

/// How much earlier than its first packet a socket may have been asked about: stamps of packets
/// and the time of a look are not of one moment.
const SLACK_NS: i64 = 5_000_000;
/// Among more flows those of a socket without a peer are not looked for.
const MOST_SEARCHED: usize = 1 << 13;

impl FlowTable {
    /// The flow of a connected socket at `t_ns`, and the end that the socket is.
    pub(crate) fn of_socket(
        &self,
        protocol: u8,
        (local, peer): (SocketAddr, SocketAddr),
        scope: u32,
        t_ns: i64,
    ) -> Option<(FlowId, End)> {
        let (local, peer) = (key(local), key(peer));
        let is_low = local <= peer;
        let (low, high) = if is_low { (local, peer) } else { (peer, local) };
        let is_local = [low.0, high.0]
            .iter()
            .any(|a| a.to_canonical().is_loopback());
        let pair = Pair {
            low,
            high,
            protocol,
            scope: if is_local { scope } else { 0 },
        };
        let connections = self.young.get(&pair).or_else(|| self.old.get(&pair))?;
        let begun = |c: &&Connection| c.first_ns().is_some_and(|first| first <= t_ns + SLACK_NS);
        let connection = connections.iter().rev().find(begun)?;
        Some((connection.flow, connection.end(is_low)))
    }

    /// The flows of a socket that takes what anybody sends to it.
    pub(crate) fn of_listener(
        &self,
        protocol: u8,
        local: SocketAddr,
        scope: u32,
    ) -> Vec<(FlowId, End)> {
        if self.young.len() + self.old.len() > MOST_SEARCHED {
            return Vec::new();
        }
        let (address, port) = key(local);
        let is_any = address.to_canonical().is_unspecified();
        let is_at = |end: (Ipv6Addr, u32)| end.1 == port && (is_any || end.0 == address);
        let mut found = Vec::new();
        for (pair, connections) in self.young.iter().chain(&self.old) {
            if pair.protocol != protocol || ![0, scope].contains(&pair.scope) {
                continue;
            }
            // With both ends at this port, which is meant cannot be told.
            let (low, high) = (is_at(pair.low), is_at(pair.high));
            if low != high {
                found.extend(connections.iter().map(|c| (c.flow, c.end(low))));
            }
        }
        found
    }
}

impl Connection {
    /// The first packet that any capture saw.
    fn first_ns(&self) -> Option<i64> {
        self.seen.iter().map(|seen| seen.first_ns).min()
    }

    fn end(&self, is_low: bool) -> End {
        if is_low == self.src_is_low {
            End::Src
        } else {
            End::Dst
        }
    }
}

fn key(address: SocketAddr) -> (Ipv6Addr, u32) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    (ip, address.port().into())
}
