//! A trace that is read again and again while it grows. Each time only its new part is read.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use ahash::AHashMap;
use flowtrace_schema::{Result, Trace, marks};

use super::chosen::{Chosen, Counts};
use super::flows::{Flow, Flows};
use super::packets::{inputs, packet};
use super::selection::{By, Selection};
use crate::run::{Packet, Run, Unknown};

/// Length of the end that is read again, ns: captures of several places store packets a little out of
/// order.
const AGAIN_NS: i64 = 1_000_000_000;

/// The packets of a growing trace that were read so far.
#[derive(Debug)]
pub struct Growing {
    selection: Selection,
    keep_ns: Option<i64>,
    /// Packets of each capture in the order of time. Source and destination are the ends of the flow, 0
    /// and 1, since the processes at them may become known later.
    packets: BTreeMap<i64, Vec<Packet>>,
    /// Packets and bytes of payload by flow and capture, including forgotten packets.
    sums: AHashMap<(i64, i64), (i64, i64)>,
    newest_ns: Option<i64>,
    flows: Flows,
}

impl Growing {
    /// Packets of a selection, whose interval is ignored. Only packets that are needed for the last
    /// `last_s` seconds are kept.
    pub fn new(selection: Selection, last_s: Option<f64>) -> Growing {
        Growing {
            selection,
            keep_ns: last_s.map(|seconds| (seconds.max(0.0) * 1e9).min(9e18) as i64),
            packets: BTreeMap::new(),
            sums: AHashMap::new(),
            newest_ns: None,
            flows: Flows::default(),
        }
    }

    /// Reads the new part of the trace. Returns the unit that is a node by now; [`Growing::run`] needs
    /// the names of these units.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&mut self, trace: &Trace) -> Result<By> {
        self.read_packets(trace)?;
        self.flows.read(trace)?;
        let by = self.flows.by(&self.selection);
        if by == By::Process || self.flows.are_beside_run() {
            // The owners of the new flows are found later.
            self.flows = Flows::default();
            self.flows.read(trace)?;
        }
        Ok(self.flows.by(&self.selection))
    }

    /// The run made from the packets that were read. `labels` has the names of process images by upid,
    /// for [`By::Process`].
    ///
    /// # Errors
    /// The outer error means that the file cannot be read; the inner one, that a selected host is not
    /// in the trace.
    pub fn run(
        &mut self,
        trace: &Trace,
        labels: &HashMap<i64, String>,
    ) -> Result<std::result::Result<Run, Unknown>> {
        let run = self.run_of(trace, labels, |packets, known| {
            let mut kept = Vec::with_capacity(packets.len());
            kept.extend(packets.iter().filter_map(known));
            kept
        })?;
        if let Ok(run) = &run {
            self.forget(run.span_ns().1);
        }
        Ok(run)
    }

    /// The last run. It takes the packets, so that they need not be in memory twice.
    ///
    /// # Errors
    /// As [`Growing::run`].
    pub fn last_run(
        &mut self,
        trace: &Trace,
        labels: &HashMap<i64, String>,
    ) -> Result<std::result::Result<Run, Unknown>> {
        let run = self.run_of(trace, labels, |packets, known| {
            let mut kept = std::mem::take(packets);
            kept.retain_mut(|packet| match known(packet) {
                Some(known) => {
                    *packet = known;
                    true
                }
                None => false,
            });
            kept
        })?;
        let keep_ns = self.keep_ns;
        *self = Growing::new(std::mem::take(&mut self.selection), None);
        self.keep_ns = keep_ns;
        Ok(run)
    }

    /// The run made from the packets that were read. `take` returns the packets of a capture, with
    /// their nodes as known by now.
    fn run_of(
        &mut self,
        trace: &Trace,
        labels: &HashMap<i64, String>,
        take: impl Fn(&mut Vec<Packet>, &dyn Fn(&Packet) -> Option<Packet>) -> Vec<Packet>,
    ) -> Result<std::result::Result<Run, Unknown>> {
        let by = self.flows.by(&self.selection);
        let captures = trace.captures()?;
        let counts = self.count();
        let chosen = Chosen::new(&self.flows, &self.selection, by, &counts, &captures, labels);
        let mut chosen = match chosen {
            Ok(chosen) => chosen,
            Err(unknown) => return Ok(Err(unknown)),
        };
        let (mut inputs, at) = inputs(&captures, &chosen.beside);
        let known = |packet: &Packet| {
            let &(a, b) = chosen.ends.get(&i64::from(packet.flow))?;
            let (src, dst) = if packet.src == 0 { (a, b) } else { (b, a) };
            Some(Packet {
                src,
                dst,
                ..*packet
            })
        };
        for (capture, packets) in &mut self.packets {
            if let Some(input) = at.get(capture).and_then(|&at| inputs.get_mut(at)) {
                input.packets = take(packets, &known);
            }
        }
        let errors = trace.hosts()?;
        let errors = errors.iter().filter_map(|host| host.clock_error_ns).max();
        let left_out = std::mem::take(&mut chosen.left_out);
        let run = Run::new(chosen.names, inputs).with_origin(errors, left_out);
        let run = run.with_other_flows(chosen.other_flows.with(&self.flows).sorted(), 0);
        Ok(Ok(run))
    }

    /// Sums up the packets of each flow, and those of the program in each capture.
    fn count(&mut self) -> Counts {
        let seen = |flow: &Flow| {
            let of = |&capture: &i64| Some((capture, *self.sums.get(&(flow.id, capture))?));
            self.packets.keys().filter_map(of).collect::<Vec<_>>()
        };
        for flow in &mut self.flows.program {
            let sums = seen(flow).into_iter().map(|(_, sums)| sums);
            let most = sums.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)));
            flow.traffic = Some(most.unwrap_or_default());
        }
        let mut counts = Counts::default();
        for flow in self.flows.analysed(&self.selection) {
            for (capture, (packets, _)) in seen(flow) {
                counts.add(capture, flow, packets);
            }
        }
        counts
    }

    /// Drops packets that are too old to be needed, counted from the program's newest packet.
    fn forget(&mut self, newest_ns: i64) {
        let Some(keep) = self.keep_ns else {
            return;
        };
        let oldest = newest_ns.saturating_sub(keep.max(AGAIN_NS));
        for packets in self.packets.values_mut() {
            // Packets are not dropped each time, since that moves all others to the front.
            let old = packets.partition_point(|packet| packet.t_ns < oldest);
            if old * 2 > packets.len() {
                packets.drain(..old);
            }
        }
    }

    fn read_packets(&mut self, trace: &Trace) -> Result<()> {
        // All packets at first, since the processes of the program show only in the whole.
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
