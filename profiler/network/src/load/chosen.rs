//! Nodes of a selection, and the two nodes that each connection joins.

use crate::wording;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use ahash::AHashMap;
use flowtrace_schema::CaptureRow;

use super::flows::{Flow, Flows, Names};
use super::other_flows::OtherKinds;
use super::selection::{By, Selection};
use crate::run::{Node, Unknown};

/// Default number of processes that are analysed.
const MOST: usize = 512;

/// Packets of the program by capture and address.
type Seen<'a> = BTreeMap<i64, BTreeMap<&'a str, i64>>;

/// Nodes that are on the host of each capture.
pub(super) type Beside = BTreeMap<i64, BTreeSet<Node>>;

/// Packets of the program by capture and number of the address.
#[derive(Debug, Default)]
pub(super) struct Counts {
    packets: BTreeMap<i64, Vec<i64>>,
    /// Captures of flows within one address, and the flows: both ends are on the host of the capture.
    within: Vec<(i64, i64)>,
}

impl Counts {
    /// Adds the packets of a capture in a flow.
    pub(super) fn add(&mut self, capture: i64, flow: &Flow, packets: i64) {
        if flow.src == flow.dst {
            self.within.push((capture, flow.id));
        }
        let counts = self.packets.entry(capture).or_default();
        for address in [flow.src as usize, flow.dst as usize] {
            if counts.len() <= address {
                counts.resize(address + 1, 0);
            }
            counts[address] = counts[address].saturating_add(packets);
        }
    }

    fn named<'a>(&self, addresses: &'a Names) -> Seen<'a> {
        let of = |counts: &Vec<i64>| {
            let all = addresses.all().zip(counts.iter().copied());
            all.filter(|(_, packets)| *packets != 0).collect()
        };
        let captures = self.packets.iter();
        captures.map(|(at, counts)| (*at, of(counts))).collect()
    }
}

/// The chosen processes, and the nodes that each connection joins.
pub(super) struct Chosen {
    pub(super) names: Vec<String>,
    pub(super) ends: AHashMap<i64, (Node, Node)>,
    pub(super) left_out: Vec<String>,
    pub(super) beside: Beside,
    /// TCP flows that appear in no answer.
    pub(super) other_flows: OtherKinds,
}

impl Chosen {
    pub(super) fn new(
        flows: &Flows,
        selection: &Selection,
        by: By,
        counts: &Counts,
        captures: &[CaptureRow],
        labels: &HashMap<i64, String>,
    ) -> std::result::Result<Chosen, Unknown> {
        let seen = counts.named(&flows.addresses);
        let own = by_kind(&seen).map(|seen| own_addresses(&seen));
        let mut is_met = vec![false; flows.addresses.len()];
        for flow in flows.analysed(selection) {
            is_met[flow.src as usize] = true;
            is_met[flow.dst as usize] = true;
        }
        let addresses = flows.addresses.all().zip(is_met);
        let addresses = addresses.filter(|(_, is_met)| *is_met);
        let addresses: BTreeSet<&str> = addresses.map(|(address, _)| address).collect();
        // The name of a host stands for its address, or for one of each kind.
        let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (capture, own) in captures
            .iter()
            .flat_map(|c| own.iter().map(move |o| (c, o)))
        {
            let addresses = own.get(&capture.capture_id).filter(|all| all.len() == 1);
            if let (Some(host), Some(addresses)) = (&capture.host, addresses) {
                let all = named.entry(host).or_default();
                all.extend(addresses);
            }
        }
        let mut asked: BTreeSet<&str> = BTreeSet::new();
        for host in &selection.hosts {
            let own = || BTreeSet::from([host.as_str()]);
            let wanted = named.get(host.as_str()).cloned().unwrap_or_else(own);
            if !wanted.is_subset(&addresses) {
                let mut known: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                known.extend(named.keys().map(ToString::to_string));
                let known = match known.is_empty() {
                    true => "none".into(),
                    false => wording::listed(&known, ", "),
                };
                return Err(Unknown::new(format!(
                    "no host \"{host}\" in this trace; there are {known}"
                )));
            }
            asked.extend(wanted);
        }
        let captured = own.iter().flatten().filter(|(_, own)| !own.is_empty());
        let captured: BTreeSet<i64> = captured.map(|(capture, _)| *capture).collect();
        let own = own.iter().flat_map(BTreeMap::values);
        let with_capture: BTreeSet<&str> = own.flatten().copied().collect();
        let members = if !asked.is_empty() {
            asked
        } else if !flows.is_of_run(selection) && captured.len() > 1 && with_capture.len() > 1 {
            with_capture
        } else {
            addresses
        };
        let is_member = flows.addresses.all();
        let is_member: Vec<bool> = is_member.map(|address| members.contains(address)).collect();
        let mut called = Called::new(by, labels, &flows.addresses);
        let mut bytes: Vec<i64> = Vec::new();
        let mut joined: Vec<(&Flow, u32, u32)> = Vec::with_capacity(flows.program.len());
        let mut other_flows = OtherKinds::default();
        let mut is_outside = vec![false; flows.addresses.len()];
        for (flow, skipped) in flows.weighed(selection) {
            if let Some(why) = skipped {
                other_flows.skipped(flow, why);
                continue;
            }
            let ends = [flow.src as usize, flow.dst as usize];
            if !ends.iter().all(|&end| is_member[end]) {
                for end in ends {
                    is_outside[end] |= !is_member[end];
                }
                other_flows.outside(flow);
                continue;
            }
            let a = called.number(flow.src, flow.sport, flow.src_upid);
            let b = called.number(flow.dst, flow.dport, flow.dst_upid);
            bytes.resize(called.names.len(), 0);
            for end in [a, b] {
                bytes[end as usize] += flow.traffic.map_or(0, |(_, bytes)| bytes);
            }
            if a == b {
                other_flows.within_one(flow, by);
            }
            joined.push((flow, a, b));
        }
        let left_out = flows.addresses.all().zip(is_outside);
        let left_out = left_out.filter(|(_, is_outside)| *is_outside);
        let mut left_out: BTreeSet<&str> = left_out.map(|(address, _)| address).collect();
        let most = selection.most.unwrap_or(MOST).min(usize::from(Node::MAX));
        let mut by_bytes: Vec<(&str, u32)> = called.names.all().zip(0..).collect();
        let of = |number: u32| bytes[number as usize];
        by_bytes.sort_by(|a, b| of(b.1).cmp(&of(a.1)).then(a.0.cmp(b.0)));
        left_out.extend(by_bytes.iter().skip(most).map(|(name, _)| name));
        by_bytes.truncate(most);
        by_bytes.sort_unstable();
        by_bytes.sort_by_cached_key(|(name, _)| numeric(name));
        let mut nodes: Vec<Option<Node>> = vec![None; called.names.len()];
        for (&(_, number), node) in by_bytes.iter().zip(0..) {
            nodes[number as usize] = Some(node);
        }
        let mut ends = AHashMap::with_capacity(joined.len());
        for (flow, a, b) in joined {
            if let (Some(a), Some(b)) = (nodes[a as usize], nodes[b as usize]) {
                ends.insert(flow.id, (a, b));
            } else {
                other_flows.beyond(flow, most);
            }
        }
        let mut beside = Beside::new();
        for (capture, flow) in &counts.within {
            if let Some(&(a, b)) = ends.get(flow) {
                beside.entry(*capture).or_default().extend([a, b]);
            }
        }
        let names = by_bytes.iter();
        Ok(Chosen {
            beside,
            names: names.map(|(name, _)| (*name).to_owned()).collect(),
            ends,
            left_out: left_out.into_iter().map(str::to_owned).collect(),
            other_flows,
        })
    }
}

/// Names of the nodes at the ends of flows, by numbers.
struct Called<'a> {
    by: By,
    labels: &'a HashMap<i64, String>,
    addresses: &'a Names,
    names: Names,
    /// Numbers of those nodes whose name is their address.
    of_address: Vec<Option<u32>>,
}

impl<'a> Called<'a> {
    fn new(by: By, labels: &'a HashMap<i64, String>, addresses: &'a Names) -> Called<'a> {
        Called {
            by,
            labels,
            addresses,
            names: Names::default(),
            of_address: vec![None; addresses.len()],
        }
    }

    fn number(&mut self, address: u32, port: Option<i64>, upid: Option<i64>) -> u32 {
        let name = self.addresses.name(address);
        match name_at(self.by, self.labels, name, port, upid) {
            // A million flows have few addresses.
            Cow::Borrowed(called) if std::ptr::eq(called, name) => {
                let known = &mut self.of_address[address as usize];
                *known.get_or_insert_with(|| self.names.number(name))
            }
            called => self.names.number(&called),
        }
    }
}

/// Name of the node at an end of a flow.
fn name_at<'a>(
    by: By,
    labels: &'a HashMap<i64, String>,
    address: &'a str,
    port: Option<i64>,
    upid: Option<i64>,
) -> Cow<'a, str> {
    match (by, port) {
        (By::Process, _) => match upid.and_then(|upid| labels.get(&upid)) {
            Some(label) => label.into(),
            None => address.into(),
        },
        (By::Endpoint, Some(port)) if address.contains(':') => format!("[{address}]:{port}").into(),
        (By::Endpoint, Some(port)) => format!("{address}:{port}").into(),
        (By::Host, _) | (By::Endpoint, None) => address.into(),
    }
}

/// Counts by capture and address, for IPv4 and for IPv6 apart: a host with both has an address of each
/// kind.
fn by_kind<'a>(seen: &Seen<'a>) -> [Seen<'a>; 2] {
    [false, true].map(|is_v6| {
        let of_kind = |counts: &BTreeMap<&'a str, i64>| {
            let counts = counts.iter().filter(|(a, _)| a.contains(':') == is_v6);
            counts.map(|(a, n)| (*a, *n)).collect()
        };
        let counts = seen.iter().map(|(capture, all)| (*capture, of_kind(all)));
        counts.collect()
    })
}

/// The addresses that are in (nearly) all packets of a capture: that of its host, and that of the
/// partner if the host has only one. Addresses with a capture of their own are excluded.
fn own_addresses<'a>(seen: &Seen<'a>) -> BTreeMap<i64, BTreeSet<&'a str>> {
    let mut own: BTreeMap<i64, BTreeSet<&str>> = BTreeMap::new();
    for (&capture, counts) in seen {
        // Every packet counts at both of its ends.
        let whole = counts.values().map(|&n| i128::from(n)).sum::<i128>() / 2;
        let in_all = counts
            .iter()
            .filter(|(_, n)| i128::from(**n) * 100 >= whole * 98 && whole > 0);
        own.insert(capture, in_all.map(|(address, _)| *address).collect());
    }
    loop {
        let single = |of: &&BTreeSet<&str>| of.len() == 1;
        let taken: BTreeSet<&str> = own.values().filter(single).flatten().copied().collect();
        let mut is_settled = true;
        for addresses in own.values_mut().filter(|of| of.len() > 1) {
            let rest: BTreeSet<&str> = addresses.difference(&taken).copied().collect();
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

/// A key by which numbers in names sort as numbers: 10.0.0.2 before 10.0.0.10.
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
        let counts = |list: &[(&'static str, i64)]| list.iter().copied().collect();
        let seen = BTreeMap::from([
            (1, counts(&[("a", 100), ("b", 60), ("c", 40)])),
            (2, counts(&[("a", 50), ("b", 50)])),
            (3, counts(&[])),
        ]);
        let own = own_addresses(&seen);
        let of = |capture: i64| own[&capture].iter().copied().collect::<Vec<_>>();
        assert_eq!((of(1), of(2), of(3)), (vec!["a"], vec!["b"], vec![]));
        // The ends of a chain have one partner each.
        let chain = BTreeMap::from([
            (1, counts(&[("a", 50), ("b", 50)])),
            (2, counts(&[("a", 50), ("b", 100), ("c", 50)])),
            (3, counts(&[("b", 50), ("c", 100), ("d", 50)])),
            (4, counts(&[("c", 50), ("d", 50)])),
        ]);
        let own = own_addresses(&chain);
        let all: BTreeSet<&str> = own.values().flatten().copied().collect();
        assert_eq!(own[&1].len() + own[&4].len(), 2);
        assert_eq!(all, BTreeSet::from(["a", "b", "c", "d"]));
        let two = BTreeMap::from([(1, counts(&[("a", 5), ("b", 5)]))]);
        assert_eq!(own_addresses(&two)[&1].len(), 2);
    }
}
