//! A trace that is asked again and again while it grows: each time only what is new is read.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ahash::AHashMap;
use flowtrace_schema::{FlowEnds, Result, Trace, marks};

use super::{By, Chosen, Selection, chosen, inputs, is_of_program, named, natural, packet};
use crate::network::run::{Packet, Run, Unknown};

/// Packets are stored a little out of order where several places are captured: so much of the end is
/// read again, ns.
const AGAIN_NS: i64 = 1_000_000_000;

/// The packets of a growing trace that were read so far.
#[derive(Debug)]
pub struct Growing {
    selection: Selection,
    keep_ns: Option<i64>,
    /// Packets of each capture in the order of time; source and destination are still those of the
    /// flow, 0 and 1, for who is who may change when more is known.
    packets: BTreeMap<i64, Vec<Packet>>,
    /// Packets and bytes of payload by flow and capture, also of what was forgotten.
    sums: AHashMap<(i64, i64), (i64, i64)>,
    newest_ns: Option<i64>,
    /// Flows of the program and others, in the order of their ids.
    flows: [Vec<FlowEnds>; 2],
    newest_flow: i64,
}

impl Growing {
    /// Of a selection (its interval is not looked at). No more than is needed for the last `last_s` is
    /// kept.
    pub fn new(selection: Selection, last_s: Option<f64>) -> Growing {
        Growing {
            selection,
            keep_ns: last_s.map(|seconds| (seconds.max(0.0) * 1e9).min(9e18) as i64),
            packets: BTreeMap::new(),
            sums: AHashMap::new(),
            newest_ns: None,
            flows: Default::default(),
            newest_flow: i64::MIN,
        }
    }

    /// What the trace holds now.
    ///
    /// # Errors
    /// When the file cannot be read; the inner one when a host is asked for that is not there.
    pub fn read(&mut self, trace: &Trace) -> Result<std::result::Result<Run, Unknown>> {
        self.read_new(trace)?;
        let by = self.read_flows(trace)?;
        let [flows, others] = &self.flows;
        let captures = trace.captures()?;
        let labels = named(trace, by)?;
        let (packets, sums) = (&self.packets, &self.sums);
        let seen = chosen::seen(flows.iter().flat_map(|flow| {
            let of_capture = move |&capture: &i64| {
                let (packets, _) = sums.get(&(flow.flow_id, capture))?;
                Some((capture, flow, *packets))
            };
            packets.keys().filter_map(of_capture)
        }));
        let mut chosen = match Chosen::new(flows, &self.selection, by, &seen, &captures, &labels) {
            Ok(chosen) => chosen,
            Err(unknown) => return Ok(Err(unknown)),
        };
        let (mut inputs, at) = inputs(&captures);
        for (capture, packets) in &self.packets {
            let Some(input) = at.get(capture).and_then(|&at| inputs.get_mut(at)) else {
                continue;
            };
            let known = packets.iter().filter_map(|packet| {
                let &(a, b) = chosen.ends.get(&i64::from(packet.flow))?;
                let (src, dst) = if packet.src == 0 { (a, b) } else { (b, a) };
                Some(Packet {
                    src,
                    dst,
                    ..*packet
                })
            });
            input.packets.extend(known);
        }
        let errors = trace.hosts()?;
        let errors = errors.iter().filter_map(|host| host.clock_error_ns).max();
        let left_out = std::mem::take(&mut chosen.left_out);
        let run = Run::new(chosen.names, inputs).with_origin(errors, left_out);
        let run = run.with_aside(chosen.aside.with(others).sorted(), 0);
        self.forget(run.span_ns().1);
        Ok(Ok(run))
    }

    /// Reads new flows, and sums up all; what counts as a process.
    fn read_flows(&mut self, trace: &Trace) -> Result<By> {
        self.read_flows_since(trace, self.newest_flow)?;
        let by = self.selection.by;
        let by = by.unwrap_or_else(|| natural(&self.flows[0]));
        if by == By::Process {
            // Whose they are shows later.
            self.flows = Default::default();
            self.read_flows_since(trace, i64::MIN)?;
        }
        for flow in &mut self.flows[0] {
            let captures = self.packets.keys();
            let sums = captures.filter_map(|&capture| self.sums.get(&(flow.flow_id, capture)));
            let most = sums.fold((0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1)));
            (flow.packets, flow.bytes) = (Some(most.0), Some(most.1));
        }
        Ok(by)
    }

    fn read_flows_since(&mut self, trace: &Trace, above: i64) -> Result<()> {
        for flow in trace.flow_ends(above)? {
            self.newest_flow = flow.flow_id;
            self.flows[usize::from(!is_of_program(&flow))].push(flow);
        }
        Ok(())
    }

    /// Drops what is too old to be asked for, seen from the program's newest packet.
    fn forget(&mut self, newest_ns: i64) {
        let Some(keep) = self.keep_ns else {
            return;
        };
        let oldest = newest_ns.saturating_sub(keep.max(AGAIN_NS));
        for packets in self.packets.values_mut() {
            // Not at every look: what is left is moved to the front.
            let old = packets.partition_point(|packet| packet.t_ns < oldest);
            if old * 2 > packets.len() {
                packets.drain(..old);
            }
        }
    }

    fn read_new(&mut self, trace: &Trace) -> Result<()> {
        // All of it at first: who belongs to the program shows in the whole.
        let from_ns = self
            .newest_ns
            .map_or(i64::MIN, |newest| newest.saturating_sub(AGAIN_NS));
        let sums = &mut self.sums;
        for (&capture, packets) in &mut self.packets {
            let first = packets.partition_point(|packet| packet.t_ns < from_ns);
            for packet in packets.drain(first..) {
                if let Some(sum) = sums.get_mut(&(i64::from(packet.flow), capture)) {
                    *sum = (sum.0 - 1, sum.1 - i64::from(packet.payload));
                }
            }
        }
        let (packets, newest_ns) = (&mut self.packets, &mut self.newest_ns);
        trace.packets_since(from_ns, |row| {
            if let Some(seq) = row.seq
                && row.marks & marks::FRAGMENT == 0
            {
                let of = packets.entry(row.capture_id).or_default();
                of.push(packet(
                    row,
                    seq,
                    u16::from(row.dir),
                    u16::from(row.dir == 0),
                ));
                let sum = sums.entry((row.flow_id, row.capture_id)).or_default();
                *sum = (sum.0 + 1, sum.1 + i64::from(row.payload_bytes));
                *newest_ns = Some(newest_ns.map_or(row.t_ns, |newest| newest.max(row.t_ns)));
            }
            ControlFlow::Continue(())
        })?;
        Ok(())
    }
}
