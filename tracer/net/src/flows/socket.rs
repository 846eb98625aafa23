//! Sockets whose flows are to be found.

use std::net::SocketAddr;
use std::num::NonZeroU64;

use flowtrace_schema::Upid;

/// Number of TCP among the protocols of IP.
pub const TCP: u8 = 6;
/// Number of UDP.
pub const UDP: u8 = 17;

/// A socket that has a peer, as it was found at one instant.
#[derive(Clone, Copy, Debug)]
pub struct Met {
    /// Number of its protocol.
    pub protocol: u8,
    /// Its own address.
    pub local: SocketAddr,
    /// Address of the other end.
    pub peer: SocketAddr,
    /// Number of its network namespace.
    pub scope: u32,
    /// Time at which it was found, ns since time 0 of the trace.
    pub t_ns: i64,
    /// Number that the kernel gives to this socket alone.
    pub cookie: Option<NonZeroU64>,
    /// Its counters when it was closed, before `t_ns`; `None`: it was open.
    pub closed: Option<TcpInfo>,
}

/// A connection that was asked for without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// Process image that asked.
    pub upid: Upid,
    /// Port that it came from.
    pub port: u16,
    /// Address to which it was to lead.
    pub to: SocketAddr,
    /// Begin of the call, ns since time 0 of the trace.
    pub from_ns: i64,
    /// Return of the call, likewise.
    pub to_ns: i64,
}

/// Counters of `struct tcp_info`; `None`: not measured yet, or the kernel is too old to have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time, ns.
    pub rtt_ns: Option<u64>,
    /// Shortest round-trip time, ns.
    pub min_rtt_ns: Option<u64>,
    /// Segments sent again.
    pub retransmits: Option<u64>,
    /// Time for which the receiver's window limited the connection, ns.
    pub rwnd_limited_ns: Option<u64>,
    /// Time for which the own send buffer limited the connection, ns.
    pub sndbuf_limited_ns: Option<u64>,
    /// Time for which the connection had data to send, ns.
    pub busy_ns: Option<u64>,
    /// Latest delivery rate, bytes a second.
    pub delivery_rate: Option<u64>,
    /// Bytes sent and acknowledged.
    pub bytes_acked: Option<u64>,
    /// Bytes received.
    pub bytes_received: Option<u64>,
}
