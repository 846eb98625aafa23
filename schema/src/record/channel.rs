//! Pipes and sockets between processes, and the processes that have them open.

use serde::{Deserialize, Serialize};

use crate::{ChannelId, HostId, Side, Text, Tid, Upid};

/// A kind of channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChannelKind {
    /// A pipe without a name.
    Pipe,
    /// A pipe that is opened by its name.
    Fifo,
    /// Two connected UNIX sockets without a name.
    Socketpair,
    /// UNIX sockets.
    Unix,
    /// A TCP connection.
    Tcp,
    /// UDP sockets.
    Udp,
}

impl ChannelKind {
    /// Name stored in the database.
    pub const fn name(self) -> &'static str {
        match self {
            ChannelKind::Pipe => "pipe",
            ChannelKind::Fifo => "fifo",
            ChannelKind::Socketpair => "socketpair",
            ChannelKind::Unix => "unix",
            ChannelKind::Tcp => "tcp",
            ChannelKind::Udp => "udp",
        }
    }
}

/// A channel (table `channel`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChannelRecord {
    /// Its id.
    pub id: ChannelId,
    /// Host on which it was seen.
    pub host: HostId,
    /// Kind of channel.
    pub kind: ChannelKind,
    /// Inode of the pipe, or of the socket that was seen first.
    pub inode: u64,
    /// Path or addresses.
    pub name: Option<Text>,
    /// Size of its buffer.
    pub capacity_bytes: Option<u64>,
}

/// Allowed uses of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both, as a socket does.
    Both,
}

impl Direction {
    /// Name stored in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
            Direction::Both => "both",
        }
    }
}

/// An image has an end of a channel open from now on (table `channel_end`).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ChannelEndRecord {
    /// Row id.
    pub id: u32,
    /// The channel.
    pub channel: ChannelId,
    /// Process image.
    pub upid: Upid,
    /// The lowest descriptor.
    pub fd: i32,
    /// Direction that the descriptor allows.
    pub direction: Direction,
    /// Time when it was first seen there.
    pub from_ns: u64,
}

/// The end of a row of `channel_end`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ChannelEndClosed {
    /// Row id.
    pub id: u32,
    /// Time when it was found closed; `None`: open to the end of the image.
    pub to_ns: Option<u64>,
    /// True if data moved through it; `None`: it may have.
    pub used: Option<bool>,
    /// Bytes moved through it, where that is certain.
    pub bytes: Option<u64>,
    /// Upper bound of these bytes.
    pub at_most_bytes: Option<u64>,
}

/// A call that moved data through a pipe or socket, or tried to (table `channel_call`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelCall {
    /// Entry of the call.
    pub start_ns: u64,
    /// Time until it returned.
    pub duration_ns: u64,
    /// Process image.
    pub upid: Upid,
    /// Thread; `None`: the first one of the process.
    pub tid: Option<Tid>,
    /// The channel; `None`: a socket that is no channel.
    pub channel: Option<ChannelId>,
    /// Inode of the pipe or socket.
    pub inode: u64,
    /// Side of the channel; of a socket received and sent data.
    pub side: Side,
    /// Bytes asked for; `None`: only the program's memory has the number.
    pub length: Option<u64>,
    /// Result of the call; negative errno on failure.
    pub result: i64,
    /// Bytes that it moved; `None`: they do not follow from the result.
    pub bytes: Option<u64>,
    /// Records were dropped while the image lived, so that the call may belong to another channel.
    pub lossy: bool,
}

/// Traffic of an image through one side of a channel (table `channel_sum`).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ChannelTraffic {
    /// The channel.
    pub channel: ChannelId,
    /// Process image.
    pub upid: Upid,
    /// Side of the channel.
    pub side: Side,
    /// Calls that returned.
    pub calls: u64,
    /// Bytes that they moved; `None`: they do not follow from the results.
    pub bytes: Option<u64>,
    /// Sum of their durations, ns.
    pub duration_ns: u64,
    /// Begin of the first one.
    pub first_ns: u64,
    /// End of the last one.
    pub last_ns: u64,
    /// True if no call is missing.
    pub exact: bool,
}
