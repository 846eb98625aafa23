//! Messages to the thread that makes rows, and its report.

use flowtrace_schema::CaptureRecord;

use super::batch::Batch;
use crate::net::sockets::Observed;

/// A message to the thread that makes rows.
#[derive(Debug)]
pub(super) enum Message {
    /// A capture begins, in the namespace with this number.
    Begin(Box<CaptureRecord>, u32),
    /// Packets.
    Batch(Batch),
    /// Sockets of the namespace with this number.
    Sockets(Vec<Observed>, u32),
    /// There is nothing more.
    End,
}

/// Totals of a capture.
#[derive(Clone, Debug, Default)]
pub struct LiveReport {
    /// Packets in the trace.
    pub packets: u64,
    /// Flows.
    pub flows: u32,
    /// Packets that the kernel dropped.
    pub dropped: u64,
    /// Packets that were lost because the trace could not be written as fast.
    pub unstored: u64,
    /// Interfaces that were deleted, or left the network namespace, before the capture ended.
    pub gone: Vec<String>,
}
