//! Recorded flows that appear in no answer, by the reason.

use std::collections::BTreeMap;

use super::flows::{Flow, Flows, SSH, Skipped};
use super::selection::By;
use crate::run::OtherFlows;

/// Flows that are left out, by kind.
#[derive(Debug, Default)]
pub(super) struct OtherKinds(BTreeMap<String, OtherFlows>);

impl OtherKinds {
    /// Adds the flows to which the methods do not apply.
    pub(super) fn with(mut self, flows: &Flows) -> OtherKinds {
        for flow in &flows.others {
            match flows.protocols.name(flow.protocol) {
                "tcp" => self.add(flow, true, format!("TCP port {SSH}")),
                other => self.add(flow, false, other.to_uppercase()),
            }
        }
        self
    }

    /// Adds a flow with an end outside of the program.
    pub(super) fn outside(&mut self, flow: &Flow) {
        self.add(
            flow,
            true,
            "TCP with hosts that are no part of the program".into(),
        );
    }

    /// Adds a flow that is not analysed.
    pub(super) fn skipped(&mut self, flow: &Flow, why: Skipped) {
        let kind = match why {
            Skipped::OtherProgram => "TCP of programs outside of the run",
            Skipped::Silent => "TCP without payload, as refused connections",
        };
        self.add(flow, true, kind.into());
    }

    /// Adds a flow with both ends in one process as defined by `by`, so that nothing goes from one
    /// process to another.
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

    /// Adds a flow of a process beyond the largest number of processes.
    pub(super) fn beyond(&mut self, flow: &Flow, most: usize) {
        let kind = format!("TCP beyond the {most} processes with the most bytes");
        self.add(flow, true, kind);
    }

    /// The kinds, those with the most packets first.
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
