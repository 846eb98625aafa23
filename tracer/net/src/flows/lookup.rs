//! From a socket to its flow.
//!
//! Connections may use the same pair of addresses and ports one after another, and a report about a socket
//! may come when the next connection has begun: the cookie distinguishes sockets.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use flowtrace_schema::{End, FlowId};

use super::connection::Connection;
use super::socket::{Met, TCP, TcpInfo, Unanswered};
use super::{FlowTable, Pair};

/// Largest time by which a socket may have been found before its first packet: stamps of packets and the time
/// of a reading are not of one instant.
const SLACK_NS: i64 = 5_000_000;
/// Among more flows those of a socket without a peer are not searched.
const MOST_SEARCHED: usize = 1 << 13;

impl FlowTable {
    /// The flow of a connected socket, and the end that the socket is; `None`: there is none, or several are
    /// possible.
    pub fn of_socket(&mut self, met: &Met) -> Option<(FlowId, End)> {
        let (local, peer) = (key(met.local), key(met.peer));
        let is_low = local <= peer;
        let (low, high) = if is_low { (local, peer) } else { (peer, local) };
        let is_local = [low.0, high.0]
            .iter()
            .any(|a| a.to_canonical().is_loopback());
        let pair = Pair {
            low,
            high,
            protocol: met.protocol,
            scope: if is_local { met.scope } else { 0 },
        };
        let connections = match self.young.get_mut(&pair) {
            Some(connections) => connections,
            None => self.old.get_mut(&pair)?,
        };
        let at = which(connections, met, is_low)?;
        let connection = &mut connections[at];
        let at = connection.at(is_low);
        connection.ends[at].socket = met.cookie;
        Some((connection.flow, connection.end(is_low)))
    }

    /// The flow of a connection that was asked for without an answer; `None`: there is none, or several are
    /// possible.
    pub fn of_unanswered(&self, one: &Unanswered) -> Option<(FlowId, End)> {
        if self.young.len() + self.old.len() > MOST_SEARCHED {
            return None;
        }
        let (peer, port) = (key(one.to), u32::from(one.port));
        let is_any = one.to.ip().is_unspecified();
        let is_to = |end: (Ipv6Addr, u32)| end.1 == peer.1 && (is_any || end.0 == peer.0);
        let called = one.from_ns - SLACK_NS..=one.to_ns + SLACK_NS;
        let mut found = Vec::new();
        for (pair, connections) in self.young.iter().chain(&self.old) {
            for (from, to, is_low) in [(pair.low, pair.high, true), (pair.high, pair.low, false)] {
                if pair.protocol != TCP || from.1 != port || !is_to(to) {
                    continue;
                }
                let asked = connections.iter().filter(|c| {
                    let at = c.at(is_low);
                    let has_asked = [at, 1 - at].map(|at| c.ends[at].first_seq.is_some());
                    let begun = c.first_ns().is_some_and(|first| called.contains(&first));
                    has_asked == [true, false] && begun
                });
                found.extend(asked.map(|c| (c.flow, c.end(is_low))));
            }
        }
        match found[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    /// The flows of a socket that receives from anybody, or sends to anybody, as far as they went on after
    /// `since_ns`.
    pub fn of_listener(
        &self,
        protocol: u8,
        local: SocketAddr,
        scope: u32,
        since_ns: i64,
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
            let since_ns = since_ns.saturating_sub(SLACK_NS);
            for connection in connections {
                let is_it = |is_low: bool| {
                    let end = if is_low { pair.low } else { pair.high };
                    is_at(end) && (!is_any || connection.may_be_here(is_low))
                };
                // Both ends have this port and are on this host: nothing says which end is meant.
                let (low, high) = (is_it(true), is_it(false));
                if low != high && connection.last_ns() >= Some(since_ns) {
                    found.push((connection.flow, connection.end(low)));
                }
            }
        }
        found
    }
}

/// Index of the connection over one pair of which a socket is an end.
fn which(connections: &[Connection], met: &Met, is_low: bool) -> Option<usize> {
    if met.protocol != TCP {
        return connections.len().checked_sub(1);
    }
    let sockets = |c: &Connection| c.ends[c.at(is_low)].socket;
    let known = |c: &Connection| met.cookie.is_some() && sockets(c) == met.cookie;
    // A socket whose connection was refused may ask again.
    let is_known = |c: &Connection| known(c) && !c.is_refused();
    if let Some(at) = connections.iter().rposition(is_known) {
        return Some(at);
    }
    // Any other socket at that end belongs to another connection.
    let may_be = |c: &Connection| {
        let begun = c
            .first_ns()
            .is_some_and(|first| first <= met.t_ns + SLACK_NS);
        begun && !c.is_refused() && (known(c) || sockets(c).is_none())
    };
    let mut all = (0..connections.len()).filter(|at| may_be(&connections[*at]));
    let Some(info) = met.closed else {
        // No two open connections have the same addresses: it is the last one, which must not have begun
        // during the reading.
        let (last, others) = (all.next_back()?, all.next_back());
        let begun_ns = connections[last].first_ns()?;
        return (others.is_none() || begun_ns <= met.t_ns - SLACK_NS).then_some(last);
    };
    let first = all.next()?;
    if all.next().is_none() {
        return Some(first);
    }
    // They are closed one after another, but a connection without an answer has no end.
    (first..connections.len()).find(|at| {
        let connection = &connections[*at];
        may_be(connection) && connection.may_have_moved(&info, is_low)
    })
}

impl Connection {
    /// Index of the end that is the first of the pair, or of the other one.
    fn at(&self, is_low: bool) -> usize {
        usize::from(is_low != self.src_is_low)
    }

    /// True if it was asked for without an answer.
    fn is_refused(&self) -> bool {
        let [src, dst] = self.ends.map(|end| end.first_seq.is_some());
        src != dst && self.is_over()
    }

    /// True if the socket at an end may have sent and received the bytes of its counters (a SYN and a FIN
    /// count as one byte each).
    fn may_have_moved(&self, info: &TcpInfo, is_low: bool) -> bool {
        let at = self.at(is_low);
        let bytes = |way: usize| self.seen.iter().map(|seen| seen.bytes[way]).max();
        let fits = |counted: Option<u64>, way| counted <= bytes(way).map(|bytes| bytes + 2);
        fits(info.bytes_acked, at) && fits(info.bytes_received, 1 - at)
    }

    /// The first packet that any capture saw.
    fn first_ns(&self) -> Option<i64> {
        self.seen.iter().map(|seen| seen.first_ns).min()
    }

    /// The last packet.
    fn last_ns(&self) -> Option<i64> {
        self.seen.iter().map(|seen| seen.last_ns).max()
    }

    /// True if that end is on the host of the captures; if their packets do not show which end is, either may
    /// be.
    fn may_be_here(&self, is_low: bool) -> bool {
        let is_local = |at: usize| self.seen.iter().any(|seen| seen.local[at]);
        let at = self.at(is_low);
        is_local(at) || !is_local(1 - at)
    }

    fn end(&self, is_low: bool) -> End {
        [End::Src, End::Dst][self.at(is_low)]
    }
}

fn key(address: SocketAddr) -> (Ipv6Addr, u32) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    (ip, address.port().into())
}

#[cfg(test)]
mod tests;
