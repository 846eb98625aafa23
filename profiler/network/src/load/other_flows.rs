//! Flows that were recorded and that no answer shows, by the reason.

use std::collections::BTreeMap;

use super::flows::{Flow, Flows, SSH};
use super::selection::By;
use crate::run::OtherFlows;

/// Flows that are left out, by kind.
#[derive(Debug, Default)]
pub(super) struct OtherKinds(BTreeMap<String, OtherFlows>);

impl OtherKinds {
    /// The same with flows that the methods are not for.
    pub(super) fn with(mut self, flows: &Flows) -> OtherKinds {
        for flow in &flows.others {
            match flows.protocols.name(flow.protocol) {
                "tcp" => self.add(flow, true, format!("TCP port {SSH}")),
                other => self.add(flow, false, other.to_uppercase()),
            }
        }
        self
    }

    /// A flow of which an end is no part of the program.
    pub(super) fn outside(&mut self, flow: &Flow) {
        self.add(
            flow,
            true,
            "TCP with hosts that are no part of the program".into(),
        );
    }

    /// A flow of which both ends are one process for the answers: nothing goes from one to another.
    pub(super) fn within_one(&mut self, flow: &Flow, by: By) {
        let is_owned = flow.src_upid.or(flow.dst_upid).is_some();
        let kind = match by {
            By::Process if is_owned => "TCP from a process to itself (--by endpoint shows them)",
            By::Process => {
                "TCP within one address without a known owner (--by endpoint shows them)"
            }
            By::Host => "TCP within one address (--by process or endpoint shows them)",
            By::Endpoint => "TCP from an endpoint to itself",
        };
        self.add(flow, true, kind.into());
    }

    /// A flow of processes beyond the largest number of them.
    pub(super) fn beyond(&mut self, flow: &Flow, most: usize) {
        let kind = format!("TCP beyond the {most} processes with the most bytes");
        self.add(flow, true, kind);
    }

    /// The most packets first.
    pub(super) fn sorted(self) -> Vec<OtherFlows> {
        let mut kinds: Vec<OtherFlows> = self.0.into_values().collect();
        kinds.sort_by_key(|other_flows| std::cmp::Reverse(other_flows.traffic));
        kinds
    }

    fn add(&mut self, flow: &Flow, is_tcp: bool, kind: String) {
        let sum = self.0.entry(kind).or_insert_with_key(|kind| OtherFlows {
            kind: kind.clone(),
            is_tcp,
            traffic: Some((0, 0)),
            ..OtherFlows::default()
        });
        sum.flows += 1;
        sum.traffic = sum
            .traffic
            .zip(flow.traffic)
            .map(|(sum, more)| (sum.0 + more.0 as u64, sum.1 + more.1 as u64));
    }
}
