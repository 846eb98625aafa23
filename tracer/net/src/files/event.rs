//! Contents of a capture file.

use std::io;

use flowtrace_schema::Way;

/// Longest frame that is read. Loopback frames of large segments have 65 549 bytes, BIG TCP has
/// more; libpcap stops at 262 144.
pub(super) const LONGEST_FRAME: usize = 1 << 20;

/// Where frames of a file were captured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Its name, when the file has it.
    pub(crate) name: Option<String>,
    /// The host, when the file has it: flowtrace writes it, nobody else does.
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
    /// Since 1970.
    pub(crate) unix_ns: i64,
    /// Which of [`Event::Interface`], counted from 0 in the whole file.
    pub(crate) interface: usize,
    /// Bytes on the wire.
    pub(crate) wire_bytes: u32,
    pub(crate) way: Way,
    /// How many of them the file has.
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

/// Why a file is not read, or not read on.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be opened or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("{0}")]
    NotACapture(String),
    /// It ends amid a record, or a record contradicts itself.
    #[error("{what} at byte {offset}")]
    Damaged {
        /// Description of the damage.
        what: String,
        /// Where, in the file as it is without compression.
        offset: u64,
    },
}
