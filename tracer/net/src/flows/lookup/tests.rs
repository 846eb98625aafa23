use std::num::NonZeroU64;

use flowtrace_schema::{CaptureId, Recorder, Upid, Way};

use super::super::Seen;
use super::*;
use crate::packet::{Parsed, Tcp, tcp};

const CLIENT: &str = "10.0.0.1:1000";
const SERVER: &str = "10.0.0.2:80";
const MS: i64 = 1_000_000;

/// Connections of a client to a server, always from the same port.
struct Table {
    flows: FlowTable,
    t_ns: i64,
    seq: u32,
}

impl Table {
    fn new() -> Table {
        Table {
            flows: FlowTable::new(),
            t_ns: 0,
            seq: 0,
        }
    }

    fn packet(&mut self, ends: (&str, &str), flags: u8, payload_bytes: u32) -> FlowId {
        self.packet_by(Way::Unknown, ends, flags, payload_bytes)
    }

    fn packet_by(
        &mut self,
        way: Way,
        (from, to): (&str, &str),
        flags: u8,
        payload_bytes: u32,
    ) -> FlowId {
        let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
        let parsed = Parsed {
            packet_number: None,
            src: key(from).0,
            dst: key(to).0,
            ports: Some((from.port(), to.port())),
            protocol: TCP,
            payload_bytes,
            marks: 0,
            way,
            tcp: Some(Tcp {
                seq: self.seq,
                flags,
                ..Tcp::default()
            }),
        };
        let seen = Seen {
            capture: CaptureId(1),
            scope: 1,
            t_ns: self.t_ns,
            wire_bytes: payload_bytes + 54,
        };
        self.flows.place(&parsed, seen, &Recorder::nowhere()).flow
    }

    /// A connection that begins after 100 ms without packets.
    fn open(&mut self, payload_bytes: u32) -> FlowId {
        self.t_ns += 100 * MS;
        self.seq += 1000;
        self.packet((CLIENT, SERVER), tcp::SYN, 0);
        self.packet((SERVER, CLIENT), tcp::SYN | tcp::ACK, 0);
        self.packet((CLIENT, SERVER), tcp::ACK, payload_bytes)
    }

    fn close(&mut self) {
        self.packet((CLIENT, SERVER), tcp::FIN | tcp::ACK, 0);
        self.packet((SERVER, CLIENT), tcp::FIN | tcp::ACK, 0);
    }

    /// The flow of a call that took 2 ms until now.
    fn of_unanswered(&self, port: u16, to: &str) -> Option<FlowId> {
        let one = Unanswered {
            upid: Upid(1),
            port,
            to: to.parse().unwrap(),
            from_ns: self.t_ns - 2 * MS,
            to_ns: self.t_ns,
        };
        let (flow, end) = self.flows.of_unanswered(&one)?;
        assert_eq!(end, End::Src);
        Some(flow)
    }

    fn refused(&mut self) -> FlowId {
        self.t_ns += 100 * MS;
        self.seq += 1000;
        let flow = self.packet((CLIENT, SERVER), tcp::SYN, 0);
        self.packet((SERVER, CLIENT), tcp::RST | tcp::ACK, 0);
        flow
    }

    /// The flow of the client's socket `cookie`, which is reported `later_ns` after the last packet.
    fn of(&mut self, cookie: u64, later_ns: i64, sent: Option<u64>) -> Option<FlowId> {
        let ends = (CLIENT.parse().unwrap(), SERVER.parse().unwrap());
        let met = self.met(ends, cookie, later_ns, sent);
        let (flow, end) = self.flows.of_socket(&met)?;
        assert_eq!(end, End::Src);
        Some(flow)
    }

    fn met(
        &self,
        (local, peer): (SocketAddr, SocketAddr),
        cookie: u64,
        later_ns: i64,
        sent: Option<u64>,
    ) -> Met {
        Met {
            protocol: TCP,
            local,
            peer,
            scope: 1,
            t_ns: self.t_ns + later_ns,
            cookie: NonZeroU64::new(cookie),
            closed: sent.map(|sent| TcpInfo {
                bytes_acked: Some(sent),
                ..TcpInfo::default()
            }),
        }
    }
}

#[test]
fn a_socket_that_is_reported_late_keeps_its_connection() {
    let mut table = Table::new();
    let first = table.open(5000);
    assert_eq!(table.of(7, 50 * MS, None), Some(first));
    table.close();
    let second = table.open(10);
    assert_eq!(table.of(7, 10 * MS, Some(5002)), Some(first));
    assert_eq!(table.of(8, 20 * MS, None), Some(second));
    assert_eq!(table.of(8, 30 * MS, Some(12)), Some(second));
    // All ends are taken.
    assert_eq!(table.of(9, 40 * MS, Some(12)), None);
}

#[test]
fn sockets_that_are_met_closed_are_in_the_order_of_their_connections() {
    let mut table = Table::new();
    let flows = [(); 3].map(|()| {
        let flow = table.open(10);
        table.close();
        flow
    });
    for (cookie, flow) in (7..).zip(flows) {
        assert_eq!(table.of(cookie, 30 * MS, Some(12)), Some(flow));
    }
    // The first connection has no report: it cannot have sent the bytes of the second one.
    let mut table = Table::new();
    table.open(10);
    table.close();
    let second = table.open(5000);
    assert_eq!(table.of(8, 10 * MS, Some(5000)), Some(second));
    assert_eq!(table.of(8, 20 * MS, Some(5000)), Some(second));
}

#[test]
fn while_a_connection_begins_its_socket_is_not_known() {
    let mut table = Table::new();
    let first = table.open(10);
    table.close();
    let second = table.open(10);
    assert_eq!(table.of(8, MS, None), None);
    assert_eq!(table.of(8, 6 * MS, None), Some(second));
    assert_eq!(table.of(7, 6 * MS, Some(12)), Some(first));
    // A connection with no other before it is known at once.
    assert_eq!(Table::new().of(7, 0, None), None);
    let mut table = Table::new();
    let only = table.open(10);
    assert_eq!(table.of(7, -MS, None), Some(only));
}

#[test]
fn a_socket_that_was_refused_may_ask_again() {
    let mut table = Table::new();
    let refused = table.refused();
    assert_eq!(table.of(7, MS, None), None);
    let flow = table.open(10);
    assert_ne!(flow, refused);
    assert_eq!(table.of(7, 10 * MS, None), Some(flow));
    assert_eq!(table.of(7, 20 * MS, Some(12)), Some(flow));
    // And the socket that answered is at the connection of the two that it answered.
    let ends = (SERVER.parse().unwrap(), CLIENT.parse().unwrap());
    let met = table.met(ends, 9, 20 * MS, Some(0));
    assert_eq!(table.flows.of_socket(&met), Some((flow, End::Dst)));
}

#[test]
fn a_call_in_vain_has_the_connection_that_began_then() {
    let mut table = Table::new();
    let first = table.refused();
    assert_eq!(table.of_unanswered(1000, SERVER), Some(first));
    assert_eq!(table.of_unanswered(1000, "0.0.0.0:80"), Some(first));
    assert_eq!(table.of_unanswered(1001, SERVER), None);
    assert_eq!(table.of_unanswered(1000, "10.0.0.3:80"), None);
    let second = table.refused();
    assert_eq!(table.of_unanswered(1000, SERVER), Some(second));
    // A connection that was answered belongs to another call.
    table.open(10);
    assert_eq!(table.of_unanswered(1000, SERVER), None);
}

#[test]
fn a_socket_without_a_peer_has_the_flows_that_went_on_since() {
    let mut table = Table::new();
    let flow = table.open(10);
    let local = "0.0.0.0:1000".parse().unwrap();
    let of = |since_ns| table.flows.of_listener(TCP, local, 1, since_ns);
    assert_eq!(of(i64::MIN), [(flow, End::Src)]);
    assert_eq!(of(table.t_ns), [(flow, End::Src)]);
    assert_eq!(of(table.t_ns + 10 * MS), []);
}

#[test]
fn a_socket_bound_to_no_address_is_at_the_end_that_is_on_this_host() {
    let local = "0.0.0.0:5000".parse().unwrap();
    let (here, there) = ("10.0.0.1:5000", "10.0.0.2:5000");
    let found = |ways: &[(Way, (&str, &str))]| {
        let mut table = Table::new();
        for &(way, ends) in ways {
            table.packet_by(way, ends, tcp::ACK, 10);
        }
        table.flows.of_listener(TCP, local, 1, i64::MIN)
    };
    let ends =
        |found: Vec<(FlowId, End)>| found.into_iter().map(|(_, end)| end).collect::<Vec<_>>();
    assert_eq!(ends(found(&[(Way::Out, (here, there))])), [End::Src]);
    assert_eq!(ends(found(&[(Way::In, (there, here))])), [End::Dst]);
    // Nothing says which of them it is.
    assert!(found(&[(Way::Unknown, (here, there))]).is_empty());
    // A request of this host to the port of another one.
    assert!(found(&[(Way::Out, ("10.0.0.1:999", there))]).is_empty());
    // A group has its members on this host, too.
    let group = ("10.0.0.1:999", "224.0.0.9:5000");
    assert_eq!(ends(found(&[(Way::Out, group)])), [End::Dst]);
}
