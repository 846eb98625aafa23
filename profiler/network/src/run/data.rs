//! All loaded data of a run.

use std::sync::OnceLock;

use super::accounting::TimeAccounting;
use super::coverage::OtherFlows;
use super::packet::Packet;

/// Least round-trip time by ordered pair, ns: `[me][peer]`.
pub(crate) type RoundTrips = Vec<Vec<Option<i64>>>;

/// A capture as it was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// Machine and interface or file.
    pub name: String,
    /// Packets in the order of time.
    pub packets: Vec<Packet>,
    /// Packets that the kernel dropped; `None` if not known.
    pub dropped: Option<i64>,
}

/// The packets of one process: indices into its own capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) capture: usize,
    pub(crate) packets: Vec<u32>,
}

/// The loaded data, shared by all [`Run`]s that are cut from them.
#[derive(Debug, Default)]
pub(crate) struct Data {
    pub(crate) nodes: Vec<String>,
    pub(crate) captures: Vec<Capture>,
    pub(crate) streams: Vec<Stream>,
    /// True if the node has a capture of its own, not only that of a partner.
    pub(crate) is_own: Vec<bool>,
    pub(crate) first_ns: i64,
    pub(crate) last_ns: i64,
    /// Bound of the error between the clocks of two captures, ns; `None` if they are not aligned.
    pub(crate) clock_error_ns: Option<i64>,
    pub(crate) left_out: Vec<String>,
    pub(crate) other_flows: Vec<OtherFlows>,
    pub(crate) without_header: u64,
    /// Time accounting of each node from the process tracer; empty or `None` if unknown.
    pub(crate) accounting: Vec<Option<TimeAccounting>>,
    pub(crate) rtt: OnceLock<RoundTrips>,
}

impl Data {
    pub(crate) fn copied(&self) -> Data {
        Data {
            nodes: self.nodes.clone(),
            captures: self.captures.clone(),
            streams: self.streams.clone(),
            is_own: self.is_own.clone(),
            left_out: self.left_out.clone(),
            other_flows: self.other_flows.clone(),
            accounting: self.accounting.clone(),
            rtt: OnceLock::new(),
            ..*self
        }
    }
}
