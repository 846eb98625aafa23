//! From a trace's packets to a [`Run`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use flowtrace_schema::{CaptureRow, FlowCaptureRow, FlowRow, PacketRow, Result, Trace, marks};

use super::run::{Books, CaptureInput, Node, Packet, Run, Unknown};
use crate::rules::labels;

mod aside;
mod growing;

use aside::Asides;
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

/// Processes analysed unless asked otherwise.
const MOST: usize = 512;
/// Port of secure shell: how runs are watched, not what they do.
const SSH: i64 = 22;

/// What counts as one process unless asked otherwise, by the program's flows.
fn natural(flows: &[FlowRow]) -> By {
    let mut used = flows.iter().peekable();
    let is_within_one = used.peek().is_some() && used.all(|flow| flow.src == flow.dst);
    if is_within_one { By::Process } else { By::Host }
}

fn is_of_program(flow: &FlowRow) -> bool {
    flow.proto == "tcp" && flow.sport != Some(SSH) && flow.dport != Some(SSH)
}

/// Loads the packets of the program's TCP connections.
///
/// # Errors
/// When the file cannot be read; the inner one when a host is asked for that is not there.
pub fn load(trace: &Trace, selection: &Selection) -> Result<std::result::Result<Run, Unknown>> {
    let mut flows = trace.flow_ends()?;
    let seen = sums_of_captures(trace, &mut flows)?;
    let (flows, others): (Vec<FlowRow>, Vec<FlowRow>) = flows.into_iter().partition(is_of_program);
    let hosts = trace.hosts()?;
    let captures = trace.captures()?;
    let by = selection.by.unwrap_or_else(|| natural(&flows));
    let labels = named(trace, by)?;
    let mut chosen = match Chosen::new(&flows, selection, by, &seen, &captures, &labels) {
        Ok(chosen) => chosen,
        Err(unknown) => return Ok(Err(unknown)),
    };
    let errors = hosts.iter().filter_map(|host| host.clock_error_ns).max();
    let left_out = std::mem::take(&mut chosen.left_out);
    let aside = std::mem::take(&mut chosen.aside).with(&others).sorted();
    let books = match selection.within_ns {
        // The kernel's totals are of whole lives.
        Some(_) => Vec::new(),
        None => books(trace, &flows, &chosen)?,
    };
    // There may be a million, and the packets need room.
    drop((flows, others, seen));
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
fn inputs(captures: &[CaptureRow]) -> (Vec<CaptureInput>, HashMap<i64, usize>) {
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
fn books(trace: &Trace, flows: &[FlowRow], chosen: &Chosen) -> Result<Vec<Option<Books>>> {
    let mut owners: Vec<BTreeSet<i64>> = vec![BTreeSet::new(); chosen.names.len()];
    for flow in flows {
        let Some(&(a, b)) = chosen.ends.get(&flow.flow_id) else {
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

/// Packets of the program by capture and address. Packets and payload of all flows, which come in the
/// order of their ids, are added to them as the view `flows` has them: of each direction what the
/// capture that saw most of it counted.
fn sums_of_captures(
    trace: &Trace,
    flows: &mut [FlowRow],
) -> Result<BTreeMap<i64, BTreeMap<String, i64>>> {
    let mut seen: BTreeMap<i64, BTreeMap<String, i64>> = BTreeMap::new();
    let mut rows = trace.flow_captures_unordered()?;
    rows.sort_unstable_by_key(|row| row.flow_id);
    for of_flow in rows.chunk_by(|a, b| a.flow_id == b.flow_id) {
        let id = of_flow[0].flow_id;
        let Ok(at) = flows.binary_search_by_key(&id, |flow| flow.flow_id) else {
            continue;
        };
        let flow = &mut flows[at];
        let most = |of: fn(&FlowCaptureRow) -> i64| of_flow.iter().map(of).max().unwrap_or(0);
        flow.packets = Some(most(|row| row.out_packets) + most(|row| row.back_packets));
        flow.bytes = Some(most(|row| row.out_bytes) + most(|row| row.back_bytes));
        for row in of_flow.iter().filter(|_| is_of_program(flow)) {
            let counts = seen.entry(row.capture_id).or_default();
            for address in [&flow.src, &flow.dst] {
                let packets = row.out_packets + row.back_packets;
                match counts.get_mut(address) {
                    Some(count) => *count += packets,
                    None => drop(counts.insert(address.clone(), packets)),
                }
            }
        }
    }
    Ok(seen)
}

/// The processes and what each connection joins.
struct Chosen {
    names: Vec<String>,
    ends: HashMap<i64, (Node, Node)>,
    left_out: Vec<String>,
    /// TCP flows that no answer can show.
    aside: Asides,
}

impl Chosen {
    fn new(
        flows: &[FlowRow],
        selection: &Selection,
        by: By,
        seen: &BTreeMap<i64, BTreeMap<String, i64>>,
        captures: &[CaptureRow],
        labels: &HashMap<i64, String>,
    ) -> std::result::Result<Chosen, Unknown> {
        let own = by_kind(seen).map(|seen| own_addresses(&seen));
        let addresses: BTreeSet<&str> = flows
            .iter()
            .flat_map(|flow| [flow.src.as_str(), flow.dst.as_str()])
            .collect();
        // A host's name stands for its address, or one of each kind.
        let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (capture, own) in captures
            .iter()
            .flat_map(|c| own.iter().map(move |o| (c, o)))
        {
            let addresses = own.get(&capture.capture_id).filter(|all| all.len() == 1);
            if let (Some(host), Some(addresses)) = (&capture.host, addresses) {
                let all = named.entry(host).or_default();
                all.extend(addresses.iter().map(String::as_str));
            }
        }
        let mut asked: BTreeSet<String> = BTreeSet::new();
        for host in &selection.hosts {
            let own = || BTreeSet::from([host.as_str()]);
            let wanted = named.get(host.as_str()).cloned().unwrap_or_else(own);
            if !wanted.is_subset(&addresses) {
                let mut known: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                known.extend(named.keys().map(ToString::to_string));
                let more = known.len().saturating_sub(20);
                known.truncate(20);
                let more = if more > 0 {
                    format!(" and {more} more")
                } else {
                    String::new()
                };
                return Err(Unknown::new(format!(
                    "no host \"{host}\" in this trace; there are {}{more}",
                    if known.is_empty() {
                        "none".into()
                    } else {
                        known.join(", ")
                    }
                )));
            }
            asked.extend(wanted.into_iter().map(str::to_owned));
        }
        let captured = own.iter().flatten().filter(|(_, own)| !own.is_empty());
        let captured: BTreeSet<i64> = captured.map(|(capture, _)| *capture).collect();
        let own = own.iter().flat_map(BTreeMap::values);
        let with_capture: BTreeSet<String> = own.flatten().cloned().collect();
        let members: BTreeSet<String> = if !asked.is_empty() {
            asked
        } else if captured.len() > 1 && with_capture.len() > 1 {
            with_capture
        } else {
            addresses.iter().map(ToString::to_string).collect()
        };
        let mut bytes: BTreeMap<String, i64> = BTreeMap::new();
        let mut joined: Vec<(&FlowRow, String, String)> = Vec::new();
        let mut aside = Asides::default();
        let mut left_out: BTreeSet<String> = BTreeSet::new();
        for flow in flows {
            let is_member = |address: &String| members.contains(address);
            if !is_member(&flow.src) || !is_member(&flow.dst) {
                let other = [&flow.src, &flow.dst].into_iter().filter(|a| !is_member(a));
                left_out.extend(other.cloned());
                aside.outside(flow);
                continue;
            }
            let name = |address: &str, port: Option<i64>, upid: Option<i64>| match by {
                By::Host => address.to_owned(),
                By::Process => match upid.and_then(|upid| labels.get(&upid)) {
                    Some(label) => label.clone(),
                    None => address.to_owned(),
                },
                By::Endpoint => match port {
                    Some(port) if address.contains(':') => format!("[{address}]:{port}"),
                    Some(port) => format!("{address}:{port}"),
                    None => address.to_owned(),
                },
            };
            let a = name(&flow.src, flow.sport, flow.src_upid);
            let b = name(&flow.dst, flow.dport, flow.dst_upid);
            for end in [&a, &b] {
                *bytes.entry(end.clone()).or_default() += flow.bytes.unwrap_or(0);
            }
            if a == b {
                aside.within_one(flow, by);
            }
            joined.push((flow, a, b));
        }
        let most = selection.most.unwrap_or(MOST).min(usize::from(Node::MAX));
        let mut by_bytes: Vec<(&String, &i64)> = bytes.iter().collect();
        by_bytes.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        left_out.extend(by_bytes.iter().skip(most).map(|(name, _)| (*name).clone()));
        let kept: BTreeSet<String> = by_bytes
            .iter()
            .take(most)
            .map(|(name, _)| (*name).clone())
            .collect();
        let mut names: Vec<String> = kept.into_iter().collect();
        names.sort_by_key(|name| numeric(name));
        let index: HashMap<&String, Node> = names
            .iter()
            .enumerate()
            .map(|(i, n)| (n, i as Node))
            .collect();
        let mut ends = HashMap::new();
        for (flow, a, b) in &joined {
            if let (Some(&a), Some(&b)) = (index.get(a), index.get(b)) {
                ends.insert(flow.flow_id, (a, b));
            } else {
                aside.beyond(flow, most);
            }
        }
        drop(index);
        Ok(Chosen {
            names,
            ends,
            left_out: left_out.into_iter().collect(),
            aside,
        })
    }
}

/// Counts by capture and address, of IPv4 and of IPv6: a host with both has an address of each.
fn by_kind(
    seen: &BTreeMap<i64, BTreeMap<String, i64>>,
) -> [BTreeMap<i64, BTreeMap<String, i64>>; 2] {
    [false, true].map(|is_v6| {
        let of_kind = |counts: &BTreeMap<String, i64>| {
            let counts = counts.iter().filter(|(a, _)| a.contains(':') == is_v6);
            counts.map(|(a, n)| (a.clone(), *n)).collect()
        };
        let counts = seen.iter().map(|(capture, all)| (*capture, of_kind(all)));
        counts.collect()
    })
}

/// The addresses that are in (nearly) all packets of a capture: its host's, and that of the partner
/// where the host has only one. What is another capture's own is none of the two.
fn own_addresses(seen: &BTreeMap<i64, BTreeMap<String, i64>>) -> BTreeMap<i64, BTreeSet<String>> {
    let mut own: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
    for (&capture, counts) in seen {
        // Every packet counts twice, once per end.
        let whole: i64 = counts.values().sum::<i64>() / 2;
        let in_all = counts
            .iter()
            .filter(|(_, n)| **n * 100 >= whole * 98 && whole > 0);
        own.insert(
            capture,
            in_all.map(|(address, _)| address.clone()).collect(),
        );
    }
    loop {
        let single = |of: &&BTreeSet<String>| of.len() == 1;
        let taken: BTreeSet<String> = own.values().filter(single).flatten().cloned().collect();
        let mut is_settled = true;
        for addresses in own.values_mut().filter(|of| of.len() > 1) {
            let rest: BTreeSet<String> = addresses.difference(&taken).cloned().collect();
            if !rest.is_empty() && rest.len() < addresses.len() {
                *addresses = rest;
                is_settled = false;
            }
        }
        if is_settled {
            return own;
        }
    }
}

/// Numbers in names sort as numbers: 10.0.0.2 before 10.0.0.10.
fn numeric(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut digits = String::new();
    let mut text = String::new();
    for c in name.chars().chain(['\0']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        if !digits.is_empty() {
            let value = digits.parse().unwrap_or(u64::MAX);
            parts.push((std::mem::take(&mut text), value));
            digits.clear();
        }
        text.push(c);
    }
    parts.push((text, 0));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_as_people_count() {
        let mut names = ["10.0.0.10", "10.0.0.2", "node3", "node20"];
        names.sort_by_key(|name| numeric(name));
        assert_eq!(names, ["10.0.0.2", "10.0.0.10", "node3", "node20"]);
    }

    #[test]
    fn a_capture_is_of_the_address_in_all_its_packets() {
        let counts =
            |list: &[(&str, i64)]| list.iter().map(|(a, n)| ((*a).to_owned(), *n)).collect();
        let seen = BTreeMap::from([
            (1, counts(&[("a", 100), ("b", 60), ("c", 40)])),
            (2, counts(&[("a", 50), ("b", 50)])),
            (3, counts(&[])),
        ]);
        let own = own_addresses(&seen);
        let of = |capture: i64| own[&capture].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!((of(1), of(2), of(3)), (vec!["a"], vec!["b"], vec![]));
        // The ends of a chain have one partner each.
        let chain = BTreeMap::from([
            (1, counts(&[("a", 50), ("b", 50)])),
            (2, counts(&[("a", 50), ("b", 100), ("c", 50)])),
            (3, counts(&[("b", 50), ("c", 100), ("d", 50)])),
            (4, counts(&[("c", 50), ("d", 50)])),
        ]);
        let own = own_addresses(&chain);
        let all: BTreeSet<&str> = own.values().flatten().map(String::as_str).collect();
        assert_eq!(own[&1].len() + own[&4].len(), 2);
        assert_eq!(all, BTreeSet::from(["a", "b", "c", "d"]));
        let two = BTreeMap::from([(1, counts(&[("a", 5), ("b", 5)]))]);
        assert_eq!(own_addresses(&two)[&1].len(), 2);
    }
}
