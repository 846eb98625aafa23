//! Counters of the machines over time.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use flowtrace_schema::CounterRow;

/// The counters of all machines, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    machines: BTreeMap<i64, Machine>,
}

/// The counters of one machine.
#[derive(Clone, Debug, Default)]
struct Machine {
    series: BTreeMap<Arc<str>, Vec<(i64, i64)>>,
    /// Times of its samples, ns.
    sampled: Vec<i64>,
}

/// Use of a machine in intervals that follow each other: one value each. `None`: not recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Share of its CPUs that were busy.
    pub cpu: Vec<Option<f64>>,
    /// Share of the time in which its busiest disk served requests.
    pub disk_busy: Vec<Option<f64>>,
    /// Bytes that its disks read, and wrote.
    pub disk: [Vec<Option<f64>>; 2],
    /// Bytes that came by network, and went, without the loopback.
    pub network: [Vec<Option<f64>>; 2],
}

/// Interface of a machine to itself.
const LOOPBACK: &str = "lo";

const BUSY: [&str; 5] = [
    "cpu.user",
    "cpu.nice",
    "cpu.system",
    "cpu.interrupt",
    "cpu.steal",
];
const IDLE: [&str; 2] = ["cpu.idle", "cpu.io_wait"];

/// Share of CPU time that was busy; `None`: none passed.
fn busy_share(busy: f64, idle: f64) -> Option<f64> {
    (busy + idle > 0.0).then(|| busy / (busy + idle))
}

impl Machine {
    fn push(&mut self, row: CounterRow) {
        let series = self.series.entry(row.counter).or_default();
        series.push((row.t_ns, row.value));
    }

    /// The devices that have a counter such as `disk.*.busy`.
    fn devices<'a>(&'a self, kind: &'a str, what: &'a str) -> impl Iterator<Item = &'a str> {
        let counters = self
            .series
            .range::<str, _>((Bound::Included(kind), Bound::Unbounded));
        let names = counters.map(|(name, _)| &**name);
        let own = names.take_while(move |name| name.starts_with(kind));
        own.filter_map(move |name| {
            let name = name.strip_prefix(kind)?.strip_prefix('.')?;
            name.strip_suffix(what)?.strip_suffix('.')
        })
    }

    /// Growth of a counter from each time to the next; the times grow.
    fn growths(&self, counter: &str, at: &[i64]) -> Option<Vec<f64>> {
        let series = self.series.get(counter)?;
        let &begin = at.first()?;
        let mut sample = self.sampled.partition_point(|&t| t < begin);
        let mut row = series.partition_point(|&(t, _)| t < begin);
        let values = at.iter().map(|&at| {
            while self.sampled.get(sample).is_some_and(|&t| t <= at) {
                sample += 1;
            }
            let before = sample.checked_sub(1).map(|last| self.sampled[last]);
            while series.get(row).is_some_and(|&(t, _)| Some(t) <= before) {
                row += 1;
            }
            let low = series[row.saturating_sub(1)].1 as f64;
            match (before, self.sampled.get(sample)) {
                (Some(before), Some(&after)) => {
                    // Not stored after the interval, so unchanged there.
                    let next = series.get(row).filter(|&&(t, _)| t == after);
                    let high = next.map_or(low, |&(_, value)| value as f64);
                    let share =
                        at.saturating_sub(before) as f64 / after.saturating_sub(before) as f64;
                    low + (high - low) * share
                }
                _ => low,
            }
        });
        let values: Vec<f64> = values.collect();
        let pairs = values.windows(2);
        Some(pairs.map(|pair| (pair[1] - pair[0]).max(0.0)).collect())
    }

    /// Growth of these counters together; `None`: there is none of them.
    fn together<'a>(
        &self,
        counters: impl IntoIterator<Item = &'a str>,
        at: &[i64],
    ) -> Option<Vec<f64>> {
        let counters = counters.into_iter();
        let grown = counters.filter_map(|counter| self.growths(counter, at));
        grown.reduce(|mut sums, more| {
            for (sum, more) in sums.iter_mut().zip(more) {
                *sum += more;
            }
            sums
        })
    }
}

impl Counters {
    /// From rows in the order of machine, counter and time.
    pub fn new(rows: Vec<CounterRow>) -> Counters {
        let mut counters = Counters::default();
        for row in rows {
            let machine = counters.machines.entry(row.host_id).or_default();
            machine.sampled.push(row.t_ns);
            machine.push(row);
        }
        for machine in counters.machines.values_mut() {
            machine.sampled.sort_unstable();
            machine.sampled.dedup();
        }
        counters
    }

    /// Adds a row, later than those before.
    pub fn push(&mut self, row: CounterRow) {
        let machine = self.machines.entry(row.host_id).or_default();
        if machine.sampled.last().is_none_or(|&last| last < row.t_ns) {
            machine.sampled.push(row.t_ns);
        }
        machine.push(row);
    }

    /// Drops what is only needed for times before this one, ns.
    pub fn forget_before(&mut self, at: i64) {
        for machine in self.machines.values_mut() {
            for series in machine.series.values_mut() {
                let after = series.partition_point(|&(when, _)| when <= at);
                series.drain(..after.saturating_sub(1));
            }
            let after = machine.sampled.partition_point(|&when| when <= at);
            machine.sampled.drain(..after.saturating_sub(1));
        }
    }

    /// The machines that have counters.
    pub fn hosts(&self) -> Vec<i64> {
        self.machines.keys().copied().collect()
    }

    /// The times at which a machine was sampled, ns.
    pub fn sample_times(&self, host: i64) -> &[i64] {
        self.machines.get(&host).map_or(&[], |own| &own.sampled)
    }

    /// The times of the first and the last sample of all machines, ns; `None`: there is none.
    pub fn span(&self) -> Option<(i64, i64)> {
        let machines = self.machines.values();
        let spans = machines.filter_map(|own| Some((*own.sampled.first()?, *own.sampled.last()?)));
        spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Returns true if there is such a counter.
    pub fn has(&self, host: i64, counter: &str) -> bool {
        let machine = self.machines.get(&host);
        machine.is_some_and(|machine| machine.series.contains_key(counter))
    }

    /// The devices that have a counter such as `disk.*.busy`.
    pub fn devices(&self, host: i64, kind: &str, what: &str) -> Vec<String> {
        let machine = self.machines.get(&host).into_iter();
        let names = machine.flat_map(|machine| machine.devices(kind, what));
        names.map(str::to_owned).collect()
    }

    /// The use of a machine from each of these times to the next; the times grow.
    pub fn usage(&self, host: i64, at: &[i64]) -> Usage {
        let intervals = at.len().saturating_sub(1);
        let nothing = || vec![None; intervals];
        let none = Machine::default();
        let machine = self.machines.get(&host).unwrap_or(&none);
        let zeros = || vec![0.0; intervals];
        let busy = machine.together(BUSY, at).unwrap_or_else(zeros);
        let idle = machine.together(IDLE, at).unwrap_or_else(zeros);
        let sum = |kind: &str, what: &str| -> Vec<Option<f64>> {
            let devices = machine.devices(kind, what);
            let devices = devices.filter(|&device| device != LOOPBACK);
            let names: Vec<String> = devices
                .map(|device| format!("{kind}.{device}.{what}"))
                .collect();
            match machine.together(names.iter().map(String::as_str), at) {
                Some(sums) => sums.into_iter().map(Some).collect(),
                None => nothing(),
            }
        };
        let mut disk_busy = nothing();
        for device in machine.devices("disk", "busy") {
            let grown = machine.growths(&format!("disk.{device}.busy"), at);
            let lengths = at
                .windows(2)
                .map(|pair| pair[1].saturating_sub(pair[0]).max(1) as f64);
            for ((most, grown), length) in disk_busy
                .iter_mut()
                .zip(grown.unwrap_or_default())
                .zip(lengths)
            {
                let share = (grown / length).min(1.0);
                *most = Some(most.map_or(share, |most: f64| most.max(share)));
            }
        }
        let shares = busy.into_iter().zip(idle);
        Usage {
            cpu: shares.map(|(busy, idle)| busy_share(busy, idle)).collect(),
            disk_busy,
            disk: ["read_bytes", "write_bytes"].map(|what| sum("disk", what)),
            network: ["receive_bytes", "send_bytes"].map(|what| sum("net", what)),
        }
    }

    /// The value at a sample or between two, by linear interpolation; `None`: there is none.
    pub fn value(&self, host: i64, counter: &str, at: i64) -> Option<f64> {
        let machine = self.machines.get(&host)?;
        let series = machine.series.get(counter)?;
        let stored = |t: i64| {
            let after = series.partition_point(|&(when, _)| when <= t);
            // A counter that was 0 from the beginning has no row until it moves.
            series
                .get(after.saturating_sub(1))
                .map(|&(_, value)| value as f64)
        };
        let times = &machine.sampled;
        let next = times.partition_point(|&t| t <= at);
        let Some(&before) = next.checked_sub(1).and_then(|i| times.get(i)) else {
            return stored(*times.first()?);
        };
        let low = stored(before)?;
        let Some(&after) = times.get(next) else {
            return Some(low);
        };
        let high = stored(after)?;
        Some(low + (high - low) * (at - before) as f64 / (after - before) as f64)
    }

    /// Growth of a counter; `None`: there is no such counter.
    pub fn growth(&self, host: i64, counter: &str, from: i64, to: i64) -> Option<f64> {
        Some((self.value(host, counter, to)? - self.value(host, counter, from)?).max(0.0))
    }

    /// Share of the CPUs that were busy, 0 to 1; `None`: not known.
    pub fn cpu_busy(&self, host: i64, from: i64, to: i64) -> Option<f64> {
        let sum = |names: &[&str]| -> f64 {
            names
                .iter()
                .filter_map(|name| self.growth(host, name, from, to))
                .sum()
        };
        let (busy, idle) = (sum(&BUSY), sum(&IDLE));
        busy_share(busy, idle)
    }

    /// Share of the time in which the busiest disk served requests, and its name.
    pub fn disk_busy(&self, host: i64, from: i64, to: i64) -> Option<(f64, String)> {
        let length = (to - from) as f64;
        self.devices(host, "disk", "busy")
            .into_iter()
            .filter_map(|device| {
                let grown = self.growth(host, &format!("disk.{device}.busy"), from, to)?;
                Some(((grown / length).min(1.0), device))
            })
            .max_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Share of the time of the busiest disk of all machines.
    pub fn busiest_disk(&self, from: i64, to: i64) -> Option<f64> {
        let hosts = self.hosts().into_iter();
        let busy = hosts.filter_map(|host| self.disk_busy(host, from, to));
        busy.map(|(share, _)| share).reduce(f64::max)
    }

    /// Bytes through all interfaces of a kind: `receive_bytes` or `send_bytes`. Without the
    /// loopback unless asked for.
    pub fn net_bytes(&self, host: i64, what: &str, from: i64, to: i64, loopback: bool) -> f64 {
        self.devices(host, "net", what)
            .into_iter()
            .filter(|device| (device == LOOPBACK) == loopback)
            .filter_map(|device| self.growth(host, &format!("net.{device}.{what}"), from, to))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_between_samples_lie_on_a_line_and_unchanged_ones_stay() {
        let row = |counter: &str, t_ns, value| CounterRow {
            host_id: 1,
            counter: counter.into(),
            t_ns,
            value,
        };
        let counters = Counters::new(vec![
            row("cpu.idle", 0, 0),
            row("cpu.idle", 100, 50),
            row("cpu.user", 0, 7),
            row("cpu.user", 200, 107),
            row("disk.sda.busy", 0, 0),
            row("disk.sda.busy", 100, 100),
        ]);
        assert_eq!(counters.value(1, "cpu.idle", 50), Some(25.0));
        // Not stored at 100, so unchanged there.
        assert_eq!(counters.growth(1, "cpu.user", 0, 100), Some(0.0));
        assert_eq!(counters.cpu_busy(1, 0, 100), Some(0.0));
        assert_eq!(counters.cpu_busy(1, 100, 200), Some(1.0));
        assert_eq!(counters.disk_busy(1, 0, 100), Some((1.0, "sda".into())));
        assert_eq!(counters.growth(1, "missing", 0, 1), None);
        // All intervals at once are each of them.
        let at = [-50, 0, 30, 60, 150, 200, 300];
        let usage = counters.usage(1, &at);
        let pairs = at.windows(2);
        let each: Vec<Option<f64>> = pairs.map(|p| counters.cpu_busy(1, p[0], p[1])).collect();
        assert_eq!(usage.cpu, each);
        let disk = |p: &[i64]| counters.disk_busy(1, p[0], p[1]).map(|(share, _)| share);
        let each: Vec<Option<f64>> = at.windows(2).map(disk).collect();
        assert_eq!(usage.disk_busy, each);
        assert_eq!(usage.network[0], [None; 6], "not recorded");
    }
}
