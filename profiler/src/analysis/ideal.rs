//! The lower bound of a run (Krevat et al.), in general and for map–reduce, and the parts of the difference
//! to it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::intervals::union;
use crate::model::{ProcessId, Workflow};
use crate::timeline::Timeline;

mod machines;
mod skew;

pub use machines::Machine;
use machines::machines;
pub use skew::receive_skew;

/// Capacities of one node, bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Capacities {
    /// Disk, reading.
    pub disk_read: f64,
    /// Disk, writing.
    pub disk_write: f64,
    /// Network; `None`: not known, so not a bound.
    pub network: Option<f64>,
    /// Copying memory; `None`: not known, so not a bound.
    pub memory: Option<f64>,
}

/// A sort, or another map–reduce job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MapReduce {
    /// Bytes of input.
    pub input: f64,
    /// Nodes.
    pub nodes: f64,
    /// Copies of the output that are written.
    pub replication: f64,
    /// True if the local sort goes through the disk once.
    pub two_phase: bool,
    /// True if the map phase writes a copy of its output.
    pub backup: bool,
}

impl MapReduce {
    /// Shortest time in seconds: phase 1 and phase 2. Without replication, a sort in two phases and backup,
    /// their sum is `t_sort` of the paper.
    pub fn bound(&self, capacities: &Capacities) -> (f64, f64) {
        let share = self.input / self.nodes;
        let remote = (self.nodes - 1.0) / self.nodes;
        let across = capacities.network.map_or(0.0, |rate| remote / rate);
        let backup = if self.backup {
            1.0 / capacities.disk_write
        } else {
            0.0
        };
        let spill = if self.two_phase {
            1.0 / capacities.disk_write + 1.0 / capacities.disk_read
        } else {
            0.0
        };
        let copies = capacities
            .network
            .map_or(0.0, |rate| (self.replication - 1.0) / rate);
        let first = (1.0 / capacities.disk_read).max(across) + backup;
        let second = (self.replication / capacities.disk_write).max(copies) + spill;
        (share * first, share * second)
    }
}

/// The resource that binds a phase at best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Reading the disk.
    DiskRead,
    /// Writing the disk.
    DiskWrite,
    /// The network.
    Network,
    /// Copying memory.
    Memory,
    /// Computing.
    Cpu,
}

/// A phase: an interval between two instants at which no step was alive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// Begin, ns.
    pub from: i64,
    /// End, ns.
    pub to: i64,
    /// Bytes that had to be read: of each file at most its size.
    pub read_bytes: i64,
    /// Bytes that had to be written: of each file at most its size.
    pub write_bytes: i64,
    /// Bytes moved by file calls beyond these.
    pub extra_bytes: i64,
    /// Bytes through pipes, an upper bound.
    pub pipe_bytes: i64,
    /// Bytes that machines received over the network.
    pub network_bytes: i64,
    /// CPU time, ns.
    pub cpu_ns: i64,
    /// Shortest time, ns.
    pub ideal_ns: i64,
    /// The resource that binds the phase.
    pub bound: Bound,
    /// The parts of the time beyond the bound, ns; they sum to it.
    pub beyond: Beyond,
    /// Receive skew before other parts took their share of the time, ns; `None`: no packets were captured.
    pub receive_skew_ns: Option<i64>,
    /// The share of each machine, by name; empty for a run on one machine.
    pub machines: Vec<Machine>,
}

/// Parts of a difference, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Beyond {
    /// Waiting for the last of several: mean over instances, or machines, of the time after each.
    pub stragglers: i64,
    /// Waiting for the last of several incoming flows: mean over the machines of the end of the last flow
    /// minus the mean of all ends; 0 if no packets were captured.
    pub receive_skew: i64,
    /// Moving bytes beyond those that had to be.
    pub expansion: i64,
    /// Resources that were used one after another and not at once.
    pub not_overlapped: i64,
    /// CPUs were busy outside of the run: other work on the machine, and the tracer.
    pub other_work: i64,
    /// No step was running.
    pub gaps: i64,
    /// The rest.
    pub unexplained: i64,
}

impl Beyond {
    /// The sum of the parts, ns.
    pub fn sum(&self) -> i64 {
        self.stragglers
            + self.receive_skew
            + self.expansion
            + self.not_overlapped
            + self.other_work
            + self.gaps
            + self.unexplained
    }

    fn add(&mut self, other: &Beyond) {
        self.stragglers += other.stragglers;
        self.receive_skew += other.receive_skew;
        self.expansion += other.expansion;
        self.not_overlapped += other.not_overlapped;
        self.other_work += other.other_work;
        self.gaps += other.gaps;
        self.unexplained += other.unexplained;
    }
}

/// A run beside its lower bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ideal {
    /// The phases in order.
    pub phases: Vec<Phase>,
    /// Shortest time, ns.
    pub ideal_ns: i64,
    /// Time measured, ns.
    pub measured_ns: i64,
    /// The parts of the difference; they sum to it.
    pub beyond: Beyond,
    /// Number of machines.
    pub nodes: usize,
    /// CPUs of all machines.
    pub cores: i64,
}

/// The phases of a run, begin and end, ns: between instants at which no step is alive, or cut at `cuts`.
pub fn phases(timeline: &Timeline, cuts: &[i64]) -> Vec<(i64, i64)> {
    let steps = timeline.instances.iter();
    let steps = steps.filter(|instance| !instance.is_orchestrator);
    let mut lives: Vec<(i64, i64)> = steps.map(|step| (step.from, step.to)).collect();
    lives.sort_unstable();
    let phases = union(lives);
    let (Some(first), Some(last), false) = (phases.first(), phases.last(), cuts.is_empty()) else {
        return phases;
    };
    let (from, to) = (first.0, last.1);
    let within = cuts.iter().copied().filter(|&at| at > from && at < to);
    let mut ends: Vec<i64> = within.chain([from, to]).collect();
    ends.sort_unstable();
    ends.dedup();
    ends.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

/// Computes the lower bound of a run, by [`phases`], with the [`receive_skew`] of each where that is known.
/// `None`: the number of CPUs is not known, or no step ran.
pub fn ideal(
    workflow: &Workflow,
    timeline: &Timeline,
    capacities: &Capacities,
    phases: &[(i64, i64)],
    skews: &[Option<i64>],
) -> Option<Ideal> {
    let cores = timeline.cpus()?.max(1);
    let nodes = timeline.hosts.len().max(1);
    let mut result = Ideal {
        phases: Vec::new(),
        ideal_ns: 0,
        measured_ns: timeline.length(),
        beyond: Beyond::default(),
        nodes,
        cores,
    };
    for (at, &(from, to)) in phases.iter().enumerate() {
        let members: Vec<ProcessId> = timeline
            .instances
            .iter()
            // A process counts in the phase in which it began; with given cuts it may live in several.
            .filter(|one| one.from >= from && one.from < to.max(from + 1))
            .map(|one| one.process)
            .collect();
        let phase = phase(
            workflow,
            timeline,
            capacities,
            &members,
            (from, to),
            (nodes, cores),
            skews.get(at).copied().flatten(),
        );
        result.ideal_ns += phase.ideal_ns;
        result.beyond.add(&phase.beyond);
        result.phases.push(phase);
    }
    if result.phases.is_empty() {
        return None;
    }
    // Between the phases only programs ran that run others.
    let within: i64 = result
        .phases
        .iter()
        .map(|phase| phase.to - phase.from)
        .sum();
    result.beyond.gaps += result.measured_ns - within;
    Some(result)
}

fn phase(
    workflow: &Workflow,
    timeline: &Timeline,
    capacities: &Capacities,
    members: &[ProcessId],
    (from, to): (i64, i64),
    (nodes, cores): (usize, i64),
    receive_skew_ns: Option<i64>,
) -> Phase {
    let is_member: std::collections::HashSet<ProcessId> = members.iter().copied().collect();
    // If several processes read a file, each byte has to come from the disk once.
    let mut files: BTreeMap<crate::model::FileIndex, (i64, i64)> = BTreeMap::new();
    for access in workflow
        .accesses
        .iter()
        .filter(|a| is_member.contains(&a.process))
    {
        let entry = files.entry(access.file).or_default();
        entry.0 = entry.0.saturating_add(access.read_bytes);
        entry.1 = entry.1.saturating_add(access.write_bytes);
    }
    let (mut read_bytes, mut write_bytes, mut moved) = (0_i64, 0_i64, 0_i64);
    for (&file, &(read, written)) in &files {
        let size = workflow.file(file).size_bytes.unwrap_or(i64::MAX);
        read_bytes = read_bytes.saturating_add(read.min(size));
        write_bytes = write_bytes.saturating_add(written.min(size));
        moved = moved.saturating_add(read).saturating_add(written);
    }
    let extra_bytes = moved
        .saturating_sub(read_bytes)
        .saturating_sub(write_bytes)
        .max(0);
    let pipe_bytes: i64 = workflow
        .streams
        .iter()
        .filter(|stream| is_member.contains(&stream.from))
        .map(|stream| stream.at_most_bytes.unwrap_or(0))
        .fold(0, i64::saturating_add);
    let counters = &timeline.counters;
    let network_bytes: f64 = counters
        .hosts()
        .into_iter()
        .map(|host| counters.net_bytes(host, "receive_bytes", from, to, false))
        .sum();
    let cpu: f64 = members
        .iter()
        .map(|&id| timeline.instance(id).cpu_ns())
        .sum();
    let machines = match nodes > 1 {
        true => machines(workflow, timeline, members, (from, to)),
        false => Vec::new(),
    };
    let n = nodes as f64;
    let at = |bytes: f64, rate: Option<f64>| rate.map_or(0.0, |rate| bytes / (rate * n) * 1e9);
    let times = [
        (
            at(read_bytes as f64, Some(capacities.disk_read)),
            Bound::DiskRead,
        ),
        (
            at(write_bytes as f64, Some(capacities.disk_write)),
            Bound::DiskWrite,
        ),
        (
            if nodes > 1 {
                at(network_bytes, capacities.network)
            } else {
                0.0
            },
            Bound::Network,
        ),
        (
            at(pipe_bytes as f64 + moved as f64, capacities.memory),
            Bound::Memory,
        ),
        (cpu / cores as f64, Bound::Cpu),
    ];
    let length = to - from;
    let (longest, bound) = times
        .iter()
        .copied()
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap_or((0.0, Bound::Cpu));
    // A disk may be faster than it was measured, as a cache is. Even so the bound must not exceed the time.
    let ideal_ns = (longest as i64).min(length);
    let sum: f64 = times.iter().map(|time| time.0).sum();
    let mut rest = length - ideal_ns;
    let mut take = |amount: f64| {
        let part = (amount.max(0.0) as i64).min(rest);
        rest -= part;
        part
    };
    let slowest = capacities.disk_read.min(capacities.disk_write);
    let beyond = Beyond {
        stragglers: take(stragglers(timeline, members, &machines, to)),
        receive_skew: take(receive_skew_ns.unwrap_or(0) as f64),
        expansion: take(at(extra_bytes as f64, Some(slowest))),
        not_overlapped: take(sum - longest),
        other_work: take(other_work(timeline, (from, to), cpu / cores as f64)),
        gaps: 0,
        unexplained: 0,
    };
    Phase {
        from,
        to,
        read_bytes,
        write_bytes,
        extra_bytes,
        pipe_bytes,
        network_bytes: network_bytes as i64,
        cpu_ns: cpu as i64,
        ideal_ns,
        bound,
        beyond: Beyond {
            unexplained: rest,
            ..beyond
        },
        receive_skew_ns,
        machines,
    }
}

/// Time of a phase in which CPUs were busy beyond the computation of the run, mean over the machines, ns; 0
/// without counters.
fn other_work(timeline: &Timeline, (from, to): (i64, i64), own_ns: f64) -> f64 {
    let counters = &timeline.counters;
    let busy = counters.hosts().into_iter();
    let busy: Vec<f64> = busy
        .filter_map(|host| counters.cpu_busy(host, from, to))
        .collect();
    match busy.len() {
        0 => 0.0,
        hosts => busy.iter().sum::<f64>() / hosts as f64 * (to - from) as f64 - own_ns,
    }
}

/// Mean time between the end of each machine's work and the end of the phase, ns. With one machine, the mean
/// over the last instance and the instances that were alive in the first fifth of its life.
fn stragglers(timeline: &Timeline, members: &[ProcessId], machines: &[Machine], to: i64) -> f64 {
    if machines.len() > 1 {
        let sum: i64 = machines
            .iter()
            .map(|machine| (to - machine.ended_ns).max(0))
            .sum();
        return sum as f64 / machines.len() as f64;
    }
    let steps = members.iter().map(|&id| timeline.instance(id));
    let ends: Vec<(i64, i64)> = steps
        .filter(|instance| !instance.is_orchestrator)
        .map(|instance| (instance.from, instance.to.min(to)))
        .collect();
    // The instances that were alive together with the one that ended last, in the first fifth of its life.
    let Some(&last) = ends.iter().max_by_key(|life| life.1) else {
        return 0.0;
    };
    let beside: Vec<i64> = ends
        .iter()
        .filter(|life| life.1 > last.0 && life.0 < last.0 + (last.1 - last.0) / 5)
        .map(|life| to - life.1)
        .collect();
    match beside.len() {
        0 | 1 => 0.0,
        n => beside.iter().sum::<i64>() as f64 / n as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sort(nodes: f64, network: f64) -> (f64, f64) {
        let job = MapReduce {
            input: 164_000.0,
            nodes,
            replication: 1.0,
            two_phase: false,
            backup: false,
        };
        job.bound(&Capacities {
            disk_read: 107.0,
            disk_write: 99.0,
            network: Some(network),
            memory: None,
        })
    }

    #[test]
    fn the_papers_sort_on_41_nodes() {
        // 164 GB, in MB and MB/s: phase 1 is bound by the disk, 0.009346 s for a MB.
        let (first, second) = sort(41.0, 112.0);
        assert!((first / 4000.0 - 0.009_346).abs() < 1e-6, "{first}");
        assert!((second / 4000.0 - 0.010_101).abs() < 1e-6);
        assert!((first + second - 77.8).abs() < 0.05);
        // At 94 MB/s the network binds.
        let (first, second) = sort(41.0, 94.0);
        assert!((first / 4000.0 - 0.010_379).abs() < 1e-6, "{first}");
        assert!((first + second - 81.9).abs() < 0.05);
    }

    #[test]
    fn one_node_needs_no_network() {
        let (first, _) = sort(1.0, 1.0);
        assert!((first - 164_000.0 / 107.0).abs() < 1e-9);
    }

    #[test]
    fn variants_add_what_they_move() {
        let job = MapReduce {
            input: 100.0,
            nodes: 2.0,
            replication: 3.0,
            two_phase: true,
            backup: true,
        };
        let (first, second) = job.bound(&Capacities {
            disk_read: 10.0,
            disk_write: 5.0,
            network: Some(1.0),
            memory: None,
        });
        // max(1/10, 1/2) + 1/5; max(3/5, 2/1) + 1/5 + 1/10; 50 bytes on each node.
        assert!((first - 35.0).abs() < 1e-9, "{first}");
        assert!((second - 115.0).abs() < 1e-9, "{second}");
    }
}
