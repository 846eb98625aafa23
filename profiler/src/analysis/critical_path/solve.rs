//! Longest paths through the network.

use petgraph::Direction;
use petgraph::algo::toposort;
use petgraph::visit::EdgeRef;

use super::network::{NONE, Network};
use super::{CriticalPath, Step, StepKind};
use crate::graph::{Dag, EdgeKind, Node};
use crate::model::{ProcessId, Programs, Workflow};

/// Paths of equal length are counted up to this number: it grows as a power of the number of waits.
pub const MOST_EQUAL: u64 = 1_000_000;
/// Time of an instant that nothing depends on.
const NEVER: i64 = i64::MAX;

pub(super) fn solve(workflow: &Workflow, network: Network) -> CriticalPath {
    let last = last_process(workflow, &network);
    let mut own_ns = vec![0; workflow.processes.len()];
    for instant in &network.instants {
        own_ns[instant.process.0 as usize] += instant.own_ns;
    }
    let mut path = CriticalPath {
        last,
        start_ns: 0,
        end_ns: 0,
        steps: Vec::new(),
        equal_paths: 0,
        on_equal_paths: Vec::new(),
        slack_ns: vec![None; workflow.processes.len()],
        own_ns,
        evidence: network.evidence,
        programs: Programs::of(workflow),
        network: Network::default(),
    };
    if let Some(last) = last {
        let sink = network.ends[last.0 as usize].1;
        path.slack_ns = slack(&network, sink);
        path.steps = walk(workflow, &network, &path.programs, sink);
        path.end_ns = network.instants[sink as usize].at_ns;
        path.start_ns = path.steps.first().map_or(path.end_ns, |step| step.from_ns);
        count_equal(&network, sink, &mut path);
    }
    path.network = network;
    path
}

/// The command of the run. If that is not known, the process that ended last.
fn last_process(workflow: &Workflow, network: &Network) -> Option<ProcessId> {
    let end = |id: ProcessId| network.instants[network.ends[id.0 as usize].1 as usize].at_ns;
    let is_command = workflow.runs.len() == 1
        && workflow.runs[0].command.is_some()
        && !workflow.is_cut_short()
        && !workflow.is_incomplete();
    let root = workflow.root().filter(|_| is_command);
    root.or_else(|| {
        let key = |&id: &ProcessId| (end(id), std::cmp::Reverse(id));
        workflow.process_ids().max_by_key(key)
    })
}

/// The instants that decided the time of `m`: in its own process, in another one.
fn binding(network: &Network, m: u32) -> (Option<u32>, Option<u32>) {
    let instant = &network.instants[m as usize];
    let at = instant.at_ns - instant.late_ns;
    let own = network
        .before(m)
        .filter(|&b| network.instants[b as usize].at_ns + instant.own_ns >= at);
    let cross =
        Some(instant.cross).filter(|&c| c != NONE && network.instants[c as usize].at_ns >= at);
    // If the process worked up to this instant, it did not wait for an event at the same time.
    let cross = cross.filter(|_| own.is_none() || instant.own_ns == 0);
    (own, cross)
}

/// Walks back from the sink along the instants that decided.
fn walk(workflow: &Workflow, network: &Network, programs: &Programs, sink: u32) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut push = |process, from_ns, to_ns, kind| {
        if from_ns == to_ns {
            return;
        }
        for (place, from_ns, to_ns) in programs.within(process, from_ns, to_ns).rev() {
            let program = programs.stints[place];
            match steps.last_mut() {
                Some(next)
                    if (next.program, next.kind) == (program, kind) && next.from_ns == to_ns =>
                {
                    next.from_ns = from_ns;
                }
                _ => steps.push(Step {
                    process,
                    program,
                    from_ns,
                    to_ns,
                    kind,
                }),
            }
        }
    };
    let mut m = sink;
    loop {
        let instant = network.instants[m as usize];
        let at = instant.at_ns - instant.late_ns;
        let (own, cross) = binding(network, m);
        // Between two instants the time for which the process was stopped is known, but not when. Its work
        // comes first on the path.
        let was_stopped = network.before(m).is_some_and(|before| {
            let since = network.instants[before as usize].at_ns;
            let process = workflow.process(instant.process);
            2 * process.stopped_within(since, instant.at_ns) > instant.late_ns
        });
        let kind = match (own, cross) {
            (None, None) => StepKind::NotBegun,
            _ if was_stopped => StepKind::Stopped,
            _ => StepKind::Late,
        };
        // A process without a known cause begins the path, at its own begin.
        if kind == StepKind::NotBegun && network.before(m).is_none() {
            break;
        }
        push(instant.process, at, instant.at_ns, kind);
        match (own, cross) {
            (_, Some(next)) => m = next,
            (Some(next), None) => {
                push(
                    instant.process,
                    network.instants[next as usize].at_ns,
                    at,
                    StepKind::Work,
                );
                m = next;
            }
            (None, None) => break,
        }
    }
    steps.reverse();
    steps
}

/// For every process, the time by which it could end later without delaying the end, ns.
fn slack(network: &Network, sink: u32) -> Vec<Option<i64>> {
    let mut latest = vec![NEVER; network.instants.len()];
    latest[sink as usize] = network.instants[sink as usize].at_ns;
    for &m in network.order.iter().rev() {
        let late = latest[m as usize];
        if late == NEVER {
            continue;
        }
        let instant = &network.instants[m as usize];
        let at = late - instant.late_ns;
        if let Some(before) = network.before(m) {
            let slot = &mut latest[before as usize];
            *slot = (*slot).min(at - instant.own_ns);
        }
        if instant.cross != NONE {
            let slot = &mut latest[instant.cross as usize];
            *slot = (*slot).min(at);
        }
    }
    let of_process = |&(first, last): &(u32, u32)| {
        (first..=last)
            .filter(|&m| m != first || first == last)
            .filter(|&m| latest[m as usize] != NEVER)
            .map(|m| (latest[m as usize] - network.instants[m as usize].at_ns).max(0))
            .min()
    };
    network.ends.iter().map(of_process).collect()
}

/// Counts the paths of equal length, and finds the processes that are only on the others.
fn count_equal(network: &Network, sink: u32, path: &mut CriticalPath) {
    let mut ways = vec![0_u64; network.instants.len()];
    for &m in &network.order {
        let (own, cross) = binding(network, m);
        let sum = [own, cross]
            .into_iter()
            .flatten()
            .map(|b| ways[b as usize])
            .sum::<u64>();
        ways[m as usize] = sum.clamp(1, MOST_EQUAL);
    }
    path.equal_paths = ways[sink as usize];
    let mut is_on = vec![false; network.instants.len()];
    is_on[sink as usize] = true;
    let mut processes = Vec::new();
    for &m in network.order.iter().rev().filter(|_| path.equal_paths > 1) {
        if !is_on[m as usize] {
            continue;
        }
        let (own, cross) = binding(network, m);
        for before in [own, cross].into_iter().flatten() {
            is_on[before as usize] = true;
        }
        let instant = &network.instants[m as usize];
        if own.is_some() && instant.own_ns > 0 {
            processes.push(instant.process);
        }
    }
    processes.sort_unstable();
    processes.dedup();
    let chosen: std::collections::HashSet<ProcessId> =
        path.steps.iter().map(|step| step.process).collect();
    processes.retain(|id| !chosen.contains(id));
    path.on_equal_paths = processes;
}

/// Predicted end of a process with all work scaled, and without some waits for locks, ns. `unlocked` gives
/// the time that a process waited for these locks between two instants, ns.
pub(super) fn end_of(
    network: &Network,
    programs: &Programs,
    last: ProcessId,
    factor: impl Fn(usize) -> f64,
    unlocked: impl Fn(ProcessId, i64, i64) -> i64,
) -> i64 {
    let factors: Vec<f64> = (0..programs.stints.len()).map(factor).collect();
    let mut at = vec![0_i64; network.instants.len()];
    for &m in &network.order {
        let instant = &network.instants[m as usize];
        let scaled = |own_ns: i64, factor: f64| match factor {
            1.0 => own_ns,
            factor => (own_ns as f64 * factor).round() as i64,
        };
        // The work of a segment comes before its wait, as on the path.
        let from = network
            .before(m)
            .map_or(instant.at_ns, |b| network.instants[b as usize].at_ns);
        // Waits that no sample saw count as work.
        let waited = unlocked(instant.process, from, instant.at_ns);
        let own_ns = instant.own_ns.min((instant.at_ns - from - waited).max(0));
        let own_ns: i64 = programs
            .within(instant.process, from, from + own_ns)
            .map(|(place, from, to)| scaled(to - from, factors[place]))
            .sum();
        let own = network
            .before(m)
            .map(|b| at[b as usize].saturating_add(own_ns));
        let is_free = instant.is_lock && waited > 0;
        let cross = (instant.cross != NONE && !is_free).then(|| at[instant.cross as usize]);
        at[m as usize] = own.max(cross).unwrap_or(0).saturating_add(instant.late_ns);
    }
    at[network.ends[last.0 as usize].1 as usize]
}

/// Longest path through the graph of data with the work of processes, or of their versions, as weights.
/// `own_ns` gets the process, the version and the number of versions.
pub(super) fn by_data_alone(dag: &Dag, own_ns: impl Fn(ProcessId, u32, u32) -> i64) -> i64 {
    let Ok(order) = toposort(&dag.graph, None) else {
        return 0;
    };
    // Begin and end of every node.
    let mut times = vec![(0_i64, 0_i64); dag.graph.node_count()];
    let mut longest = 0;
    for node in order {
        let (mut begin, mut end) = (0, 0);
        for edge in dag.graph.edges_directed(node, Direction::Incoming) {
            let (before_begin, before_end) = times[edge.source().index()];
            match edge.weight().kind {
                // A process runs beside its parent, and beside the writer of its pipe, whom it outlives.
                EdgeKind::Fork | EdgeKind::Socket => begin = begin.max(before_begin),
                EdgeKind::Pipe => {
                    begin = begin.max(before_begin);
                    end = end.max(before_end);
                }
                _ => begin = begin.max(before_end),
            }
        }
        let own = match dag.graph[node] {
            Node::Process {
                id,
                version,
                versions,
            } => own_ns(id, version, versions),
            Node::File { .. } => 0,
        };
        times[node.index()] = (begin, end.max(begin + own));
        longest = longest.max(times[node.index()].1);
    }
    longest
}
