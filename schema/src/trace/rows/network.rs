//! The rows of the views about the network.

use rusqlite::{Result, Row};

use super::FromRow;

rows! {
    /// A row of the view `hosts`.
    HostRow {
        host_id: i64,
        host: String,
        boot_id: Option<String>,
        system: String,
        cpus: Option<i64>,
        memory_bytes: Option<i64>,
        epoch_unix_ns: i64,
        clock_offset_ns: i64,
        clock_drift_ppb: i64,
        clock_error_ns: Option<i64>,
    }

    /// A machine that an agent watched, as in the view `nodes`.
    NodeRow {
        host_id: i64,
        host: Option<String>,
        received: i64,
        expected: i64,
        ignored: i64,
        sessions: i64,
        period_ms: i64,
        drift_ppb: i64,
        is_final: i64,
    }

    /// A row of the view `captures`.
    CaptureRow {
        capture_id: i64,
        host_id: i64,
        host: Option<String>,
        interface: String,
        source: String,
        file: Option<String>,
        link_type: Option<i64>,
        namespace: Option<i64>,
        snap_length: Option<i64>,
        from_ns: Option<i64>,
        to_ns: Option<i64>,
        received: Option<i64>,
        dropped: Option<i64>,
        unstored: Option<i64>,
        ignored: Option<i64>,
    }

    /// A flow between two processes that are known.
    FlowBetween {
        src_upid: i64,
        dst_upid: i64,
        sport: Option<i64>,
        dport: Option<i64>,
        out_bytes: i64,
        back_bytes: i64,
        first_ns: i64,
        last_ns: i64,
    }

    /// Measures of a flow by the kernel at one end.
    FlowMeasure {
        flow_id: i64,
        side: String,
        min_rtt_ns: Option<i64>,
        retransmits: Option<i64>,
        rwnd_limited_ns: Option<i64>,
        sndbuf_limited_ns: Option<i64>,
        busy_ns: Option<i64>,
    }

    /// Sums over all flows.
    NetworkTotals {
        flows: i64,
        packets: i64,
        bytes: i64,
    }

    /// A row of the view `flows`.
    FlowRow {
        flow_id: i64,
        src: String,
        sport: Option<i64>,
        dst: String,
        dport: Option<i64>,
        proto: String,
        src_upid: Option<i64>,
        dst_upid: Option<i64>,
        first_ns: i64,
        last_ns: Option<i64>,
        packets: Option<i64>,
        bytes: Option<i64>,
        out_packets: Option<i64>,
        out_bytes: Option<i64>,
        back_packets: Option<i64>,
        back_bytes: Option<i64>,
        captures: Option<i64>,
        src_wscale: Option<i64>,
        dst_wscale: Option<i64>,
        src_mss: Option<i64>,
        dst_mss: Option<i64>,
        src_sack: Option<i64>,
        dst_sack: Option<i64>,
    }

    /// A row of the view `flow_captures`.
    FlowCaptureRow {
        flow_id: i64,
        capture_id: i64,
        first_ns: i64,
        last_ns: i64,
        out_packets: i64,
        out_bytes: i64,
        back_packets: i64,
        back_bytes: i64,
    }

    /// A row of the view `flow_owners`.
    FlowOwnerRow {
        flow_id: i64,
        side: String,
        upid: i64,
        from_ns: Option<i64>,
        to_ns: Option<i64>,
        fd: Option<i64>,
        evidence: String,
    }
}
