//! From a trace's packets to a [`Run`].

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use ahash::AHashMap;
use flowtrace_schema::{CaptureRow, PacketRow, Result, Trace, marks};

use super::run::{Books, CaptureInput, Node, Packet, Run, Unknown};
use crate::rules::labels;

mod aside;
mod chosen;
mod flows;
mod growing;

use chosen::{Chosen, Counts};
use flows::{Flow, Flows};
pub use growing::Growing;

/// What counts as one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// A network address, as the thesis has it.
    #[default]
    Host,
    /// A process, where the trace knows whose a connection is; the address otherwise.
    Process,
    /// An address with its port.
    Endpoint,
}

/// What to load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// What counts as one process; `None`: an address, unless all connections are within one (loopback).
    pub by: Option<By>,
    /// Names of the processes, hosts or addresses that belong to the program; empty: those with a
    /// capture of their own, or all when no more than one has.
    pub hosts: Vec<String>,
    /// Begin and end, ns since the start of the trace.
    pub within_ns: Option<(i64, i64)>,
    /// Largest number of processes; a busy server may know thousands of addresses.
    pub most: Option<usize>,
}

/// Port of secure shell: how runs are watched, not what they do.
const SSH: i64 = 22;

/// What counts as one process unless asked otherwise, by the program's flows.
fn natural(flows: &[Flow]) -> By {
    let mut used = flows.iter().peekable();
    let is_within_one = used.peek().is_some() && used.all(|flow| flow.src == flow.dst);
    if is_within_one { By::Process } else { By::Host }
}

/// Loads the packets of the program's TCP connections.
///
/// # Errors
/// When the file cannot be read; the inner one when a host is asked for that is not there.
pub fn load(trace: &Trace, selection: &Selection) -> Result<std::result::Result<Run, Unknown>> {
    let mut flows = Flows::default();
    flows.read(trace)?;
    let counts = count(trace, &mut flows)?;
    let hosts = trace.hosts()?;
    let captures = trace.captures()?;
    let by = selection.by.unwrap_or_else(|| natural(&flows.program));
    let labels = named(trace, by)?;
    let seen = counts.named(&flows.addresses);
    let mut chosen = match Chosen::new(&flows, selection, by, &seen, &captures, &labels) {
        Ok(chosen) => chosen,
        Err(unknown) => return Ok(Err(unknown)),
    };
    let errors = hosts.iter().filter_map(|host| host.clock_error_ns).max();
    let left_out = std::mem::take(&mut chosen.left_out);
    let aside = std::mem::take(&mut chosen.aside).with(&flows).sorted();
    let books = match selection.within_ns {
        // The kernel's totals are of whole lives.
        Some(_) => Vec::new(),
        None => books(trace, &flows.program, &chosen)?,
    };
    // There may be a million, and the packets need room.
    drop(seen);
    drop(flows);
    let (mut inputs, at) = inputs(&captures);
    let mut without_header = 0;
    let (from_ns, to_ns) = selection.within_ns.unwrap_or((i64::MIN, i64::MAX));
    trace.packets_since(from_ns, |row| {
        if row.t_ns < from_ns || row.t_ns > to_ns {
            return match row.t_ns > to_ns {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
        }
        let ends = chosen.ends.get(&row.flow_id).copied();
        if let (Some((a, b)), Some(seq), Some(&capture)) = (ends, row.seq, at.get(&row.capture_id))
            && row.marks & marks::FRAGMENT == 0
        {
            let (src, dst) = if row.dir == 0 { (a, b) } else { (b, a) };
            inputs[capture].packets.push(packet(row, seq, src, dst));
        } else if ends.is_some() {
            without_header += 1;
        }
        ControlFlow::Continue(())
    })?;
    // One machine with several interfaces has several captures: each process is served by the one
    // that has most of its packets.
    let run = Run::new(chosen.names, inputs).with_origin(errors, left_out);
    Ok(Ok(run.with_aside(aside, without_header).with_books(books)))
}

/// The names of processes, where these are what counts.
fn named(trace: &Trace, by: By) -> Result<HashMap<i64, String>> {
    match by {
        By::Process => labels(trace),
        By::Host | By::Endpoint => Ok(HashMap::new()),
    }
}

/// A capture without packets for each of a trace, and its place by id.
fn inputs(captures: &[CaptureRow]) -> (Vec<CaptureInput>, AHashMap<i64, usize>) {
    let input = |capture: &CaptureRow| CaptureInput {
        name: format!(
            "{} {}",
            capture.host.as_deref().unwrap_or("?"),
            capture.interface
        ),
        node: None,
        dropped: capture.dropped,
        packets: Vec::new(),
    };
    let places = captures.iter().enumerate();
    let places = places.map(|(at, capture)| (capture.capture_id, at));
    (captures.iter().map(input).collect(), places.collect())
}

fn packet(row: &PacketRow, seq: u32, src: Node, dst: Node) -> Packet {
    Packet {
        t_ns: row.t_ns,
        seq,
        ack: row.ack.unwrap_or(0),
        payload: row.payload_bytes,
        wire: row.wire_bytes,
        window: row.window.unwrap_or(0),
        flow: row.flow_id as u32,
        src,
        dst,
        flags: row.flags.unwrap_or(0),
        is_again: false,
    }
}

/// What the process tracer knows of the processes at the ends of each node's connections.
fn books(trace: &Trace, flows: &[Flow], chosen: &Chosen) -> Result<Vec<Option<Books>>> {
    let mut owners: Vec<BTreeSet<i64>> = vec![BTreeSet::new(); chosen.names.len()];
    for flow in flows {
        let Some(&(a, b)) = chosen.ends.get(&flow.id) else {
            continue;
        };
        for (node, upid) in [(a, flow.src_upid), (b, flow.dst_upid)] {
            owners[usize::from(node)].extend(upid);
        }
    }
    if owners.iter().all(BTreeSet::is_empty) {
        return Ok(Vec::new());
    }
    let seconds = |ns: Option<i64>| ns.map(|ns| ns as f64 / 1e9);
    let times = trace.process_times()?.into_iter().filter_map(|row| {
        let books = Books {
            on_cpu_s: seconds(row.on_cpu_ns)?,
            run_queue_s: seconds(row.run_queue_ns)?,
            storage_s: seconds(row.storage_ns).unwrap_or(0.0),
        };
        Some((row.upid, books))
    });
    let times: HashMap<i64, Books> = times.collect();
    // One process each, or they do not compare: on loopback one address may be several processes', and
    // a process may be behind several.
    let mut nodes: HashMap<i64, usize> = HashMap::new();
    for upid in owners.iter().flatten() {
        *nodes.entry(*upid).or_default() += 1;
    }
    let of = |upids: BTreeSet<i64>| {
        let upid = upids
            .first()
            .filter(|upid| upids.len() == 1 && nodes[*upid] == 1)?;
        times.get(upid).copied()
    };
    Ok(owners.into_iter().map(of).collect())
}

/// Adds what captures counted to the flows, as the view `flows` has it, and what each has of the program.
fn count(trace: &Trace, flows: &mut Flows) -> Result<Counts> {
    let mut rows = trace.flow_captures_unordered()?;
    rows.sort_unstable_by_key(|row| row.flow_id);
    flows.count(&rows);
    let mut counts = Counts::default();
    let mut rest = &rows[..];
    for flow in &flows.program {
        for row in flows::rows_of(flow, &mut rest) {
            counts.add(row.capture_id, flow, row.out_packets + row.back_packets);
        }
    }
    Ok(counts)
}
