//! Connections of a trace, and the packets of those that belong to the program.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use flowtrace_schema::{Result, Trace, marks};

use super::chosen::{Chosen, Counts};
use super::flows::{self, Flow, Flows};
use super::packets::{inputs, packet};
use super::selection::{By, Selection};
use crate::run::{Run, TimeAccounting, Unknown};

/// All connections of a trace. They decide which unit is a node, and so which names
/// [`Connections::load`] needs.
#[derive(Debug)]
pub struct Connections(Flows);

impl Connections {
    /// Reads the connections.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(trace: &Trace) -> Result<Connections> {
        let mut flows = Flows::default();
        flows.read(trace)?;
        Ok(Connections(flows))
    }

    /// Unit that is one node, as [`Selection::by`] describes it.
    pub fn by(&self, selection: &Selection) -> By {
        self.0.by(selection)
    }

    /// Loads the packets of the program's TCP connections. `labels` has the names of process images by
    /// upid, for [`By::Process`]. A process without a label is named by its address.
    ///
    /// # Errors
    /// The outer error means that the file cannot be read; the inner one, that a selected host is not
    /// in the trace.
    pub fn load(
        self,
        trace: &Trace,
        selection: &Selection,
        labels: &HashMap<i64, String>,
    ) -> Result<std::result::Result<Run, Unknown>> {
        let Connections(mut flows) = self;
        let counts = count(trace, &mut flows, selection)?;
        let hosts = trace.hosts()?;
        let captures = trace.captures()?;
        let by = flows.by(selection);
        let mut chosen = match Chosen::new(&flows, selection, by, &counts, &captures, labels) {
            Ok(chosen) => chosen,
            Err(unknown) => return Ok(Err(unknown)),
        };
        let errors = hosts.iter().filter_map(|host| host.clock_error_ns).max();
        let left_out = std::mem::take(&mut chosen.left_out);
        let other_flows = std::mem::take(&mut chosen.other_flows)
            .with(&flows)
            .sorted();
        let accounting = match selection.within_ns {
            // The kernel's totals are those of whole lives.
            Some(_) => Vec::new(),
            None => accounting(trace, &flows.program, &chosen)?,
        };
        // There may be a million, and the packets need the memory.
        drop(counts);
        drop(flows);
        let (mut inputs, at) = inputs(&captures, &chosen.beside);
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
            if let (Some((a, b)), Some(seq), Some(&capture)) =
                (ends, row.seq, at.get(&row.capture_id))
                && row.marks & marks::FRAGMENT == 0
            {
                let (src, dst) = if row.dir == 0 { (a, b) } else { (b, a) };
                inputs[capture].packets.push(packet(row, seq, src, dst));
            } else if ends.is_some() {
                without_header += 1;
            }
            ControlFlow::Continue(())
        })?;
        // A machine with several interfaces has several captures. Each process is assigned the one that
        // has most of its packets.
        let run = Run::new(chosen.names, inputs).with_origin(errors, left_out);
        Ok(Ok(run
            .with_other_flows(other_flows, without_header)
            .with_accounting(accounting)))
    }
}

/// Time accounting of the processes at the ends of each node's connections.
fn accounting(
    trace: &Trace,
    flows: &[Flow],
    chosen: &Chosen,
) -> Result<Vec<Option<TimeAccounting>>> {
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
        let accounting = TimeAccounting {
            on_cpu_s: seconds(row.on_cpu_ns)?,
            run_queue_s: seconds(row.run_queue_ns)?,
            storage_s: seconds(row.storage_ns).unwrap_or(0.0),
        };
        Some((row.upid, accounting))
    });
    let times: HashMap<i64, TimeAccounting> = times.collect();
    // A node must be one process, or the times cannot be compared: on loopback, one address may belong
    // to several processes, and one process may have several addresses.
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

/// Adds the captures' counts to the flows, as the view `flows` does. Returns the packets of the analysed
/// flows in each capture.
fn count(trace: &Trace, flows: &mut Flows, selection: &Selection) -> Result<Counts> {
    let mut rows = trace.flow_captures_unordered()?;
    rows.sort_unstable_by_key(|row| row.flow_id);
    flows.count(&rows);
    let mut counts = Counts::default();
    let mut rest = &rows[..];
    for flow in flows.analysed(selection) {
        for row in flows::rows_of(flow, &mut rest) {
            counts.add(row.capture_id, flow, row.out_packets + row.back_packets);
        }
    }
    Ok(counts)
}
