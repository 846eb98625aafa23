//! The machines of the run, from their counters, as rates over time. For machines that agents watched for a
//! collector (Taufer et al.), also the share of the sent samples that arrived.

use std::collections::BTreeMap;

use flowtrace_render::units::plain;
use flowtrace_schema::{HostSampleRow, NodeRow, Result, Trace};
use serde::Serialize;

/// Most instants kept for each machine; more samples are thinned.
const MOST: usize = 2000;
/// Devices kept of each kind, the busiest.
const DEVICES: usize = 6;

/// All machines that have counters.
#[derive(Debug, Default, Serialize)]
pub struct Machines {
    /// The machines, by name.
    pub hosts: Vec<Host>,
}

/// Series of one machine. A rate is the mean from its instant to the next one.
#[derive(Debug, Default, Serialize)]
pub struct Host {
    /// Name of the machine.
    pub name: Option<String>,
    /// Number of CPUs.
    pub cpus: Option<i64>,
    /// The instants of all series, ns.
    pub t_ns: Vec<i64>,
    /// CPUs busy in programs, as a number of CPUs.
    pub cpu_user: Vec<f32>,
    /// CPUs busy in the kernel, as a number of CPUs.
    pub cpu_system: Vec<f32>,
    /// CPUs idle while a task waited for a disk, as a number of CPUs.
    pub cpu_io_wait: Vec<f32>,
    /// Memory of the machine, bytes.
    pub memory_bytes: Option<i64>,
    /// Memory that programs could still have, bytes.
    pub memory_available: Vec<f32>,
    /// True if disks were counted.
    pub has_disks: bool,
    /// Disks that moved bytes, the busiest first.
    pub disks: Vec<Device>,
    /// True if interfaces were counted.
    pub has_interfaces: bool,
    /// Interfaces that moved bytes, the busiest first.
    pub interfaces: Vec<Device>,
    /// Samples of the agent that watched the machine; `None`: no agent did.
    pub watched: Option<Watched>,
}

/// Statistics of the samples that an agent sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Watched {
    /// Samples that arrived in time.
    pub received: i64,
    /// Samples that were sent, as far as is known.
    pub sent: i64,
    /// Share of the sent samples that arrived, 0 to 1; `None`: none was sent.
    pub confidence: Option<f64>,
    /// Samples per second at the end.
    pub per_second: f64,
    /// Bound of the error of their times, ns; `None`: not known.
    pub clock_error_ns: Option<i64>,
    /// Drift of the agent's clock against the collector's, parts per billion; 0: not known yet.
    pub drift_ppb: i64,
    /// Sessions: more than 1 after restarts of the agent or loss of contact.
    pub sessions: i64,
    /// True if the last totals came over the reliable channel and are exact.
    pub is_final: bool,
}

impl Watched {
    pub(super) fn of(row: &NodeRow, clock_error_ns: Option<i64>) -> Watched {
        Watched {
            received: row.received,
            sent: row.expected,
            confidence: (row.expected > 0).then(|| row.received as f64 / row.expected as f64),
            per_second: 1000.0 / row.period_ms.max(1) as f64,
            clock_error_ns,
            drift_ppb: row.drift_ppb,
            sessions: row.sessions,
            is_final: row.is_final != 0,
        }
    }
}

/// A disk or an interface, bytes per second.
#[derive(Debug, Serialize)]
pub struct Device {
    /// Name of the device.
    pub name: String,
    /// Read, or received.
    pub inward: Vec<f32>,
    /// Written, or sent.
    pub outward: Vec<f32>,
    /// Share of the time in which a disk served requests; empty for interfaces.
    pub busy: Vec<f32>,
}

/// Reads the counters; `last_ns`: the last instant of the trace.
///
/// # Errors
/// When the trace cannot be read.
pub fn machines(trace: &Trace, last_ns: i64) -> Result<Machines> {
    let rows = trace.host_samples()?;
    let (known, nodes) = (trace.hosts()?, trace.nodes()?);
    let hosts = rows.chunk_by(|a, b| a.host == b.host).map(|rows| {
        let name = rows[0].host.as_deref();
        let host = known.iter().find(|host| Some(host.host.as_str()) == name);
        let node = nodes.iter().find(|node| node.host.as_deref() == name);
        let mut series = host_series(rows, last_ns);
        series.name = name.map(plain);
        series.cpus = host.and_then(|host| host.cpus);
        series.memory_bytes = host.and_then(|host| host.memory_bytes);
        let clock = host.and_then(|host| host.clock_error_ns);
        series.watched = node.map(|node| Watched::of(node, clock));
        series
    });
    Ok(Machines {
        hosts: hosts.collect(),
    })
}

fn host_series(rows: &[HostSampleRow], last_ns: i64) -> Host {
    let counters: BTreeMap<&str, &[HostSampleRow]> = rows
        .chunk_by(|a, b| a.counter == b.counter)
        .map(|rows| (&*rows[0].counter, rows))
        .collect();
    let t_ns = instants(rows, last_ns);
    let rate = |name: &str, per: f64| rates(counters.get(name).copied().unwrap_or(&[]), &t_ns, per);
    // A counter that was not recorded is left out, not zero.
    let has = |kind: &str| counters.keys().any(|name| name.starts_with(kind));
    let sum = |names: &[&str]| {
        if !has("cpu.") {
            return Vec::new();
        }
        let mut sum = vec![0.0; t_ns.len()];
        for name in names {
            for (sum, more) in sum.iter_mut().zip(rate(name, 1.0)) {
                *sum += more;
            }
        }
        sum
    };
    let devices = |kind: &str, inward: &str, outward: &str, busy: Option<&str>| {
        let mut names: Vec<&str> = counters
            .keys()
            .filter_map(|name| name.strip_prefix(kind)?.strip_suffix(inward))
            .collect();
        let total = |name: &str| {
            [inward, outward]
                .iter()
                .filter_map(|way| counters.get(format!("{kind}{name}{way}").as_str()))
                .map(|rows| rows[rows.len() - 1].value.saturating_sub(rows[0].value))
                .sum::<i64>()
        };
        names.retain(|name| total(name) > 0 && !is_part(name, &counters, kind, inward));
        names.sort_by_key(|name| (std::cmp::Reverse(total(name)), *name));
        names.truncate(DEVICES);
        let device = |name: &str| Device {
            name: plain(name),
            inward: rate(&format!("{kind}{name}{inward}"), 1e9),
            outward: rate(&format!("{kind}{name}{outward}"), 1e9),
            busy: busy.map_or_else(Vec::new, |busy| rate(&format!("{kind}{name}{busy}"), 1.0)),
        };
        names.into_iter().map(device).collect()
    };
    Host {
        cpu_user: sum(&["cpu.user", "cpu.nice"]),
        cpu_system: sum(&["cpu.system", "cpu.interrupt"]),
        cpu_io_wait: sum(&["cpu.io_wait"]),
        memory_available: counters
            .get("memory.available")
            .map_or_else(Vec::new, |rows| levels(rows, &t_ns)),
        has_disks: has("disk."),
        has_interfaces: has("net."),
        disks: devices("disk.", ".read_bytes", ".write_bytes", Some(".busy")),
        interfaces: devices("net.", ".receive_bytes", ".send_bytes", None),
        t_ns,
        ..Host::default()
    }
}

/// True if a device is a partition of another one in the list: its bytes are counted there.
fn is_part(
    name: &str,
    counters: &BTreeMap<&str, &[HostSampleRow]>,
    kind: &str,
    suffix: &str,
) -> bool {
    let number = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_known = |whole: &str| {
        whole != name && counters.contains_key(format!("{kind}{whole}{suffix}").as_str())
    };
    kind == "disk." && (is_known(number) || number.strip_suffix('p').is_some_and(is_known))
}

/// The instants at which samples were taken, thinned to a number that fits a screen.
fn instants(rows: &[HostSampleRow], last_ns: i64) -> Vec<i64> {
    let mut instants: Vec<i64> = rows.iter().map(|row| row.t_ns).collect();
    instants.sort_unstable();
    instants.dedup();
    // The counters of one sample are read one after another.
    instants.dedup_by(|next, kept| *next - *kept < 10_000_000);
    if let Some(&end) = instants.last()
        && end < last_ns
        && last_ns - end < 1_000_000_000
    {
        instants.pop();
        instants.push(last_ns);
    }
    if instants.len() > MOST {
        let step = instants.len().div_ceil(MOST);
        let end = instants.last().copied();
        instants = instants.into_iter().step_by(step).collect();
        if instants.last().copied() != end {
            instants.extend(end);
        }
    }
    instants
}

/// The value of a counter at each instant: a value that has not changed is not stored again.
fn values(rows: &[HostSampleRow], t_ns: &[i64]) -> Vec<i64> {
    let mut next = 0;
    let mut value = rows.first().map_or(0, |row| row.value);
    let at = |&t: &i64| {
        // Counters that are read together lie within 10 ms.
        while next < rows.len() && rows[next].t_ns < t.saturating_add(10_000_000) {
            value = rows[next].value;
            next += 1;
        }
        value
    };
    t_ns.iter().map(at).collect()
}

/// The value of a counter at each instant, as shown on a screen.
fn levels(rows: &[HostSampleRow], t_ns: &[i64]) -> Vec<f32> {
    values(rows, t_ns).into_iter().map(|n| n as f32).collect()
}

/// Growth of a counter from each instant to the next, in units per `per` nanoseconds.
fn rates(rows: &[HostSampleRow], t_ns: &[i64], per: f64) -> Vec<f32> {
    let values = values(rows, t_ns);
    let growth = |i: usize| {
        let (Some(&b), Some(&end)) = (values.get(i + 1), t_ns.get(i + 1)) else {
            return 0.0;
        };
        let length = (end - t_ns[i]).max(1) as f64;
        let rate = b.saturating_sub(values[i]).max(0) as f64 / length * per;
        // Three digits are more than a screen shows, and keep the file small.
        ((rate * 1000.0).round() / 1000.0) as f32
    };
    (0..t_ns.len()).map(growth).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[(i64, i64)]) -> Vec<HostSampleRow> {
        let row = |&(t_ns, value): &(i64, i64)| HostSampleRow {
            t_ns,
            value,
            ..HostSampleRow::default()
        };
        values.iter().map(row).collect()
    }

    #[test]
    fn a_rate_is_the_growth_until_the_next_instant() {
        const S: i64 = 1_000_000_000;
        let rows = rows(&[(0, 100), (S, 2 * S + 100), (3 * S, 3 * S + 100)]);
        let t = [0, S, 2 * S, 3 * S];
        assert_eq!(rates(&rows, &t, 1.0), [2.0, 0.0, 1.0, 0.0]);
        assert_eq!(levels(&rows[..1], &t), [100.0; 4]);
        assert_eq!(rates(&[], &t, 1.0), [0.0; 4]);
    }

    #[test]
    fn a_partition_is_not_counted_beside_its_disk() {
        let none: &[HostSampleRow] = &[];
        let counters: BTreeMap<&str, _> = ["sda", "sda1", "nvme0n1", "nvme0n1p2", "vdb1"]
            .map(|name| (&*format!("disk.{name}.r").leak(), none))
            .into();
        let parts = ["sda", "sda1", "nvme0n1", "nvme0n1p2", "vdb1"]
            .map(|name| is_part(name, &counters, "disk.", ".r"));
        assert_eq!(parts, [false, true, false, true, false]);
    }
}
