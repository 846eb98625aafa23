//! The resource that a bottleneck lacks, the blocker, and the confidence in both.

use std::collections::BTreeMap;

use super::{Bottleneck, Bottlenecks, Cause, Subject, mount};
use crate::analysis::bottlenecks::{Confidence, Resource};
use crate::intervals::union;
use crate::timeline::{Limit, Part, STATES, Shares, State, Timeline, sum_of};

/// The states of the instances of some tasks within intervals, ns, and the number of samples.
pub fn states(
    result: &Bottlenecks,
    timeline: &Timeline,
    members: &[usize],
    intervals: &[(i64, i64)],
) -> (Shares, u64) {
    let mut all = [0.0; STATES];
    let mut samples = 0.0;
    for_each_piece(result, timeline, members, intervals, |_, sums, of_piece| {
        add(&mut all, sums);
        samples += of_piece;
    });
    (all, samples.round() as u64)
}

fn add(sums: &mut Shares, others: Shares) {
    for (sum, other) in sums.iter_mut().zip(others) {
        *sum += other;
    }
}

/// Calls `each` for the pieces of the instances of some tasks within each interval, with the interval's
/// number, the states of the piece there, ns, and its samples.
fn for_each_piece(
    result: &Bottlenecks,
    timeline: &Timeline,
    members: &[usize],
    intervals: &[(i64, i64)],
    mut each: impl FnMut(usize, Shares, f64),
) {
    for part in members
        .iter()
        .flat_map(|&task| &result.tasks.tasks[task].members)
    {
        let first = intervals.partition_point(|&(_, to)| to <= part.from);
        let lived = intervals.iter().enumerate().skip(first);
        for (at, &(from, to)) in lived.take_while(|(_, one)| one.0 < part.to) {
            let (from, to) = (from.max(part.from), to.min(part.to));
            for piece in timeline.pieces_within(part.process, from, to) {
                let length = piece.overlap(from, to) as f64;
                let samples = f64::from(piece.samples) * length / (piece.to - piece.from) as f64;
                each(
                    at,
                    timeline.shares(piece).map(|share| share * length),
                    samples,
                );
            }
        }
    }
}

/// Divides the windows in which a vertex is a bottleneck by what its tasks did in them: a step that computes and
/// then sleeps limits the run by both, each in its time. Windows with several resources count for the one that
/// it lacked most in all.
pub(super) fn phases(
    result: &Bottlenecks,
    timeline: &Timeline,
    (vertex, by_single): (usize, bool),
    flagged: &[usize],
) -> Vec<Vec<usize>> {
    let span = |&w: &usize| (result.windows[w].from, result.windows[w].to);
    let intervals: Vec<(i64, i64)> = flagged.iter().map(span).collect();
    let mut each = vec![[0.0; STATES]; flagged.len()];
    let mut all = [0.0; STATES];
    for_each_piece(
        result,
        timeline,
        &result.graph.members[vertex],
        &intervals,
        |at, mut sums, _| {
            if by_single {
                sums = at_work(sums);
            }
            add(&mut each[at], sums);
            add(&mut all, sums);
        },
    );
    let most = |sums: &Shares| {
        most(
            sums,
            sums[State::Cpu as usize] + sums[State::Queue as usize],
        )
    };
    let (usual, _) = most(&all);
    let mut phases: BTreeMap<Resource, Vec<usize>> = BTreeMap::new();
    for (&window, sums) in flagged.iter().zip(&each) {
        let phase = match most(sums) {
            (resource, share) if share > result.options.alpha => resource,
            _ => usual,
        };
        phases.entry(phase).or_default().push(window);
    }
    phases.into_values().collect()
}

/// Keeps only the states of instances at work. The other instances of a pool wait for work, or for their
/// turn to ask for it.
pub fn at_work(mut sums: Shares) -> Shares {
    for state in State::ALL {
        if !state.is_at_work() {
            sums[state as usize] = 0.0;
        }
    }
    sums
}

/// The bottleneck that the tasks of a vertex are, or single instances of them.
pub(super) fn of_tasks(
    result: &Bottlenecks,
    timeline: &Timeline,
    (vertex, by_single): (usize, bool),
    intervals: Vec<(i64, i64)>,
    mean: f64,
    length: f64,
) -> Bottleneck {
    let members = &result.graph.members[vertex];
    let (mut sums, samples) = states(result, timeline, members, &intervals);
    if by_single {
        sums = at_work(sums);
    }
    let ns: i64 = intervals.iter().map(|&(from, to)| to - from).sum();
    let busiest = members
        .iter()
        .copied()
        .max_by_key(|&task| (processing(result, timeline, task, &intervals) * 1e6) as i64);
    Bottleneck {
        subject: Subject::Tasks(members.to_vec()),
        ns,
        share: ns as f64 / length,
        blocker: busiest,
        resource: lacking(result, timeline, members, &sums, &intervals),
        by_single,
        mean,
        samples,
        confidence: confidence(&sums, samples, mean, result.options.alpha),
        intervals,
    }
}

/// The bottleneck that some edges are. A full pipe does not limit by itself: a reader does not empty it,
/// and that reader is the blocker if it has anything to do.
pub(super) fn of_edges(
    result: &Bottlenecks,
    timeline: &Timeline,
    members: &[usize],
    intervals: Vec<(i64, i64)>,
    mean: f64,
    length: f64,
) -> Bottleneck {
    let ns: i64 = intervals.iter().map(|&(from, to)| to - from).sum();
    let edges = || members.iter().map(|&e| &result.tasks.edges[e]);
    let is_network = edges().any(|edge| edge.is_network(timeline));
    let is_file = edges().all(|edge| edge.channels.is_empty());
    let mut busiest: Option<(usize, f64)> = None;
    // Of two tasks that write to each other, the writer is not behind its own channel.
    let writers: Vec<usize> = edges().map(|edge| edge.ends().0).collect();
    let mut reached: Vec<usize> = edges().map(|edge| edge.ends().1).collect();
    let mut at = 0;
    while let Some(&task) = reached.get(at) {
        at += 1;
        let share = processing(result, timeline, task, &intervals);
        if busiest.is_none_or(|(_, most)| share > most) {
            busiest = Some((task, share));
        }
        for next in result.tasks.edges.iter().filter(|edge| edge.from == task) {
            if !reached.contains(&next.to) && !writers.contains(&next.to) {
                reached.push(next.to);
            }
        }
    }
    let consumer = busiest.filter(|&(_, share)| share >= 0.5);
    let involved: Vec<usize> = edges().flat_map(|edge| [edge.from, edge.to]).collect();
    let (sums, samples) = states(result, timeline, &involved, &intervals);
    let (blocker, resource) = match consumer {
        _ if is_file => (edges().next().map(|edge| edge.ends().0), Resource::Disk),
        Some((task, _)) => {
            let (sums, _) = states(result, timeline, &[task], &intervals);
            (
                Some(task),
                lacking(result, timeline, &[task], &sums, &intervals),
            )
        }
        None if is_network => (None, Resource::Network),
        None => (None, Resource::HandOver),
    };
    let mut sure = confidence(&sums, samples, mean, result.options.beta);
    // The thresholds give a channel; that a step is behind it is inferred.
    if consumer.is_some() && !is_file {
        sure = sure.min(Confidence::Medium);
    }
    Bottleneck {
        subject: Subject::Edges(members.to_vec()),
        ns,
        share: ns as f64 / length,
        blocker,
        resource,
        by_single: false,
        mean,
        samples,
        confidence: sure,
        intervals,
    }
}

/// Joins the bottlenecks of the same step or channel with the same resource.
pub(super) fn causes(result: &Bottlenecks, timeline: &Timeline) -> Vec<Cause> {
    let mut causes: Vec<Cause> = Vec::new();
    for found in &result.found {
        let edges = match &found.subject {
            Subject::Edges(edges) => edges.clone(),
            Subject::Tasks(_) => Vec::new(),
        };
        let same = causes.iter_mut().find(|cause| match found.blocker {
            Some(_) => {
                let key = (cause.task, cause.resource, cause.at_work.is_some());
                key == (found.blocker, found.resource, found.by_single)
            }
            None => cause.task.is_none() && cause.edges == edges,
        });
        match same {
            Some(cause) => {
                cause.intervals.extend(&found.intervals);
                cause.edges.extend(edges);
                cause.samples += found.samples;
                cause.confidence = cause.confidence.min(found.confidence);
            }
            None => causes.push(Cause {
                task: found.blocker,
                edges,
                resource: found.resource,
                intervals: found.intervals.clone(),
                ns: 0,
                share: 0.0,
                cpu: None,
                at_work: found.by_single.then_some((0.0, 0.0)),
                busiest: None,
                own_cores: 0.0,
                limit: None,
                samples: found.samples,
                confidence: found.confidence,
            }),
        }
    }
    let length = result.length().max(1) as f64;
    for cause in &mut causes {
        cause.intervals.sort_unstable();
        cause.intervals = union(std::mem::take(&mut cause.intervals));
        cause.ns = cause.intervals.iter().map(|&(from, to)| to - from).sum();
        cause.share = cause.ns as f64 / length;
        cause.cpu = busy(timeline, &cause.intervals);
        cause.own_cores = own_load(timeline, &cause.intervals).0;
        cause.limit = cause.task.and_then(|task| limit(result, timeline, &[task]));
        if let (Some(at_work), Some(task)) = (&mut cause.at_work, cause.task) {
            let (sums, _) = states(result, timeline, &[task], &cause.intervals);
            let ns = cause.ns.max(1) as f64;
            *at_work = (
                sum_of(&sums, State::is_at_work) / ns,
                sum_of(&sums, |_| true) / ns,
            );
            cause.busiest = busiest(
                timeline,
                &result.tasks.tasks[task].members,
                &cause.intervals,
            );
        }
    }
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.ns));
    causes
}

/// The instance that was at work for most of some intervals, while no other instance was for nearly as
/// long.
fn busiest(timeline: &Timeline, members: &[Part], intervals: &[(i64, i64)]) -> Option<usize> {
    /// Least share of the intervals, and largest share of `most` that the next instance may have.
    const MOST: f64 = 0.75;
    let length: i64 = intervals.iter().map(|&(from, to)| to - from).sum();
    let at_work = |part: &Part| -> f64 {
        let first = intervals.partition_point(|&(_, to)| to <= part.from);
        let lived = intervals[first..].iter().take_while(|one| one.0 < part.to);
        let within = lived.map(|&(from, to)| {
            let (from, to) = (from.max(part.from), to.min(part.to));
            sum_of(&timeline.within(part.process, from, to), State::is_at_work)
        });
        within.sum()
    };
    let mut times: Vec<(f64, usize)> = members
        .iter()
        .map(|part| (at_work(part), part.program))
        .collect();
    times.sort_by(|a, b| b.0.total_cmp(&a.0));
    let &(most, program) = times.first()?;
    let next = times.get(1).map_or(0.0, |next| next.0);
    (most >= MOST * length as f64 && next <= MOST * most).then_some(program)
}

/// CPUs that the run itself had within intervals, and CPUs that it wanted: the mean number of its threads
/// that ran, and that ran or were ready. The states of a process say when it was active, but a process has
/// one state at a time. The number of active threads comes from its time accounting.
pub fn own_load(timeline: &Timeline, intervals: &[(i64, i64)]) -> (f64, f64) {
    let length: i64 = intervals.iter().map(|&(from, to)| to - from).sum();
    let (mut had, mut wanted) = (0.0, 0.0);
    for instance in &timeline.instances {
        let accounting = &instance.accounting;
        let active = sum_of(&instance.totals, State::is_active);
        let by_accounting = (accounting.is_complete && active > 0.0).then(|| {
            let wanted = (accounting.on_cpu_ns + accounting.run_queue_ns) as f64;
            (accounting.on_cpu_ns as f64 / active, wanted / active)
        });
        let first = intervals.partition_point(|&(_, to)| to <= instance.from);
        for &(from, to) in intervals[first..]
            .iter()
            .take_while(|one| one.0 < instance.to)
        {
            let sums = timeline.within(instance.process, from, to);
            let active = sum_of(&sums, State::is_active);
            let (on_one, ready) = match by_accounting {
                Some((on_one, ready)) => (active * on_one, active * ready),
                None => (sums[State::Cpu as usize], active),
            };
            had += on_one;
            wanted += ready;
        }
    }
    let length = length.max(1) as f64;
    (had / length, wanted / length)
}

/// Mean share of the CPUs of all machines that were busy within intervals.
pub fn busy(timeline: &Timeline, intervals: &[(i64, i64)]) -> Option<f64> {
    let (mut sum, mut length) = (0.0, 0.0);
    for &(from, to) in intervals {
        for host in timeline.counters.hosts() {
            if let Some(share) = timeline.counters.cpu_busy(host, from, to) {
                sum += share * (to - from) as f64;
                length += (to - from) as f64;
            }
        }
    }
    (length > 0.0).then(|| sum / length)
}

/// Share of its known time that a task was processing.
fn processing(
    result: &Bottlenecks,
    timeline: &Timeline,
    task: usize,
    intervals: &[(i64, i64)],
) -> f64 {
    let (sums, _) = states(result, timeline, &[task], intervals);
    let known = sum_of(&sums, |state| state != State::Unknown);
    if known > 0.0 {
        sum_of(&sums, State::is_processing) / known
    } else {
        0.0
    }
}

/// The resource that tasks lacked: the state of most of their processing. For storage it is decided if the
/// wait was for storage or is a cost of tracing.
fn lacking(
    result: &Bottlenecks,
    timeline: &Timeline,
    members: &[usize],
    sums: &Shares,
    intervals: &[(i64, i64)],
) -> Resource {
    let limit = limit(result, timeline, members);
    match resource(timeline, sums, intervals, limit.as_ref()) {
        Resource::Disk if mount::is_cost(result, timeline, members, sums, intervals) => {
            Resource::Mount
        }
        other => other,
    }
}

/// The part of the machine that the instances of some tasks together may use, if that is less than all.
fn limit(result: &Bottlenecks, timeline: &Timeline, members: &[usize]) -> Option<Limit> {
    let tasks = members.iter().map(|&task| &result.tasks.tasks[task]);
    timeline.limit_of(tasks.flat_map(|task| task.members.iter().map(|part| part.process)))
}

/// The resource of most of the processing. `limit`: the part of the machine that the processes may use.
pub fn resource(
    timeline: &Timeline,
    sums: &Shares,
    intervals: &[(i64, i64)],
    limit: Option<&Limit>,
) -> Resource {
    let of = |state: State| sums[state as usize];
    let length: i64 = intervals.iter().map(|&(from, to)| to - from).sum();
    let mean = |ns: f64| ns / length.max(1) as f64;
    let wanted = mean(of(State::Cpu) + of(State::Queue));
    let lacks = lacks(timeline, intervals, (wanted, mean(of(State::Queue))), limit);
    let processing = sum_of(sums, State::is_processing);
    if processing <= 0.0 {
        return Resource::Other;
    }
    let (pressure, swapped) = memory(timeline, intervals, length as f64);
    let waits = of(State::Fault) + of(State::File);
    // The first read of a page is a fault, too. The kernel counts as pressure only pages that were given up
    // and are needed again.
    let presses = swapped || pressure.is_none_or(|stalled| stalled > 0.01 * of(State::Fault));
    let scarce = swapped || pressure.is_some_and(|stalled| stalled > 0.3 * length as f64);
    if presses && of(State::Fault) > 0.3 * processing || scarce && waits > 0.2 * processing {
        return Resource::Memory;
    }
    let (cpu, queue) = (of(State::Cpu), of(State::Queue));
    let active = cpu + queue;
    // A wait for a CPU that others on the machine took is no need of the step, unless it is the longest of all.
    let by_cpu = match lacks {
        Some(_) => active,
        None => cpu.max(queue),
    };
    match most(sums, by_cpu).0 {
        Resource::Cpu if queue > 0.35 * active => lacks.unwrap_or(Resource::Cpu),
        other => other,
    }
}

/// The resource of most of the processing, as far as states show it, and its share of the processing; `by_cpu` of
/// that is for want of a faster CPU, or of more.
fn most(sums: &Shares, by_cpu: f64) -> (Resource, f64) {
    let of = |state: State| sums[state as usize];
    let parts = [
        (by_cpu, Resource::Cpu),
        (of(State::Fault) + of(State::File), Resource::Disk),
        (of(State::Lock), Resource::Lock),
        (of(State::Sleep), Resource::Sleep),
        (of(State::Stopped), Resource::Stopped),
        (of(State::Tracer), Resource::Tracer),
        (of(State::Other), Resource::Other),
    ];
    let processing: f64 = parts.iter().map(|part| part.0).sum();
    let most = parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    most.map_or((Resource::Other, 0.0), |(ns, resource)| {
        (resource, ns / processing.max(1.0))
    })
}

/// The reason of a wait for a CPU; `None`: others on the machine took all CPUs. The run wants clearly more
/// CPUs than there are, or it may not use all of them. `wanted`: CPUs that some processes wanted; `waited`:
/// CPUs that they waited for.
fn lacks(
    timeline: &Timeline,
    intervals: &[(i64, i64)],
    (wanted, waited): (f64, f64),
    limit: Option<&Limit>,
) -> Option<Resource> {
    /// So many idle CPUs beside processes that wait for one mean that the processes may not use them.
    const IDLE: f64 = 0.5;
    let (_, of_run) = own_load(timeline, intervals);
    let exceeds = |limit: &Limit, wanted: f64| wanted > 1.1 * limit.cores;
    if limit.is_some_and(|limit| exceeds(limit, wanted))
        || timeline
            .limit
            .as_ref()
            .is_some_and(|limit| exceeds(limit, of_run))
    {
        return Some(Resource::Limit);
    }
    let Some(cpus) = timeline.cpus().map(|cpus| cpus as f64) else {
        return Some(Resource::Cpus);
    };
    let idle = busy(timeline, intervals).map_or(0.0, |busy| cpus * (1.0 - busy));
    if idle >= IDLE.max(0.4 * cpus) && waited >= IDLE {
        return Some(Resource::Limit);
    }
    (of_run > 1.25 * cpus).then_some(Resource::Cpus)
}

/// Pressure on memory within intervals, `length` ns in all: ns in which some task waited for memory, if
/// known, and true if memory was swapped.
fn memory(timeline: &Timeline, intervals: &[(i64, i64)], length: f64) -> (Option<f64>, bool) {
    let counters = &timeline.counters;
    let (mut pressure, mut swapped) = (None, 0.0);
    for &(from, to) in intervals {
        for host in counters.hosts() {
            let grown = |name| counters.growth(host, name, from, to);
            if let Some(stalled) = grown("pressure.memory.some") {
                pressure = Some(pressure.unwrap_or(0.0) + stalled);
            }
            swapped += grown("swap.in").unwrap_or(0.0) + grown("swap.out").unwrap_or(0.0);
        }
    }
    // A page now and then is no thrashing; ten megabytes per second are.
    (pressure, swapped > 10e6 * (length / 1e9).max(1.0))
}

/// Confidence that a share from so many samples lies above its threshold.
fn confidence(sums: &Shares, samples: u64, mean: f64, threshold: f64) -> Confidence {
    let all: f64 = sums.iter().sum();
    let unknown = sums[State::Unknown as usize] / all.max(1.0);
    let n = samples.max(1) as f64;
    let error = (mean * (1.0 - mean) / n).sqrt().max(1.0 / n);
    match samples {
        _ if unknown > 0.5 => Confidence::Low,
        50.. if mean - 2.0 * error > threshold => Confidence::High,
        10.. => Confidence::Medium,
        // The time accounting is exact. Without samples only the reasons of waits are unknown.
        _ if sum_of(sums, State::is_active) > 0.8 * all => Confidence::Medium,
        _ => Confidence::Low,
    }
}
