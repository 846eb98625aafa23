//! The flow of each packet, and the packets of each flow by capture.
//!
//! A flow is one connection over one pair of addresses and ports, however many captures see it.
//! The sequence number of the first SYN distinguishes connections over the same pair: captures of several
//! hosts may show them in any order.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::Ipv6Addr;

use flowtrace_schema::{
    End, FlowId, FlowOptions, FlowRecord, Loss, Packet, Record, Recorder, TcpFields, marks,
};

use super::packet::{Parsed, Tcp, tcp};

mod connection;
mod lookup;
mod seen;
mod socket;

use connection::Connection;
pub(crate) use seen::Seen;
pub use socket::{Met, TCP, TcpInfo, UDP, Unanswered};

/// Limit of address pairs, their connections, and totals by capture, that are followed at once in each of two
/// generations; it bounds the memory of a capture of nothing but new flows (about 100 MB).
const MOST: usize = 3 << 17;
/// Connections over one pair that are followed at once.
const MOST_CONNECTIONS: usize = 32;
/// Larger frames than any network has: several segments in one.
const LARGEST_FRAME: u32 = 9216 + 22;

/// Two endpoints in a fixed order, so that both directions have one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    low: (Ipv6Addr, u32),
    high: (Ipv6Addr, u32),
    protocol: u8,
    /// Distinguishes addresses that mean another interface on each host.
    scope: u32,
}

impl Hash for Pair {
    /// Hashes few large pieces: the derived function hashes each address as a slice with its length.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(self.low.0.to_bits());
        state.write_u128(self.high.0.to_bits());
        state.write_u64(u64::from(self.low.1) << 32 | u64::from(self.high.1));
        state.write_u64(u64::from(self.scope) << 8 | u64::from(self.protocol));
    }
}

/// Connections by their pair. The hash has a random key, for captures may be made to collide, and takes a
/// third of the time of the standard one: every packet is looked up.
type Connections = HashMap<Pair, Vec<Connection>, ahash::RandomState>;

/// All flows that are followed.
#[derive(Debug, Default)]
pub struct FlowTable {
    /// Connections with a packet since the last change of generations.
    young: Connections,
    old: Connections,
    flows: u32,
    /// Connections in `young`, and their totals by capture.
    weight: usize,
    most: usize,
}

impl FlowTable {
    pub(crate) fn new() -> Self {
        FlowTable {
            most: MOST,
            ..FlowTable::default()
        }
    }

    /// Number of flows so far.
    pub fn count(&self) -> u32 {
        self.flows
    }

    /// The packet as it is recorded; a new flow is recorded before its packet.
    pub(crate) fn place(&mut self, parsed: &Parsed, seen: Seen, recorder: &Recorder) -> Packet {
        let (pair, is_from_low) = pair_of(parsed, seen.scope);
        // Looked up once for nearly every packet.
        let connections = match self.young.get_mut(&pair) {
            Some(connections) => connections,
            None => {
                if self.weight >= self.most {
                    self.forget_old(recorder);
                }
                let connections = self.old.remove(&pair).unwrap_or_default();
                self.weight += 1 + connections.iter().map(Connection::weight).sum::<usize>();
                self.young.entry(pair).or_insert(connections)
            }
        };
        let at = match connection::find(connections, parsed, seen.capture, is_from_low) {
            Some(at) => at,
            None => {
                if connections.len() >= MOST_CONNECTIONS {
                    let first = connections.remove(0);
                    self.weight -= first.weight();
                    finish(&first, recorder);
                }
                self.weight += 1;
                self.flows += 1;
                let id = FlowId(self.flows);
                connections.push(begin(id, parsed, seen, is_from_low, recorder));
                connections.len() - 1
            }
        };
        let connection = &mut connections[at];
        let is_back = is_from_low != connection.src_is_low;
        if let Some(tcp) = &parsed.tcp {
            note(connection, tcp, is_back, recorder);
        }
        let before = connection.weight();
        connection.count(seen, is_back, parsed);
        self.weight += connection.weight() - before;
        packet(connection, parsed, seen, is_back)
    }

    /// Records the totals of all flows that are still followed.
    pub(crate) fn finish(&mut self, recorder: &Recorder) {
        for connections in self.old.drain().chain(self.young.drain()) {
            for connection in &connections.1 {
                finish(connection, recorder);
            }
        }
    }

    fn forget_old(&mut self, recorder: &Recorder) {
        let mut forgotten = 0;
        for connection in self.old.drain().flat_map(|(_, connections)| connections) {
            forgotten += u64::from(!connection.is_over());
            finish(&connection, recorder);
        }
        recorder.lost(Loss::FlowsForgotten, forgotten);
        self.old = std::mem::take(&mut self.young);
        self.weight = 0;
    }
}

/// The key of a packet; true if its sender is the first of the two.
fn pair_of(parsed: &Parsed, host: u32) -> (Pair, bool) {
    // No ports is another pair than ports 0.
    let port = |port: Option<u16>| port.map_or(0x1_0000, u32::from);
    let src = (parsed.src, port(parsed.ports.map(|(src, _)| src)));
    let dst = (parsed.dst, port(parsed.ports.map(|(_, dst)| dst)));
    let is_from_low = src <= dst;
    let (low, high) = if is_from_low { (src, dst) } else { (dst, src) };
    let is_local = |address: Ipv6Addr| address.to_canonical().is_loopback();
    let scope = if is_local(parsed.src) || is_local(parsed.dst) {
        host
    } else {
        0
    };
    let pair = Pair {
        low,
        high,
        protocol: parsed.protocol,
        scope,
    };
    (pair, is_from_low)
}

fn begin(
    id: FlowId,
    parsed: &Parsed,
    seen: Seen,
    is_from_low: bool,
    recorder: &Recorder,
) -> Connection {
    // An answer to a SYN that was not seen: the other side asked for the connection.
    let is_answer = parsed
        .tcp
        .is_some_and(|tcp| tcp.is(tcp::SYN) && tcp.is(tcp::ACK));
    let (mut src, mut dst) = parsed.addresses();
    let mut ports = parsed.ports.unzip();
    if is_answer {
        std::mem::swap(&mut src, &mut dst);
        ports = (ports.1, ports.0);
    }
    recorder.record(Record::Flow(Box::new(FlowRecord {
        id,
        capture: seen.capture,
        src,
        sport: ports.0,
        dst,
        dport: ports.1,
        protocol: parsed.protocol,
        first_ns: seen.t_ns,
    })));
    Connection::new(id, is_from_low != is_answer)
}

/// Notes the changes by a SYN, a FIN or an RST.
fn note(connection: &mut Connection, tcp: &Tcp, is_back: bool, recorder: &Recorder) {
    let sender = usize::from(is_back);
    if tcp.is(tcp::RST) {
        connection.ended = [true; 2];
    }
    if tcp.is(tcp::FIN) {
        connection.ended[sender] = true;
    }
    let end = &mut connection.ends[sender];
    if tcp.is(tcp::SYN) && end.first_seq.is_none() {
        end.first_seq = Some(tcp.seq);
        end.syn = tcp.syn;
        recorder.record(Record::FlowOptions(FlowOptions {
            flow: connection.flow,
            end: if is_back { End::Dst } else { End::Src },
            window_scale: tcp.syn.window_scale,
            mss: tcp.syn.mss,
            sack: tcp.syn.sack,
        }));
    }
}

fn finish(connection: &Connection, recorder: &Recorder) {
    for seen in &connection.seen {
        recorder.record(Record::FlowSeen(Box::new(*seen)));
    }
}

fn packet(connection: &Connection, parsed: &Parsed, seen: Seen, is_back: bool) -> Packet {
    let mut packet_marks = parsed.marks;
    let receiver = &connection.ends[usize::from(!is_back)];
    let is_large = match receiver.syn.mss {
        Some(mss) => parsed.payload_bytes > u32::from(mss),
        None => seen.wire_bytes > LARGEST_FRAME,
    };
    if is_large && parsed.tcp.is_some() {
        packet_marks |= marks::SEGMENTS;
    }
    Packet {
        t_ns: seen.t_ns,
        capture: seen.capture,
        flow: connection.flow,
        back: is_back,
        way: parsed.way,
        marks: packet_marks,
        payload_bytes: parsed.payload_bytes,
        wire_bytes: seen.wire_bytes,
        tcp: parsed.tcp.map(|tcp| TcpFields {
            seq: tcp.seq,
            ack: tcp.ack,
            flags: tcp.flags,
            window: u32::from(tcp.window) << connection.shift(&tcp, is_back),
            timestamps: tcp.timestamps,
        }),
    }
}
