//! The machine over the last minutes.

use std::collections::BTreeMap;

use flowtrace_schema::{CounterRow, HostRow, MeasuredRow, NodeRow};

use super::picture::Machines;
use crate::analysis::nodes::{Nodes, Shown, nodes};
use crate::timeline::machine::{Counters, Usage};

/// Time that is kept and shown, ns.
const KEPT_NS: i64 = 120_000_000_000;
/// Time of one point of a picture, ns.
const STEP_NS: i64 = 2_000_000_000;
/// The same of the charts of single machines, which are small, once there is more than half of what is kept.
const WIDE_STEP_NS: i64 = 2 * STEP_NS;
/// Rates of single machines are means over so long, ns.
const RATE_NS: i64 = 10_000_000_000;
/// Machines whose last sample is so much older than that of others are not waited for, ns.
const LATE_NS: i64 = 5_000_000_000;
/// Rows that are added before old ones are dropped.
const TIDY: usize = 20_000;

/// The counters of the last minutes.
#[derive(Debug, Default)]
pub(super) struct Machine {
    counters: Counters,
    rows: usize,
    /// Samples of each agent that came, and when that number last grew, ns.
    came: BTreeMap<i64, (i64, i64)>,
    /// The last picture, which stays until the next step of time.
    drawn: Machines,
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

    /// The ends of steps of time of this length, ns: multiples of it, so that a step stays the same from picture to
    /// picture. The last one is there of all machines that are not late.
    fn steps(&self, length_ns: i64) -> Vec<i64> {
        let Some((first, last)) = self.counters.span() else {
            return Vec::new();
        };
        let hosts = self.counters.hosts().into_iter();
        let lasts = hosts.filter_map(|host| self.counters.sample_times(host).last().copied());
        let in_time = lasts.filter(|&own| own >= last.saturating_sub(LATE_NS));
        let to = in_time.min().unwrap_or(last).div_euclid(length_ns);
        let from = first.saturating_add(length_ns - 1).div_euclid(length_ns);
        let from = from.max(to - KEPT_NS / length_ns);
        (from..=to).map(|step| step * length_ns).collect()
    }

    /// The machines beside each other; `now_ns`: the present, while the recording goes on.
    pub(super) fn nodes(
        &mut self,
        hosts: &[HostRow],
        watched: &[NodeRow],
        now_ns: Option<i64>,
    ) -> Nodes {
        for row in watched {
            let last = self.counters.sample_times(row.host_id).last().copied();
            let noticed = now_ns.or(last).unwrap_or(0);
            // What came before this began to follow came with its samples. Later ones may have no values: a
            // value that has not changed is not stored again.
            let came = self
                .came
                .entry(row.host_id)
                .or_insert((row.received, last.unwrap_or(noticed)));
            if came.0 != row.received {
                *came = (row.received, noticed);
            }
        }
        let span = self.counters.span();
        let is_long = span.is_some_and(|(first, last)| last.saturating_sub(first) > KEPT_NS / 2);
        let step_ns = if is_long { WIDE_STEP_NS } else { STEP_NS };
        let heard = self.came.iter().map(|(&host, &(_, at))| (host, at));
        let shown = Shown {
            steps: self.steps(step_ns),
            rate_ns: Some(RATE_NS),
            now_ns,
            heard_ns: heard.collect(),
        };
        nodes(&self.counters, hosts, watched, &shown)
    }

    /// The use of the machines together, step by step.
    pub(super) fn picture(&mut self) -> Machines {
        let at = self.steps(STEP_NS);
        let until_ns = at.last().copied().unwrap_or(0);
        if until_ns != self.drawn.until_ns {
            self.drawn = self.together(&at);
        }
        self.drawn.clone()
    }

    fn together(&self, at: &[i64]) -> Machines {
        let points = at.len().saturating_sub(1);
        let hosts = self.counters.hosts().into_iter();
        let used: Vec<Usage> = hosts.map(|host| self.counters.usage(host, at)).collect();
        let known = |point: usize, of: fn(&Usage) -> &Vec<Option<f64>>| {
            used.iter().filter_map(move |usage| of(usage)[point])
        };
        let mean = |values: Vec<f64>| {
            let sum = values.iter().sum::<f64>();
            (!values.is_empty()).then(|| rounded(sum / values.len() as f64))
        };
        let rates = |of: fn(&Usage) -> &Vec<Option<f64>>| -> Vec<i64> {
            let sums = (0..points).map(|point| known(point, of).sum::<f64>());
            sums.map(|bytes| (bytes * 1e9 / STEP_NS as f64) as i64)
                .collect()
        };
        Machines {
            step_ns: STEP_NS,
            until_ns: at.last().copied().unwrap_or(0),
            cpu: (0..points)
                .map(|point| mean(known(point, |usage| &usage.cpu).collect()))
                .collect(),
            disk_busy: (0..points)
                .map(|point| {
                    known(point, |usage| &usage.disk_busy)
                        .reduce(f64::max)
                        .map(rounded)
                })
                .collect(),
            disk_read: rates(|usage| &usage.disk[0]),
            disk_write: rates(|usage| &usage.disk[1]),
            net_in: rates(|usage| &usage.network[0]),
            net_out: rates(|usage| &usage.network[1]),
        }
    }
}

/// A share with three digits, which is what a picture shows.
fn rounded(share: f64) -> f64 {
    (share * 1000.0).round() / 1000.0
}
