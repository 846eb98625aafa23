//! Records of packets: captures, flows, their owners, and the packets themselves.

use serde::{Deserialize, Serialize};

use crate::{CaptureId, FlowId, HostId, Text, Upid};

/// Origin of the packets of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CaptureSource {
    /// From the kernel, by flowtrace itself.
    Ring,
    /// From a file that another program wrote.
    File,
}

impl CaptureSource {
    /// Name stored in the database.
    pub const fn name(self) -> &'static str {
        match self {
            CaptureSource::Ring => "ring",
            CaptureSource::File => "file",
        }
    }
}

/// A place where packets are captured (table `capture`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaptureRecord {
    /// Its id.
    pub id: CaptureId,
    /// Machine whose clock gives the times.
    pub host: HostId,
    /// Interface, or name of the file.
    pub interface: String,
    /// Origin of the packets.
    pub source: CaptureSource,
    /// Path of the file.
    pub file: Option<Text>,
    /// LINKTYPE_ number of tcpdump.org.
    pub link_type: Option<u16>,
    /// Inode of the network namespace.
    pub namespace: Option<u64>,
    /// Bytes kept of each packet.
    pub snap_length: Option<u32>,
    /// Begin of the covered time, if it is known already.
    pub from_ns: Option<i64>,
}

/// The end of a capture. A record with the id of an earlier one replaces it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CaptureEnd {
    /// The capture.
    pub id: CaptureId,
    /// Begin of the covered time.
    pub from_ns: Option<i64>,
    /// End of the covered time.
    pub to_ns: Option<i64>,
    /// Packets that the kernel saw, dropped ones included.
    pub received: Option<u64>,
    /// Packets of these that the kernel dropped.
    pub dropped: Option<u64>,
    /// Packets that flowtrace took from the kernel and could not store.
    pub unstored: u64,
    /// Frames that are no packets of IP, or cannot be read.
    pub ignored: u64,
}

/// A flow is seen for the first time (table `flow`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Its id.
    pub id: FlowId,
    /// Capture that saw it first.
    pub capture: CaptureId,
    /// Address of the side that spoke first.
    pub src: std::net::IpAddr,
    /// Its port.
    pub sport: Option<u16>,
    /// Address of the other side.
    pub dst: std::net::IpAddr,
    /// Its port.
    pub dport: Option<u16>,
    /// Protocol number of IP.
    pub protocol: u8,
    /// Time of the first packet, by the clock of the capture's host.
    pub first_ns: i64,
}

/// One of the two ends of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum End {
    /// The side that spoke first.
    Src,
    /// The other.
    Dst,
}

impl End {
    /// Name stored in the database.
    pub const fn name(self) -> &'static str {
        match self {
            End::Src => "src",
            End::Dst => "dst",
        }
    }
}

/// Options that one end of a TCP connection announced in its SYN.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FlowOptions {
    /// The flow.
    pub flow: FlowId,
    /// The end that sent the SYN.
    pub end: End,
    /// Shift of its window.
    pub window_scale: Option<u8>,
    /// Largest segment that it takes.
    pub mss: Option<u16>,
    /// True if it allows selective acknowledgements.
    pub sack: bool,
}

/// The packets of one flow that one capture saw (table `flow_capture`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowSeen {
    /// The flow.
    pub flow: FlowId,
    /// The capture.
    pub capture: CaptureId,
    /// First packet.
    pub first_ns: i64,
    /// Last packet.
    pub last_ns: i64,
    /// Packets from src to dst, and back.
    pub packets: [u64; 2],
    /// Their payload.
    pub bytes: [u64; 2],
    /// True if src, and dst, are known to be on the capture's host.
    pub local: [bool; 2],
}

/// Evidence for the owner of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Evidence {
    /// Its system calls.
    Calls,
    /// Its open descriptors.
    Descriptors,
}

impl Evidence {
    /// Name stored in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Evidence::Calls => "calls",
            Evidence::Descriptors => "descriptors",
        }
    }
}

/// A process image at one end of a flow (table `flow_owner`).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FlowOwner {
    /// Number of the row; another record with this number replaces it.
    pub row: u32,
    /// The flow.
    pub flow: FlowId,
    /// The end.
    pub end: End,
    /// Process image.
    pub upid: Upid,
    /// Begin, at the latest.
    pub from_ns: Option<i64>,
    /// End, at the earliest; `None`: the end of the flow.
    pub to_ns: Option<i64>,
    /// Evidence for the owner.
    pub evidence: Evidence,
}

/// The addresses of an end of a channel that is a socket (table `socket_end`).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SocketEnd {
    /// Row of `channel_end`.
    pub end: u32,
    /// UDP; otherwise TCP.
    pub is_udp: bool,
    /// Its own address.
    pub local: std::net::SocketAddr,
    /// Address of the other end; `None`: any.
    pub peer: Option<std::net::SocketAddr>,
}

/// State of a TCP connection at one instant, as the kernel reports it (table `flow_sample`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowSample {
    /// Time of the sample.
    pub t_ns: i64,
    /// The flow.
    pub flow: FlowId,
    /// The end whose kernel was asked.
    pub end: End,
    /// Smoothed round trip time.
    pub rtt_ns: Option<u64>,
    /// Smallest recent round trip time.
    pub min_rtt_ns: Option<u64>,
    /// Segments sent again, in all.
    pub retransmits: Option<u64>,
    /// Time limited by the receiver's window.
    pub rwnd_limited_ns: Option<u64>,
    /// Time limited by the send buffer.
    pub sndbuf_limited_ns: Option<u64>,
    /// Time with data in flight.
    pub busy_ns: Option<u64>,
    /// Recent rate of arrival, bytes a second.
    pub delivery_rate: Option<u64>,
    /// Payload sent and acknowledged.
    pub bytes_acked: Option<u64>,
    /// Payload received.
    pub bytes_received: Option<u64>,
    /// Congestion control.
    pub congestion: Option<String>,
}

/// Way of a frame past the place of its capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Way {
    /// Not known.
    #[default]
    Unknown = 0,
    /// Sent by the host of the capture.
    Out = 1,
    /// Received by it.
    In = 2,
    /// Forwarded or overheard.
    Other = 3,
}

/// Special properties of a packet; the bits of `marks`.
pub mod marks {
    /// Several segments in one frame: segmentation is left to the device.
    pub const SEGMENTS: u8 = 1;
    /// A fragment of IP.
    pub const FRAGMENT: u8 = 2;
    /// The frame had a VLAN tag.
    pub const VLAN: u8 = 4;
    /// The headers are cut by the snap length: fields may be missing.
    pub const CUT: u8 = 8;
    /// A fragment of IP that is not the first one of its packet: it has none of the headers behind those of IP.
    pub const LATER: u8 = 16;
}

/// Fields of a TCP packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFields {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Flags: 1 FIN, 2 SYN, 4 RST, 8 PSH, 16 ACK, 32 URG, 64 ECE, 128 CWR.
    pub flags: u8,
    /// Window, scaled where the scale is known.
    pub window: u32,
    /// Timestamp value and echo.
    pub timestamps: Option<(u32, u32)>,
}

/// One captured packet (table `packet`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Timestamp of the kernel, by the clock of the capture's host.
    pub t_ns: i64,
    /// Capture that saw it.
    pub capture: CaptureId,
    /// Flow it belongs to.
    pub flow: FlowId,
    /// From dst to src.
    pub back: bool,
    /// Its way past the capture.
    pub way: Way,
    /// See [`marks`].
    pub marks: u8,
    /// Bytes of payload.
    pub payload_bytes: u32,
    /// Bytes on the wire.
    pub wire_bytes: u32,
    /// `None`: not of TCP, or a fragment without its header.
    pub tcp: Option<TcpFields>,
}
