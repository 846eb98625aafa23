//! A trace that is asked again and again while it grows: each time only what is new is read.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use ahash::AHashMap;
use flowtrace_schema::{Result, Trace, marks};

use super::chosen::{Chosen, Counts};
use super::flows::Flows;
use super::packets::{inputs, packet};
use super::selection::{By, Selection};
use crate::run::{Packet, Run, Unknown};

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
    flows: Flows,
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
            flows: Flows::default(),
        }
    }

    /// Reads what is new of the trace. The result is what is one node by now: [`Growing::run`] needs the names of it.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&mut self, trace: &Trace) -> Result<By> {
        self.read_packets(trace)?;
        self.flows.read(trace)?;
        let by = self.flows.by(&self.selection);
        if by == By::Process {
            // Whose they are shows later.
            self.flows = Flows::default();
            self.flows.read(trace)?;
        }
        Ok(by)
    }

    /// The run of what was read. `labels` are the names of process images by upid, for [`By::Process`].
    ///
    /// # Errors
    /// When the file cannot be read; the inner one when a host is asked for that is not there.
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

    /// The same for the last time: nothing is kept for another one, so that the packets need not be there
    /// twice.
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

    /// The run of what was read; `take` takes the packets of a capture, each as it is known by now.
    fn run_of(
        &mut self,
        trace: &Trace,
        labels: &HashMap<i64, String>,
        take: impl Fn(&mut Vec<Packet>, &dyn Fn(&Packet) -> Option<Packet>) -> Vec<Packet>,
    ) -> Result<std::result::Result<Run, Unknown>> {
        let by = self.flows.by(&self.selection);
        let captures = trace.captures()?;
        let counts = self.count();
        let seen = counts.named(&self.flows.addresses);
        let chosen = Chosen::new(&self.flows, &self.selection, by, &seen, &captures, labels);
        let mut chosen = match chosen {
            Ok(chosen) => chosen,
            Err(unknown) => return Ok(Err(unknown)),
        };
        let (mut inputs, at) = inputs(&captures);
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

    /// Sums up what was read of each flow, and what captures have of the program.
    fn count(&mut self) -> Counts {
        let mut counts = Counts::default();
        for flow in &mut self.flows.program {
            let mut most = (0, 0);
            for &capture in self.packets.keys() {
                if let Some(&(packets, bytes)) = self.sums.get(&(flow.id, capture)) {
                    most = (most.0.max(packets), most.1.max(bytes));
                    counts.add(capture, flow, packets);
                }
            }
            flow.traffic = Some(most);
        }
        counts
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

    fn read_packets(&mut self, trace: &Trace) -> Result<()> {
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
