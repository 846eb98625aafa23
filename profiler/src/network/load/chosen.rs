//! Which processes a question is about, and what each connection joins.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use ahash::{AHashMap, AHashSet};
use flowtrace_schema::{CaptureRow, FlowEnds};

use super::aside::Asides;
use super::{By, Selection};
use crate::network::run::{Node, Unknown};

/// Processes analysed unless asked otherwise.
const MOST: usize = 512;

/// Packets of the program by capture and address.
pub(super) type Seen<'a> = BTreeMap<i64, BTreeMap<&'a str, i64>>;

/// Adds up what captures have of flows: capture, flow, packets.
pub(super) fn seen<'a>(of: impl IntoIterator<Item = (i64, &'a FlowEnds, i64)>) -> Seen<'a> {
    let mut counts: AHashMap<(i64, &str), i64> = AHashMap::new();
    for (capture, flow, packets) in of {
        for address in [&flow.src, &flow.dst] {
            *counts.entry((capture, address)).or_default() += packets;
        }
    }
    let mut seen = Seen::new();
    for ((capture, address), packets) in counts {
        seen.entry(capture).or_default().insert(address, packets);
    }
    seen
}

/// The processes and what each connection joins.
pub(super) struct Chosen {
    pub(super) names: Vec<String>,
    pub(super) ends: AHashMap<i64, (Node, Node)>,
    pub(super) left_out: Vec<String>,
    /// TCP flows that no answer can show.
    pub(super) aside: Asides,
}

impl Chosen {
    pub(super) fn new(
        flows: &[FlowEnds],
        selection: &Selection,
        by: By,
        seen: &Seen<'_>,
        captures: &[CaptureRow],
        labels: &HashMap<i64, String>,
    ) -> std::result::Result<Chosen, Unknown> {
        let own = by_kind(seen).map(|seen| own_addresses(&seen));
        let addresses = flows.iter();
        let addresses = addresses.flat_map(|flow| [flow.src.as_str(), flow.dst.as_str()]);
        // A million flows have few addresses.
        let addresses: AHashSet<&str> = addresses.collect();
        let addresses: BTreeSet<&str> = addresses.into_iter().collect();
        // A host's name stands for its address, or one of each kind.
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
            asked.extend(wanted);
        }
        let captured = own.iter().flatten().filter(|(_, own)| !own.is_empty());
        let captured: BTreeSet<i64> = captured.map(|(capture, _)| *capture).collect();
        let own = own.iter().flat_map(BTreeMap::values);
        let with_capture: BTreeSet<&str> = own.flatten().copied().collect();
        let members = if !asked.is_empty() {
            asked
        } else if captured.len() > 1 && with_capture.len() > 1 {
            with_capture
        } else {
            addresses
        };
        let members: AHashSet<&str> = members.into_iter().collect();
        let mut bytes: AHashMap<Cow<'_, str>, i64> = AHashMap::new();
        let mut joined: Vec<(&FlowEnds, Cow<'_, str>, Cow<'_, str>)> = Vec::new();
        let mut aside = Asides::default();
        let mut left_out: BTreeSet<&str> = BTreeSet::new();
        for flow in flows {
            let others = [flow.src.as_str(), flow.dst.as_str()].into_iter();
            let mut others = others
                .filter(|address| !members.contains(address))
                .peekable();
            if others.peek().is_some() {
                left_out.extend(others);
                aside.outside(flow);
                continue;
            }
            let name = |address, port, upid| name(by, labels, address, port, upid);
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
        let mut by_bytes: Vec<(&str, i64)> = bytes.iter().map(|(n, b)| (&**n, *b)).collect();
        by_bytes.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        left_out.extend(by_bytes.iter().skip(most).map(|(name, _)| name));
        let kept: BTreeSet<&str> = by_bytes.iter().take(most).map(|(name, _)| *name).collect();
        let mut names: Vec<&str> = kept.into_iter().collect();
        names.sort_by_key(|name| numeric(name));
        let index = names.iter().zip(0..).map(|(name, node)| (*name, node));
        let index: AHashMap<&str, Node> = index.collect();
        let mut ends = AHashMap::with_capacity(joined.len());
        for (flow, a, b) in &joined {
            if let (Some(&a), Some(&b)) = (index.get(&**a), index.get(&**b)) {
                ends.insert(flow.flow_id, (a, b));
            } else {
                aside.beyond(flow, most);
            }
        }
        Ok(Chosen {
            names: names.into_iter().map(str::to_owned).collect(),
            ends,
            left_out: left_out.into_iter().map(str::to_owned).collect(),
            aside,
        })
    }
}

/// What the process at an end of a flow is called.
fn name<'a>(
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

/// Counts by capture and address, of IPv4 and of IPv6: a host with both has an address of each.
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

/// The addresses that are in (nearly) all packets of a capture: its host's, and that of the partner
/// where the host has only one. What is another capture's own is none of the two.
fn own_addresses<'a>(seen: &Seen<'a>) -> BTreeMap<i64, BTreeSet<&'a str>> {
    let mut own: BTreeMap<i64, BTreeSet<&str>> = BTreeMap::new();
    for (&capture, counts) in seen {
        // Every packet counts twice, once per end.
        let whole: i64 = counts.values().sum::<i64>() / 2;
        let in_all = counts
            .iter()
            .filter(|(_, n)| **n * 100 >= whole * 98 && whole > 0);
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
