//! Coverage of an answer.

use std::fmt;

use flowtrace_render::units;

/// Recorded flows of one kind that are not analysed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherFlows {
    /// Protocol of the flows, or another property that they have in common.
    pub kind: String,
    /// True if the flows are of TCP and left out for another reason than their protocol.
    pub is_tcp: bool,
    /// Number of flows in the whole recording.
    pub flows: u64,
    /// Packets and payload of the flows; `None` if not counted yet.
    pub traffic: Option<(u64, u64)>,
}

impl fmt::Display for OtherFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flows = units::counted(self.flows as i64, "flow", "flows");
        write!(f, "{flows} of {}", self.kind)?;
        let Some((packets, bytes)) = self.traffic else {
            return Ok(());
        };
        let packets = units::counted(packets as i64, "packet", "packets");
        write!(f, ", {packets}, {} of payload", units::bytes(bytes as i64))
    }
}

/// Packets that were seen and missed in the interval of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Number of analysed segments.
    pub packets: u64,
    /// Packets that the kernels dropped; `None` if the number is unknown for some capture.
    pub dropped: Option<i64>,
    /// Processes known only from their partners' captures.
    pub without_capture: Vec<String>,
    /// Bound of the error between the captures' clocks, ns.
    pub clock_error_ns: Option<i64>,
    /// Addresses outside of the program.
    pub left_out: Vec<String>,
    /// Flows to which the methods do not apply.
    pub other_flows: Vec<OtherFlows>,
    /// Packets of the program's connections without a complete TCP header.
    pub without_header: u64,
}
