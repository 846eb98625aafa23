//! One observation of a packet.

use flowtrace_schema::CaptureId;

/// Capture and time of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) capture: CaptureId,
    /// Number of the host, or of its network namespace.
    pub(crate) scope: u32,
    /// Time by the clock of the capture's host.
    pub(crate) t_ns: i64,
    pub(crate) wire_bytes: u32,
}
