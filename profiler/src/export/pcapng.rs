//! Packets as a pcapng file, for Wireshark
//! (<https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/>).
//!
//! Frames are made again from the fields in the trace. Addresses, ports, numbers, flags, window,
//! timestamps and lengths are those that were captured. Hardware addresses, checksums and payload were
//! never stored and are not in the file. The description of an interface names its host, by which
//! `flowtrace import` finds the host again. A comment names the processes at the ends of a flow.

use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::ControlFlow;

use flowtrace_schema::{CaptureRow, FlowRow, PacketRow, Trace};

use crate::rules::labels;

mod frame;

/// Begin of the description of an interface, before the name of its host.
pub const HOST_DESCRIPTION: &str = "flowtrace host: ";

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

/// The reason why the packets were not all written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] flowtrace_schema::Error),
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] io::Error),
}

/// The amount written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Number of packets.
    pub packets: u64,
    /// Number of those packets that another capture has as well.
    pub again: u64,
}

/// Writes all packets of a trace in the order of time on the common scale. A packet is written as often
/// as it was captured. Returns the number of packets.
///
/// # Errors
/// When the trace cannot be read, or `out` refuses.
pub fn write(trace: &Trace, out: &mut dyn Write) -> Result<Written, Error> {
    let captures = trace.captures()?;
    let hosts = trace.hosts()?;
    let epoch_unix_ns = hosts.first().map_or(0, |host| host.epoch_unix_ns);
    let flows: HashMap<i64, FlowRow> = trace
        .flows()?
        .into_iter()
        .map(|flow| (flow.flow_id, flow))
        .collect();
    let names = comments(trace, &flows)?;
    section(out)?;
    let mut numbers = HashMap::new();
    for (number, capture) in (0u32..).zip(&captures) {
        interface(out, capture, &shown_name(capture, &captures))?;
        numbers.insert(capture.capture_id, (number, link_type(capture)));
    }
    let mut written = 0;
    let mut failed = None;
    let mut bytes = Vec::new();
    trace.packets(|packet| {
        let (Some(flow), Some(&(number, link))) =
            (flows.get(&packet.flow_id), numbers.get(&packet.capture_id))
        else {
            return ControlFlow::Continue(());
        };
        bytes.clear();
        frame::make(&mut bytes, link == 1, flow, packet);
        let comment = names.get(&(packet.flow_id, packet.dir)).map(String::as_str);
        let unix_ns = epoch_unix_ns.saturating_add(packet.t_ns);
        match self::packet(out, number, unix_ns, &bytes, packet, comment) {
            Ok(()) => {
                written += 1;
                ControlFlow::Continue(())
            }
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    for capture in &captures {
        let unix_ns = epoch_unix_ns.saturating_add(capture.to_ns.unwrap_or(0));
        statistics(out, numbers[&capture.capture_id].0, unix_ns, capture)?;
    }
    let once: i64 = flows.values().filter_map(|flow| flow.packets).sum();
    Ok(Written {
        packets: written,
        again: written.saturating_sub(once.max(0).cast_unsigned()),
    })
}

/// The name of an interface. If its host has captures in several namespaces, the namespace is added,
/// since interfaces of different namespaces may have one name.
fn shown_name(capture: &CaptureRow, all: &[CaptureRow]) -> String {
    let mut on_host = all.iter().filter(|other| other.host_id == capture.host_id);
    match capture.namespace {
        Some(number) if on_host.any(|other| other.namespace != capture.namespace) => {
            format!("{} (namespace {number})", capture.interface)
        }
        _ => capture.interface.clone(),
    }
}

/// The processes at both ends, for each direction of the flows whose processes are known.
fn comments(
    trace: &Trace,
    flows: &HashMap<i64, FlowRow>,
) -> flowtrace_schema::Result<HashMap<(i64, u8), String>> {
    let has_owner = |f: &FlowRow| f.src_upid.or(f.dst_upid).is_some();
    let names = match flows.values().any(has_owner) {
        true => labels(trace)?,
        false => HashMap::new(),
    };
    let name = |upid: Option<i64>| upid.and_then(|upid| names.get(&upid));
    let mut comments = HashMap::new();
    for flow in flows.values() {
        let (src, dst) = (name(flow.src_upid), name(flow.dst_upid));
        if src.is_none() && dst.is_none() {
            continue;
        }
        let shown = |name: Option<&String>| name.map_or("?", String::as_str).to_owned();
        let (src, dst) = (shown(src), shown(dst));
        comments.insert((flow.flow_id, 0), format!("{src} → {dst}"));
        comments.insert((flow.flow_id, 1), format!("{dst} → {src}"));
    }
    Ok(comments)
}

/// The link type: Ethernet if the packets were captured with it, otherwise raw IP.
fn link_type(capture: &CaptureRow) -> u16 {
    match capture.link_type {
        Some(1) => 1,
        _ => 101,
    }
}

fn section(out: &mut dyn Write) -> io::Result<()> {
    let mut body = Vec::new();
    body.extend(0x1a2b_3c4d_u32.to_le_bytes());
    body.extend([1, 0, 0, 0]);
    body.extend(u64::MAX.to_le_bytes());
    let writer = concat!("flowtrace ", env!("CARGO_PKG_VERSION"));
    option(&mut body, 4, writer.as_bytes());
    option(&mut body, 0, &[]);
    block(out, SECTION, &body)
}

fn interface(out: &mut dyn Write, capture: &CaptureRow, name: &str) -> io::Result<()> {
    let mut body = Vec::new();
    body.extend(link_type(capture).to_le_bytes());
    body.extend([0, 0]);
    body.extend(0u32.to_le_bytes());
    option(&mut body, 2, name.as_bytes());
    if let Some(host) = &capture.host {
        option(&mut body, 3, format!("{HOST_DESCRIPTION}{host}").as_bytes());
    }
    // The unit of times: nanoseconds.
    option(&mut body, 9, &[9]);
    option(&mut body, 0, &[]);
    block(out, INTERFACE, &body)
}

fn packet(
    out: &mut dyn Write,
    interface: u32,
    unix_ns: i64,
    bytes: &[u8],
    packet: &PacketRow,
    comment: Option<&str>,
) -> io::Result<()> {
    let mut body = Vec::with_capacity(bytes.len() + 64);
    body.extend(interface.to_le_bytes());
    let unix_ns = unix_ns.max(0).cast_unsigned();
    body.extend(((unix_ns >> 32) as u32).to_le_bytes());
    body.extend((unix_ns as u32).to_le_bytes());
    let length = bytes.len() as u32;
    body.extend(length.to_le_bytes());
    body.extend(packet.wire_bytes.max(length).to_le_bytes());
    body.extend(bytes);
    pad(&mut body);
    let direction: u32 = match packet.way {
        1 => 2,
        2 => 1,
        _ => 0,
    };
    if direction != 0 || comment.is_some() {
        if let Some(comment) = comment {
            option(&mut body, 1, comment.as_bytes());
        }
        if direction != 0 {
            option(&mut body, 2, &direction.to_le_bytes());
        }
        option(&mut body, 0, &[]);
    }
    block(out, PACKET, &body)
}

fn statistics(
    out: &mut dyn Write,
    interface: u32,
    unix_ns: i64,
    capture: &CaptureRow,
) -> io::Result<()> {
    let mut body = Vec::new();
    body.extend(interface.to_le_bytes());
    let unix_ns = unix_ns.max(0).cast_unsigned();
    body.extend(((unix_ns >> 32) as u32).to_le_bytes());
    body.extend((unix_ns as u32).to_le_bytes());
    let counts = [(4, capture.received), (5, capture.dropped)];
    if counts.iter().all(|(_, count)| count.is_none()) {
        return Ok(());
    }
    for (code, count) in counts {
        if let Some(count) = count {
            option(&mut body, code, &count.max(0).to_le_bytes());
        }
    }
    option(&mut body, 0, &[]);
    block(out, STATISTICS, &body)
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    // A name may be longer than an option allows.
    let value = &value[..value.len().min(usize::from(u16::MAX) - 3)];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

fn block(out: &mut dyn Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let length = (body.len() as u32 + 12).to_le_bytes();
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&length)?;
    out.write_all(body)?;
    out.write_all(&length)
}
