//! Time by resource (Taufer et al.): CPU, memory, disk in sequence and not, network, and waiting. The
//! shares of any interval sum to 1.

use std::collections::{BTreeMap, HashMap};

use flowtrace_schema::{Sequence, StorageRow};
use serde::Serialize;

use crate::model::Workflow;
use crate::timeline::machine::Counters;
use crate::timeline::{Part, State, Timeline};

/// Names of the parts, in the order of [`Parts`].
pub const PARTS: [&str; 7] = [
    "cpu",
    "queue",
    "memory",
    "disk_sequential",
    "disk_other",
    "network",
    "waiting",
];

/// Time or shares by resource, in the order of [`PARTS`]. `queue` is time ready to run without a CPU; it is
/// known for processes only.
pub type Parts = [f64; 7];

/// Known capacities of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Capacity {
    /// Bytes per second through the network, both directions together.
    pub network: Option<f64>,
}

/// A machine in one interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Number of the machine.
    pub host_id: i64,
    /// Begin, ns.
    pub from: i64,
    /// End, ns.
    pub to: i64,
    /// Shares of the interval; they sum to 1.
    pub shares: Parts,
}

/// The processes of one rule, or one process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spent {
    /// Number of processes.
    pub name: String,
    /// Number of processes.
    pub processes: usize,
    /// Their life, ns: the sum of the parts.
    pub life_ns: f64,
    /// Time by resource, ns.
    pub parts: Parts,
    /// Part of the life that nothing is known of, ns; counted as waiting.
    pub unknown_ns: f64,
    /// Part of the life in which job control had stopped the process, ns; counted as waiting.
    pub stopped_ns: f64,
}

/// Time that the processes of a step were blocked on storage, by part of the way; see docs/kernel-layer.md
/// for the rest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stored {
    /// Rule, or program.
    pub name: String,
    /// Time blocked, ns.
    pub ns: i64,
    /// Part of it in which own requests waited in a queue of the kernel and none was at a device, ns.
    pub queue_ns: i64,
    /// Part of it in which a device had own requests, ns.
    pub device_ns: i64,
}

/// The decomposition of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Resources {
    /// Shares of the run over all machines; `None`: no counters.
    pub run: Option<Parts>,
    /// Shares of the run per machine.
    pub hosts: Vec<(String, Parts)>,
    /// Machines over time.
    pub intervals: Vec<Interval>,
    /// By rule, the longest life first. Processes that only run others are left out.
    pub rules: Vec<Spent>,
    /// By process, the longest lives, in order.
    pub processes: Vec<Spent>,
    /// Waits for storage by step, the longest first; empty if the fate of requests was not recorded.
    pub storage: Vec<Stored>,
    /// Share of the bytes of file calls that moved in sequence; `None`: there were none.
    pub sequential: Option<f64>,
    /// True if the capacity of the network is known.
    pub has_network: bool,
    /// True if the disks of every machine with counters were counted.
    pub has_disks: bool,
}

/// Most processes listed.
const LISTED: usize = 100;

/// Decomposes a run. `sequences` has the bytes of each image, by upid.
pub fn resources(
    workflow: &Workflow,
    timeline: &Timeline,
    sequences: &HashMap<i64, Sequence>,
    capacity: Capacity,
) -> Resources {
    let total = sequential(sequences.values());
    let stored = |row: &StorageRow| Stored {
        name: row.step.clone(),
        ns: row.storage_ns,
        queue_ns: row.queue_ns,
        device_ns: row.device_ns,
    };
    let mut result = Resources {
        storage: timeline.storage.iter().map(stored).collect(),
        sequential: total,
        has_network: capacity.network.is_some(),
        has_disks: timeline
            .counters
            .hosts()
            .iter()
            .all(|&host| !timeline.counters.devices(host, "disk", "busy").is_empty()),
        ..Resources::default()
    };
    machines(&mut result, timeline, total.unwrap_or(1.0), capacity);
    processes(&mut result, workflow, timeline, sequences);
    result
}

/// Share of the bytes that moved in sequence; `None`: none moved.
pub fn sequential<'a>(rows: impl Iterator<Item = &'a Sequence>) -> Option<f64> {
    let (mut in_sequence, mut all) = (0.0, 0.0);
    for row in rows {
        in_sequence += row.sequential_bytes as f64;
        all += row.bytes as f64;
    }
    (all > 0.0).then(|| in_sequence / all)
}

/// Charges an interval to the resources in proportion to their use at capacity. Together they
/// cannot be used for longer than the interval: where uses overlap, they share it.
pub fn charge(cpu: f64, memory: f64, disk: f64, network: f64, sequential: f64) -> Parts {
    let uses = [cpu, memory, disk, network].map(|used| used.clamp(0.0, 1.0));
    let sum: f64 = uses.iter().sum();
    let scale = if sum > 1.0 { 1.0 / sum } else { 1.0 };
    let [cpu, memory, disk, network] = uses.map(|used| used * scale);
    let waiting = (1.0 - cpu - memory - disk - network).max(0.0);
    [
        cpu,
        0.0,
        memory,
        disk * sequential,
        disk * (1.0 - sequential),
        network,
        waiting,
    ]
}

fn machines(result: &mut Resources, timeline: &Timeline, sequential: f64, capacity: Capacity) {
    let (mut run, mut whole) = ([0.0; 7], 0.0);
    for host in timeline.counters.hosts() {
        let intervals = machine(&timeline.counters, host, sequential, capacity);
        let Some((own, length)) = mean(&intervals) else {
            continue;
        };
        result.intervals.extend(intervals);
        for at in 0..own.len() {
            run[at] += own[at] * length;
        }
        whole += length;
        let mut known = timeline.hosts.iter();
        let name = match known.find(|row| row.host_id == host) {
            Some(row) => row.host.clone(),
            None => format!("host {host}"),
        };
        result.hosts.push((name, own));
    }
    result.run = (whole > 0.0).then(|| run.map(|time| time / whole));
}

/// Shares of all these intervals together, and their length, ns; `None`: they have none.
pub fn mean(intervals: &[Interval]) -> Option<(Parts, f64)> {
    let (mut sums, mut whole) = ([0.0; 7], 0.0);
    for one in intervals {
        let length = (one.to - one.from) as f64;
        for (sum, share) in sums.iter_mut().zip(one.shares) {
            *sum += share * length;
        }
        whole += length;
    }
    (whole > 0.0).then(|| (sums.map(|sum| sum / whole), whole))
}

/// A machine from each of its samples to the next, where its CPUs were counted.
pub fn machine(
    counters: &Counters,
    host: i64,
    sequential: f64,
    capacity: Capacity,
) -> Vec<Interval> {
    let pairs = counters.sample_times(host).windows(2);
    let interval = |pair: &[i64]| {
        let (from, to) = (pair[0], pair[1]);
        let seconds = (to - from) as f64 / 1e9;
        if seconds <= 0.0 {
            return None;
        }
        let share = |name| {
            let grown = counters.growth(host, name, from, to).unwrap_or(0.0);
            grown / (to - from) as f64
        };
        // Without the CPU counters nothing is known of the rest of the time.
        let cpu = counters.cpu_busy(host, from, to)?;
        let bytes = counters.net_bytes(host, "receive_bytes", from, to, false)
            + counters.net_bytes(host, "send_bytes", from, to, false);
        let disk = counters.disk_busy(host, from, to);
        let shares = charge(
            cpu,
            share("pressure.memory.some"),
            disk.map_or(0.0, |(share, _)| share),
            capacity.network.map_or(0.0, |most| bytes / seconds / most),
            sequential,
        );
        Some(Interval {
            host_id: host,
            from,
            to,
            shares,
        })
    };
    pairs.filter_map(interval).collect()
}

/// The time of a process by resource: its states, with its storage time split as its own calls moved.
fn parts(timeline: &Timeline, part: Part, sequential: f64) -> Parts {
    let totals = timeline.within(part.process, part.from, part.to);
    let of = |state: State| totals[state as usize];
    let storage = of(State::File);
    let mut network = 0.0;
    for piece in timeline.pieces_within(part.process, part.from, part.to) {
        if let (true, Some(channel)) = (piece.state.is_waiting(), piece.channel)
            && timeline.channels[channel as usize].is_network()
        {
            let share = timeline.shares(piece)[piece.state as usize];
            network += share * piece.overlap(part.from, part.to) as f64;
        }
    }
    let life: f64 = totals.iter().sum();
    let mut parts = [
        of(State::Cpu),
        of(State::Queue),
        of(State::Fault),
        storage * sequential,
        storage * (1.0 - sequential),
        network,
        0.0,
    ];
    parts[6] = (life - parts.iter().sum::<f64>()).max(0.0);
    parts
}

fn processes(
    result: &mut Resources,
    workflow: &Workflow,
    timeline: &Timeline,
    sequences: &HashMap<i64, Sequence>,
) {
    let mut rules: BTreeMap<&str, Spent> = BTreeMap::new();
    for (program, stint) in timeline.programs.stints.iter().enumerate() {
        if timeline.only_runs[program] {
            continue;
        }
        let part = timeline.part(program);
        let image = workflow.program(stint);
        let own = workflow.images[stint.first..=stint.image]
            .iter()
            .filter_map(|image| sequences.get(&image.upid));
        let sequential = sequential(own).unwrap_or(1.0);
        let parts = parts(timeline, part, sequential);
        let life: f64 = parts.iter().sum();
        let totals = timeline.within(part.process, part.from, part.to);
        let [unknown, stopped] =
            [State::Unknown, State::Stopped].map(|state| totals[state as usize]);
        let rule = rules.entry(&image.rule).or_insert_with(|| Spent {
            name: image.rule.to_string(),
            processes: 0,
            life_ns: 0.0,
            parts: [0.0; 7],
            unknown_ns: 0.0,
            stopped_ns: 0.0,
        });
        rule.processes += 1;
        rule.life_ns += life;
        rule.unknown_ns += unknown;
        rule.stopped_ns += stopped;
        for (sum, part) in rule.parts.iter_mut().zip(parts) {
            *sum += part;
        }
        let command = image.command.as_deref();
        result.processes.push(Spent {
            name: command.unwrap_or(&image.rule).to_owned(),
            processes: 1,
            life_ns: life,
            parts,
            unknown_ns: unknown,
            stopped_ns: stopped,
        });
    }
    result.rules = rules.into_values().collect();
    result.rules.sort_by(|a, b| b.life_ns.total_cmp(&a.life_ns));
    result
        .processes
        .sort_by(|a, b| b.life_ns.total_cmp(&a.life_ns));
    result.processes.truncate(LISTED);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_an_interval_sum_to_one() {
        for (cpu, memory, disk, network) in [
            (0.0, 0.0, 0.0, 0.0),
            (0.5, 0.0, 0.3, 0.0),
            (1.0, 0.2, 1.0, 0.4),
            (7.0, -1.0, 0.0, 0.0),
        ] {
            let shares = charge(cpu, memory, disk, network, 0.25);
            assert!(
                (shares.iter().sum::<f64>() - 1.0).abs() < 1e-12,
                "{shares:?}"
            );
            assert!(shares.iter().all(|&share| share >= 0.0));
        }
        let shares = charge(0.5, 0.0, 0.25, 0.0, 0.25);
        assert_eq!(shares, [0.5, 0.0, 0.0, 0.0625, 0.1875, 0.0, 0.25]);
    }
}
