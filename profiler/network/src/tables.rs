//! The conversations of a trace as tables: one row for each flow, or for each pair of partners.

use std::collections::{BTreeMap, HashMap};

use flowtrace_schema::{FlowRow, Result, Trace};

use super::page::{Cell, Page};
use flowtrace_render::units;
use measured::{Measured, measures};

mod measured;

/// Every flow, the most bytes first. If `within_ns` is given, only flows with packets in that interval.
/// `labels` has the names of process images by upid.
///
/// # Errors
/// When the file cannot be read.
pub fn flows(
    trace: &Trace,
    within_ns: Option<(i64, i64)>,
    labels: &HashMap<i64, String>,
) -> Result<Page> {
    let mut flows = chosen(trace, within_ns)?;
    flows.sort_by_key(|flow| (std::cmp::Reverse(flow.bytes), flow.flow_id));
    let measures = measures(trace)?;
    let mut page = begun(
        &flows,
        &[
            "flow_id",
            "src",
            "dst",
            "proto",
            "src_process",
            "dst_process",
            "first_ns",
            "duration_s",
            "packets",
            "out_bytes",
            "back_bytes",
            "min_rtt_s",
            "retransmits",
        ],
    );
    for flow in &flows {
        let measured = measures.get(&flow.flow_id);
        page.rows.push(vec![
            Cell::Count(flow.flow_id as u64),
            Cell::Text(endpoint(&flow.src, flow.sport)),
            Cell::Text(endpoint(&flow.dst, flow.dport)),
            Cell::Text(flow.proto.clone()),
            process(labels, flow.src_upid),
            process(labels, flow.dst_upid),
            Cell::Instant(flow.first_ns),
            seconds(flow.last_ns.map(|last| last - flow.first_ns)),
            count(flow.packets),
            bytes(flow.out_bytes),
            bytes(flow.back_bytes),
            seconds(measured.and_then(Measured::min_rtt_ns)),
            count(measured.and_then(|m| m.retransmits_of(flow))),
        ]);
    }
    page.notes.extend(unmeasured(trace, &flows, &measures)?);
    page.notes.extend(measured::half(&flows, &measures));
    page.notes.extend(ownerless(&flows));
    Ok(page)
}

/// The reason why connections have neither a round trip nor retransmissions, if some have none.
fn unmeasured(
    trace: &Trace,
    flows: &[FlowRow],
    measures: &HashMap<i64, Measured>,
) -> Result<Option<String>> {
    let tcp = flows.iter().filter(|flow| flow.proto == "tcp");
    let missing = tcp.filter(|flow| !measures.contains_key(&flow.flow_id));
    let missing = missing.count();
    if missing == 0 {
        return Ok(None);
    }
    let is_live = trace.captures()?.iter().any(|c| c.source == "ring");
    let why = match is_live {
        true => {
            "the kernel was asked once a second and reported ends, and these were neither connected \
             then nor of this machine (refused, or forwarded)"
        }
        false => {
            "they are what the kernel says of its sockets, which a file does not hold; what the \
             packets show: network iterations (threshold) and network matrix (repeated)"
        }
    };
    Ok(Some(format!(
        "{} of TCP without least round trip and retransmissions: {why}",
        units::counted(missing as i64, "flow", "flows")
    )))
}

/// The reason why ends have no process, if some have none in a trace with processes.
fn ownerless(flows: &[FlowRow]) -> Option<String> {
    let known = flows.iter().any(has_owner);
    let without = flows.iter().filter(|flow| !has_owner(flow)).count();
    (known && without > 0).then(|| {
        format!(
            "{} with no known process at either end: of programs that were not traced, or, where \
             only packets were recorded, ended before descriptors were read",
            units::counted(without as i64, "flow", "flows")
        )
    })
}

/// A side of a conversation: the process if known, else the address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Peer {
    address: String,
    upid: Option<i64>,
}

#[derive(Clone, Debug, Default)]
struct Sum {
    flows: u64,
    packets: i64,
    forth: i64,
    back: i64,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
}

/// Every pair of partners, the most bytes first, selected and named as by [`flows`].
///
/// # Errors
/// When the file cannot be read.
pub fn peers(
    trace: &Trace,
    within_ns: Option<(i64, i64)>,
    labels: &HashMap<i64, String>,
) -> Result<Page> {
    let flows = chosen(trace, within_ns)?;
    let mut sums: BTreeMap<(Peer, Peer), Sum> = BTreeMap::new();
    for flow in &flows {
        let peer = |address: &str, upid| Peer {
            address: address.to_owned(),
            upid,
        };
        let (src, dst) = (
            peer(&flow.src, flow.src_upid),
            peer(&flow.dst, flow.dst_upid),
        );
        let (mut out, mut back) = (flow.out_bytes.unwrap_or(0), flow.back_bytes.unwrap_or(0));
        let key = if src <= dst {
            (src, dst)
        } else {
            std::mem::swap(&mut out, &mut back);
            (dst, src)
        };
        let sum = sums.entry(key).or_default();
        sum.flows += 1;
        sum.packets = sum.packets.saturating_add(flow.packets.unwrap_or(0));
        sum.forth = sum.forth.saturating_add(out);
        sum.back = sum.back.saturating_add(back);
        let first = sum
            .first_ns
            .map_or(flow.first_ns, |ns| ns.min(flow.first_ns));
        sum.first_ns = Some(first);
        sum.last_ns = sum.last_ns.max(flow.last_ns);
    }
    let mut page = begun(
        &flows,
        &[
            "a",
            "a_process",
            "b",
            "b_process",
            "flows",
            "packets",
            "a_to_b_bytes",
            "b_to_a_bytes",
            "first_ns",
            "last_ns",
        ],
    );
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.forth.saturating_add(sum.back)));
    for ((a, b), sum) in rows {
        page.rows.push(vec![
            Cell::Text(units::plain(&a.address)),
            process(labels, a.upid),
            Cell::Text(units::plain(&b.address)),
            process(labels, b.upid),
            Cell::Count(sum.flows),
            count(Some(sum.packets)),
            bytes(Some(sum.forth)),
            bytes(Some(sum.back)),
            instant(sum.first_ns),
            instant(sum.last_ns),
        ]);
    }
    page.notes.extend(ownerless(&flows));
    Ok(page)
}

fn chosen(trace: &Trace, within_ns: Option<(i64, i64)>) -> Result<Vec<FlowRow>> {
    let mut flows = trace.flows()?;
    if let Some((from, to)) = within_ns {
        flows.retain(|flow| flow.first_ns < to && flow.last_ns.unwrap_or(flow.first_ns) >= from);
    }
    Ok(flows)
}

/// A page whose first line has the sums.
fn begun(flows: &[FlowRow], columns: &[&'static str]) -> Page {
    let sum = |of: fn(&FlowRow) -> Option<i64>| {
        let all = flows.iter().filter_map(of);
        all.fold(0_i64, i64::saturating_add)
    };
    let first = flows.iter().map(|flow| flow.first_ns).min();
    let last = flows.iter().filter_map(|flow| flow.last_ns).max();
    let line = match flows {
        [] => "no packets were captured: flowtrace import, capture, or run --net brings them in"
            .into(),
        _ => format!(
            "{}, {}, {} of payload",
            units::counted(flows.len() as i64, "flow", "flows"),
            units::counted(sum(|flow| flow.packets), "packet", "packets"),
            units::bytes(sum(|flow| flow.bytes))
        ),
    };
    Page {
        lines: vec![line],
        columns: columns.to_vec(),
        span_ns: (first.unwrap_or(0), last.or(first).unwrap_or(0)),
        ..Page::default()
    }
}

fn has_owner(flow: &FlowRow) -> bool {
    flow.src_upid.or(flow.dst_upid).is_some()
}

fn endpoint(address: &str, port: Option<i64>) -> String {
    let address = units::plain(address);
    match port {
        Some(port) if address.contains(':') => format!("[{address}]:{port}"),
        Some(port) => format!("{address}:{port}"),
        None => address,
    }
}

fn process(labels: &HashMap<i64, String>, upid: Option<i64>) -> Cell {
    let name = upid.and_then(|upid| labels.get(&upid));
    name.map_or(Cell::Unknown, |name| Cell::Text(name.clone()))
}

fn count(n: Option<i64>) -> Cell {
    n.map_or(Cell::Unknown, |n| Cell::Count(n.max(0) as u64))
}

fn bytes(n: Option<i64>) -> Cell {
    n.map_or(Cell::Unknown, |n| Cell::Bytes(n as f64))
}

fn instant(ns: Option<i64>) -> Cell {
    ns.map_or(Cell::Unknown, Cell::Instant)
}

fn seconds(ns: Option<i64>) -> Cell {
    ns.map_or(Cell::Unknown, |ns| Cell::Seconds(ns as f64 / 1e9))
}
