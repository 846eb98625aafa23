//! Counters of the machines over time.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowtrace_schema::CounterRow;

/// A machine and the name of a counter.
type Key = (i64, Arc<str>);

/// The counters of all machines.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    series: BTreeMap<Key, Vec<(i64, i64)>>,
    /// Times of the samples of each machine, ns.
    sampled: BTreeMap<i64, Vec<i64>>,
}

impl Counters {
    /// From rows in the order of machine, counter and time.
    pub fn new(rows: Vec<CounterRow>) -> Counters {
        let mut counters = Counters::default();
        for row in rows {
            counters
                .sampled
                .entry(row.host_id)
                .or_default()
                .push(row.t_ns);
            counters
                .series
                .entry((row.host_id, row.counter))
                .or_default()
                .push((row.t_ns, row.value));
        }
        for times in counters.sampled.values_mut() {
            times.sort_unstable();
            times.dedup();
        }
        counters
    }

    /// Adds a row, later than those before.
    pub fn push(&mut self, row: CounterRow) {
        let times = self.sampled.entry(row.host_id).or_default();
        if times.last().is_none_or(|&last| last < row.t_ns) {
            times.push(row.t_ns);
        }
        let series = self.series.entry((row.host_id, row.counter)).or_default();
        series.push((row.t_ns, row.value));
    }

    /// Drops what is only needed for times before this one, ns.
    pub fn forget_before(&mut self, at: i64) {
        for series in self.series.values_mut() {
            let after = series.partition_point(|&(when, _)| when <= at);
            series.drain(..after.saturating_sub(1));
        }
        for times in self.sampled.values_mut() {
            let after = times.partition_point(|&when| when <= at);
            times.drain(..after.saturating_sub(1));
        }
    }

    /// The machines that have counters.
    pub fn hosts(&self) -> Vec<i64> {
        self.sampled.keys().copied().collect()
    }

    /// The times at which a machine was sampled, ns.
    pub fn sample_times(&self, host: i64) -> &[i64] {
        self.sampled.get(&host).map_or(&[], Vec::as_slice)
    }

    /// Returns true if there is such a counter.
    pub fn has(&self, host: i64, counter: &str) -> bool {
        self.series.contains_key(&(host, counter.into()))
    }

    /// The devices that have a counter such as `disk.*.busy`.
    pub fn devices(&self, host: i64, kind: &str, what: &str) -> Vec<String> {
        let (begin, end) = (format!("{kind}."), format!(".{what}"));
        self.series
            .keys()
            .filter(|(h, _)| *h == host)
            .filter_map(|(_, name)| name.strip_prefix(&begin)?.strip_suffix(&end))
            .map(str::to_owned)
            .collect()
    }

    /// The value at a sample or between two, by linear interpolation; `None`: there is none.
    pub fn value(&self, host: i64, counter: &str, at: i64) -> Option<f64> {
        let series = self.series.get(&(host, counter.into()))?;
        let stored = |t: i64| {
            let after = series.partition_point(|&(when, _)| when <= t);
            // A counter that was 0 from the beginning has no row until it moves.
            series
                .get(after.saturating_sub(1))
                .map(|&(_, value)| value as f64)
        };
        let times = self.sample_times(host);
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
        const BUSY: [&str; 5] = [
            "cpu.user",
            "cpu.nice",
            "cpu.system",
            "cpu.interrupt",
            "cpu.steal",
        ];
        const IDLE: [&str; 2] = ["cpu.idle", "cpu.io_wait"];
        let sum = |names: &[&str]| -> f64 {
            names
                .iter()
                .filter_map(|name| self.growth(host, name, from, to))
                .sum()
        };
        let (busy, idle) = (sum(&BUSY), sum(&IDLE));
        (busy + idle > 0.0).then(|| busy / (busy + idle))
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
            .filter(|device| (device == "lo") == loopback)
            .filter_map(|device| self.growth(host, &format!("net.{device}.{what}"), from, to))
            .sum()
    }

    /// Growth of a counter of all disks, such as `read_bytes`.
    pub fn disk_sum(&self, host: i64, what: &str, from: i64, to: i64) -> f64 {
        self.devices(host, "disk", what)
            .into_iter()
            .filter_map(|device| self.growth(host, &format!("disk.{device}.{what}"), from, to))
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
    }
}
