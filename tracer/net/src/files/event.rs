//! Contents of a capture file.

use std::io;

use flowtrace_schema::Way;

/// Longest frame that is read. Loopback frames of large segments have 65 549 bytes, BIG TCP has
/// more; libpcap stops at 262 144.
pub(super) const LONGEST_FRAME: usize = 1 << 20;

/// Interface of frames of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Its name, if the file has it.
    pub(crate) name: Option<String>,
    /// The host, if the file has it: flowtrace writes it, no other program does.
    pub(crate) host: Option<String>,
    /// LINKTYPE_ number.
    pub(crate) link_type: u16,
    pub(crate) snap_length: Option<u32>,
}

/// Counters of packets that a file lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    pub(crate) received: Option<u64>,
    pub(crate) dropped: Option<u64>,
}

/// A frame, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Timestamp, ns since 1970.
    pub(crate) unix_ns: i64,
    /// Number of the [`Event::Interface`], counted from 0 in the whole file.
    pub(crate) interface: usize,
    /// Bytes on the wire.
    pub(crate) wire_bytes: u32,
    pub(crate) way: Way,
    /// Bytes that the file has of them.
    pub(super) length: usize,
    /// Bytes behind them in the record.
    pub(super) behind: usize,
}

/// Next item of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Another interface, the next in number.
    Interface(Interface),
    /// A frame; its bytes are those of [`super::Capture::bytes`].
    Frame(Frame),
    /// An interface's statistics.
    Statistics(usize, Statistics),
    /// A record that cannot be read, while those behind it can.
    Broken,
    /// The end.
    End,
}

/// Reason why a file is not read, or not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be opened or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is something else than a capture.
    #[error("{0}")]
    NotACapture(String),
    /// It ends amid a record, or a record contradicts itself.
    #[error("{what} at byte {offset}")]
    Damaged {
        /// Description of the damage.
        what: String,
        /// Place of the damage, in the file as it is without compression.
        offset: u64,
    },
}
