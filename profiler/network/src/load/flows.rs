//! The flows of a trace in little memory. There may be a million of them, with few addresses.

use ahash::AHashMap;
use flowtrace_schema::{FlowCaptureRow, FlowEnds, Result, Trace};

use super::selection::{By, Selection};

/// Port of secure shell, by which people watch runs.
pub(super) const SSH: i64 = 22;

/// Names by numbers, which count from 0 in the order of first use.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: AHashMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        number
    }

    pub(super) fn name(&self, number: u32) -> &str {
        &self.names[number as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// All names, in the order of their numbers.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

/// A flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) id: i64,
    /// Numbers of the addresses at both ends, and their ports.
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) sport: Option<i64>,
    pub(super) dport: Option<i64>,
    /// Number of the protocol.
    pub(super) protocol: u32,
    /// Processes at both ends, if known.
    pub(super) src_upid: Option<i64>,
    pub(super) dst_upid: Option<i64>,
    /// True if the process tracer ran where the flow was captured, so that its owner would be known.
    is_beside_run: bool,
    /// Packets and payload, if known. Each direction has the counts of the capture that saw most of it.
    pub(super) traffic: Option<(i64, i64)>,
}

impl Flow {
    /// True if a process of a recorded run is at an end.
    fn is_of_run(&self) -> bool {
        self.is_beside_run && self.src_upid.or(self.dst_upid).is_some()
    }

    /// True if it carried no payload, as a refused connection. No method has a message of it.
    fn is_silent(&self) -> bool {
        self.traffic.is_some_and(|(_, bytes)| bytes == 0)
    }
}

/// Reason why a flow of the program is not analysed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skipped {
    /// None of its ends is a process of the recorded run.
    OtherProgram,
    /// It carried no payload.
    Silent,
}

/// All flows that were read.
#[derive(Debug, Default)]
pub(super) struct Flows {
    pub(super) addresses: Names,
    pub(super) protocols: Names,
    /// Flows to which the methods apply, in the order of ids.
    pub(super) program: Vec<Flow>,
    /// The other flows, in the order of ids.
    pub(super) others: Vec<Flow>,
    newest: Option<i64>,
}

impl Flows {
    /// Reads the flows that are newer than all flows read before.
    pub(super) fn read(&mut self, trace: &Trace) -> Result<()> {
        trace.flow_ends(self.newest.unwrap_or(i64::MIN), |flow| {
            self.newest = Some(flow.flow_id);
            let kept = Flow {
                id: flow.flow_id,
                src: self.addresses.number(flow.src),
                dst: self.addresses.number(flow.dst),
                sport: flow.sport,
                dport: flow.dport,
                protocol: self.protocols.number(flow.proto),
                src_upid: flow.src_upid,
                dst_upid: flow.dst_upid,
                is_beside_run: flow.is_beside_run,
                traffic: None,
            };
            match is_of_program(flow) {
                true => self.program.push(kept),
                false => self.others.push(kept),
            }
        })
    }

    /// True if owners of flows may become known while the trace grows.
    pub(super) fn are_beside_run(&self) -> bool {
        self.program.iter().any(|flow| flow.is_beside_run)
    }

    /// True if only the flows of the recorded run's own processes are analysed: there are some, and no host
    /// is selected.
    pub(super) fn is_of_run(&self, selection: &Selection) -> bool {
        selection.hosts.is_empty() && self.program.iter().any(Flow::is_of_run)
    }

    /// The flows of the program, each with the reason if it is not analysed.
    pub(super) fn weighed(
        &self,
        selection: &Selection,
    ) -> impl Iterator<Item = (&Flow, Option<Skipped>)> {
        let is_of_run = self.is_of_run(selection);
        self.program.iter().map(move |flow| {
            let is_other = is_of_run && flow.is_beside_run && !flow.is_of_run();
            let silent = || flow.is_silent().then_some(Skipped::Silent);
            (
                flow,
                is_other.then_some(Skipped::OtherProgram).or_else(silent),
            )
        })
    }

    /// The flows that are analysed.
    pub(super) fn analysed(&self, selection: &Selection) -> impl Iterator<Item = &Flow> {
        let all = self.weighed(selection);
        all.filter_map(|(flow, skipped)| skipped.is_none().then_some(flow))
    }

    /// Unit that is one node: as selected; else processes if the flows of a recorded run are analysed, or
    /// all flows are within one address.
    pub(super) fn by(&self, selection: &Selection) -> By {
        let natural = || {
            let mut used = self.analysed(selection).peekable();
            let is_within_one = used.peek().is_some() && used.all(|flow| flow.src == flow.dst);
            match is_within_one || self.is_of_run(selection) {
                true => By::Process,
                false => By::Host,
            }
        };
        selection.by.unwrap_or_else(natural)
    }

    /// Sets the traffic of the flows from the counts of each capture, which are in the order of flows.
    pub(super) fn count(&mut self, rows: &[FlowCaptureRow]) {
        for flows in [&mut self.program, &mut self.others] {
            let mut rest = rows;
            for flow in flows {
                let of_flow = rows_of(flow, &mut rest);
                let most = |of: fn(&FlowCaptureRow) -> i64| of_flow.iter().map(of).max();
                let sum = |out, back| Some(most(out)? + most(back)?);
                let packets = sum(|row| row.out_packets, |row| row.back_packets);
                flow.traffic = packets.zip(sum(|row| row.out_bytes, |row| row.back_bytes));
            }
        }
    }
}

/// The rows of a flow at the begin of `rest`, which is then advanced past them. Rows and flows must
/// come in the order of ids.
pub(super) fn rows_of<'a>(flow: &Flow, rest: &mut &'a [FlowCaptureRow]) -> &'a [FlowCaptureRow] {
    let before = rest.iter().take_while(|row| row.flow_id < flow.id).count();
    let (_, from) = rest.split_at(before);
    let own = from.iter().take_while(|row| row.flow_id == flow.id).count();
    let (own, behind) = from.split_at(own);
    *rest = behind;
    own
}

fn is_of_program(flow: &FlowEnds<'_>) -> bool {
    flow.proto == "tcp" && flow.sport != Some(SSH) && flow.dport != Some(SSH)
}
