//! The machine over the last minutes.

use flowtrace_schema::{CounterRow, MeasuredRow};

use super::picture::Machines;
use crate::timeline::machine::Counters;

/// Time that is kept and shown, ns.
const KEPT_NS: i64 = 120_000_000_000;
/// Time of one point of a picture, ns.
const STEP_NS: i64 = 2_000_000_000;
/// Rows that are added before old ones are dropped.
const TIDY: usize = 20_000;

/// The counters of the last minutes.
#[derive(Debug, Default)]
pub(super) struct Machine {
    counters: Counters,
    rows: usize,
}

impl Machine {
    pub(super) fn add(&mut self, rows: Vec<MeasuredRow>) {
        let mut last = 0;
        for row in rows {
            last = row.t_ns;
            self.rows += 1;
            self.counters.push(CounterRow {
                host_id: row.host_id,
                counter: row.counter,
                t_ns: row.t_ns,
                value: row.value,
            });
        }
        if self.rows > TIDY {
            self.rows = 0;
            self.counters.forget_before(last - KEPT_NS);
        }
    }

    /// The use of the machines, point by point up to the last sample.
    pub(super) fn picture(&self) -> Machines {
        let hosts = self.counters.hosts();
        let times = hosts
            .iter()
            .filter_map(|&host| self.counters.sample_times(host).last());
        let Some(&last) = times.max() else {
            return Machines::default();
        };
        let first = hosts
            .iter()
            .filter_map(|&host| self.counters.sample_times(host).first());
        let first = first.min().copied().unwrap_or(last).max(last - KEPT_NS);
        let points = ((last - first) / STEP_NS).max(0);
        let mut machines = Machines {
            step_ns: STEP_NS,
            until_ns: last,
            ..Machines::default()
        };
        let c = &self.counters;
        for point in 0..points {
            let from = last - (points - point) * STEP_NS;
            let to = from + STEP_NS;
            let second = STEP_NS as f64 / 1e9;
            let sum = |of: &dyn Fn(i64) -> f64| -> i64 {
                (hosts.iter().map(|&host| of(host)).sum::<f64>() / second) as i64
            };
            let busy = hosts.iter().filter_map(|&host| c.cpu_busy(host, from, to));
            let busy: Vec<f64> = busy.collect();
            let mean = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
            machines
                .cpu
                .push((!busy.is_empty()).then_some(rounded(mean)));
            machines
                .disk_busy
                .push(c.busiest_disk(from, to).map(rounded));
            machines
                .disk_read
                .push(sum(&|host| c.disk_sum(host, "read_bytes", from, to)));
            machines
                .disk_write
                .push(sum(&|host| c.disk_sum(host, "write_bytes", from, to)));
            let net = |what| move |host| c.net_bytes(host, what, from, to, false);
            machines.net_in.push(sum(&net("receive_bytes")));
            machines.net_out.push(sum(&net("send_bytes")));
        }
        machines
    }
}

/// A share with three digits, which is what a picture shows.
fn rounded(share: f64) -> f64 {
    (share * 1000.0).round() / 1000.0
}
