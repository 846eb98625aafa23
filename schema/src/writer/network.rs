//! The statements for captures and flows.

use std::net::IpAddr;

use rusqlite::{Connection, Result, params};

use crate::{
    CaptureEnd, CaptureRecord, End, FlowOptions, FlowOwner, FlowRecord, FlowSample, SocketEnd,
};

pub(super) fn capture(db: &Connection, r: &CaptureRecord) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO capture (capture_id, host_id, interface, source, file, file_raw, link_type,
           namespace, snap_length, from_ns)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        r.id.0,
        r.host.0,
        r.interface,
        r.source.name(),
        r.file.as_ref().map(|t| t.text()),
        r.file.as_ref().and_then(|t| t.raw()),
        r.link_type,
        r.namespace.map(|v| v as i64),
        r.snap_length,
        r.from_ns
    ])?;
    Ok(())
}

pub(super) fn capture_end(db: &Connection, r: &CaptureEnd) -> Result<()> {
    db.prepare_cached(
        "UPDATE capture SET from_ns = ?2, to_ns = ?3, received = ?4, dropped = ?5, unstored = ?6,
           ignored = ?7
         WHERE capture_id = ?1",
    )?
    .execute(params![
        r.id.0,
        r.from_ns,
        r.to_ns,
        r.received.map(|v| v as i64),
        r.dropped.map(|v| v as i64),
        r.unstored as i64,
        r.ignored as i64
    ])?;
    Ok(())
}

pub(super) fn flow(db: &Connection, r: &FlowRecord) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO flow (flow_id, capture_id, src, sport, dst, dport, proto, first_ns)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        r.id.0,
        r.capture.0,
        address(r.src),
        r.sport,
        address(r.dst),
        r.dport,
        protocol(r.protocol),
        r.first_ns
    ])?;
    Ok(())
}

pub(super) fn flow_options(db: &Connection, r: &FlowOptions) -> Result<()> {
    let sql = match r.end {
        End::Src => {
            "UPDATE flow SET src_wscale = ?2, src_mss = ?3, src_sack = ?4 WHERE flow_id = ?1"
        }
        End::Dst => {
            "UPDATE flow SET dst_wscale = ?2, dst_mss = ?3, dst_sack = ?4 WHERE flow_id = ?1"
        }
    };
    db.prepare_cached(sql)?
        .execute(params![r.flow.0, r.window_scale, r.mss, r.sack])?;
    Ok(())
}

pub(super) fn flow_owner(db: &Connection, r: &FlowOwner) -> Result<()> {
    db.prepare_cached(
        "INSERT OR REPLACE INTO flow_owner (rowid, flow_id, side, upid, from_ns, to_ns, evidence)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        r.row,
        r.flow.0,
        r.end.name(),
        r.upid.0,
        r.from_ns,
        r.to_ns,
        r.evidence.name()
    ])?;
    Ok(())
}

pub(super) fn socket_end(db: &Connection, r: &SocketEnd) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO socket_end (end_id, proto, address, port, peer, peer_port)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        r.end,
        if r.is_udp { "udp" } else { "tcp" },
        address(r.local.ip()),
        r.local.port(),
        r.peer.map(|peer| address(peer.ip())),
        r.peer.map(|peer| peer.port())
    ])?;
    Ok(())
}

pub(super) fn flow_sample(db: &Connection, r: &FlowSample) -> Result<()> {
    let int = |v: Option<u64>| v.map(|v| i64::try_from(v).unwrap_or(i64::MAX));
    db.prepare_cached(
        "INSERT INTO flow_sample (t_ns, flow_id, side, rtt_ns, min_rtt_ns, retransmits,
           rwnd_limited_ns, sndbuf_limited_ns, busy_ns, delivery_rate, bytes_acked, bytes_received,
           congestion)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?
    .execute(params![
        r.t_ns,
        r.flow.0,
        r.end.name(),
        int(r.rtt_ns),
        int(r.min_rtt_ns),
        int(r.retransmits),
        int(r.rwnd_limited_ns),
        int(r.sndbuf_limited_ns),
        int(r.busy_ns),
        int(r.delivery_rate),
        int(r.bytes_acked),
        int(r.bytes_received),
        r.congestion
    ])?;
    Ok(())
}

/// An address as it is written everywhere; an IPv4 address in IPv6 is written as IPv4.
fn address(address: IpAddr) -> String {
    address.to_canonical().to_string()
}

/// Name of a protocol number (IANA).
fn protocol(number: u8) -> String {
    match number {
        1 => "icmp".into(),
        6 => "tcp".into(),
        17 => "udp".into(),
        58 => "icmpv6".into(),
        132 => "sctp".into(),
        number => format!("ip-{number}"),
    }
}
