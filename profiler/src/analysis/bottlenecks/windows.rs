//! Cuts a run into windows. For each window, measures how much of it every task was processing and every
//! edge was saturated.

use std::collections::HashMap;

use super::algorithm::{Contracted, Load};
use super::tasks::Tasks;
use crate::model::ProcessId;
use crate::timeline::{Piece, State, Timeline, sum_of};

/// Most windows; for more, each window is made longer.
pub(super) const MOST: usize = 20_000;
/// A task that lived for less than this share of a window is left out of the window.
const LEAST_LIFE: f64 = 0.01;
/// A file counts as slow only if the disk is busy for this share of the window.
const DISK_BUSY: f64 = 0.9;

/// Default length of a window, ns: the paper's 5 s, less for short runs.
pub fn default_window(length: i64) -> i64 {
    (length / 20).clamp(100_000_000, 5_000_000_000)
}

/// The instants at which windows begin and end. Besides the multiples of `window`, these are the begins and
/// ends of processes that live long, so that a window does not mix what ran before with what ran after.
pub fn boundaries((from, to): (i64, i64), tasks: &Tasks, window: i64) -> Vec<i64> {
    let window = window.max(1).max((to - from) / MOST as i64);
    let apart = (window / 10).max(1);
    let mut lives: Vec<(i64, i64, i64)> = tasks
        .parts
        .iter()
        .filter(|(_, task)| task.is_some())
        .map(|(part, _)| (part.to - part.from, part.from, part.to))
        .filter(|&(life, _, _)| life >= window / 2)
        .collect();
    lives.sort_unstable_by_key(|&(life, begin, _)| (-life, begin));
    let mut kept = std::collections::BTreeSet::from([from, to]);
    let mut keep = |at: i64, apart: i64| {
        let is_near = kept.range(at - apart + 1..at + apart).next().is_some();
        if at > from && at < to && !is_near {
            kept.insert(at);
        }
    };
    for &(_, begin, end) in lives.iter().take(MOST) {
        keep(begin, apart);
        keep(end, apart);
    }
    let mut at = from;
    while at < to {
        keep(at, window / 2 + 1);
        at += window;
    }
    kept.into_iter().collect()
}

/// Measurements of a window.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Begin, ns.
    pub from: i64,
    /// End, ns.
    pub to: i64,
    /// Per vertex: share of time in processing.
    pub pt: Vec<Load>,
    /// Per vertex: share of time at work, only of instances that were at work for most of the window.
    pub single: Vec<Load>,
    /// Per edge: saturated share.
    pub st: Vec<Load>,
    /// Share of all CPUs that were busy; `None`: not known.
    pub cpu: Option<f64>,
    /// Time that instances were on a CPU, ns.
    pub on_cpu: f64,
}

/// Measures all windows. The loads of tasks are added up to those of their vertices in `graph`. An instance
/// at work for more than the share `alpha` of a window is at work for most of it.
pub fn measure(
    timeline: &Timeline,
    tasks: &Tasks,
    graph: &Contracted,
    boundaries: &[i64],
    alpha: f64,
) -> Vec<Measured> {
    let mut windows: Vec<Measured> = boundaries
        .windows(2)
        .map(|pair| Measured {
            from: pair[0],
            to: pair[1],
            pt: vec![Load::default(); graph.members.len()],
            single: vec![Load::default(); graph.members.len()],
            st: vec![Load::default(); graph.edges.len()],
            cpu: busy(timeline, pair[0], pair[1]),
            on_cpu: 0.0,
        })
        .collect();
    // Saturated time by channel and window, storage time by task and window.
    let mut saturated: HashMap<(u32, usize), f64> = HashMap::new();
    let mut storage: HashMap<(usize, usize), Load> = HashMap::new();
    // Processing without locks, by window and vertex.
    let mut unlocked = vec![vec![Load::default(); graph.members.len()]; windows.len()];
    // By vertex, the time that each instance was at work in windows that it filled.
    let mut throughout = vec![HashMap::<ProcessId, f64>::new(); graph.members.len()];
    for &(part, task) in &tasks.parts {
        let pieces = timeline.pieces_within(part.process, part.from, part.to);
        let mut at = 0;
        let first = boundaries
            .partition_point(|&b| b <= part.from)
            .saturating_sub(1);
        for (w, window) in windows.iter_mut().enumerate().skip(first) {
            if window.from >= part.to {
                break;
            }
            let mut sums = [0.0; crate::timeline::STATES];
            let mut waits = 0.0;
            while pieces.get(at).is_some_and(|piece| piece.to <= window.from) {
                at += 1;
            }
            let (from, to) = (window.from.max(part.from), window.to.min(part.to));
            for piece in pieces[at..].iter().take_while(|piece| piece.from < to) {
                let length = piece.overlap(from, to) as f64;
                let shares = timeline.shares(piece);
                for (state, (sum, share)) in sums.iter_mut().zip(shares).enumerate() {
                    match state == piece.state as usize && is_for_another(tasks, task, piece) {
                        true => waits += share * length,
                        false => *sum += share * length,
                    }
                }
                if let (State::Out | State::In, Some(channel)) = (piece.state, piece.channel) {
                    let share = shares[piece.state as usize];
                    let full = match piece.state {
                        State::Out => share * length,
                        _ => share * in_flight(timeline, channel, piece, (from, to)),
                    };
                    if full > 0.0 {
                        *saturated.entry((channel, w)).or_default() += full;
                    }
                }
            }
            window.on_cpu += sums[State::Cpu as usize];
            let known = sum_of(&sums, |state| state != State::Unknown) + waits;
            let length = (window.to - window.from) as f64;
            let Some(task) = task.filter(|_| known > 0.0 && known >= LEAST_LIFE * length) else {
                continue;
            };
            let queued = sums[State::Queue as usize];
            let share = sum_of(&sums, State::is_processing) / known;
            window.pt[graph.vertex_of[task]].add(Load::with(share, queued / known));
            let at_work = sum_of(&sums, State::is_at_work) / length;
            if at_work > alpha {
                window.single[graph.vertex_of[task]]
                    .add(Load::with(at_work.min(1.0), queued / length));
                let sum = &mut throughout[graph.vertex_of[task]];
                *sum.entry(part.process).or_default() += length;
            }
            let blocked = sum_of(&sums, State::is_storage) / known;
            storage.entry((task, w)).or_default().add(Load::of(blocked));
            let free = sum_of(&sums, |state| state.is_processing() && state != State::Lock);
            unlocked[w][graph.vertex_of[task]].add(Load::with(free / known, queued / known));
        }
    }
    // If it is always the same instance of a task that is at work, the other instances wait at locks for
    // that one, mostly at a barrier. Instances that take turns lack the lock.
    let is_uneven: Vec<bool> = throughout.iter().map(is_one).collect();
    for (window, unlocked) in windows.iter_mut().zip(unlocked) {
        for (vertex, unlocked) in unlocked.into_iter().enumerate() {
            if is_uneven[vertex] && window.single[vertex].mean().is_some() {
                window.pt[vertex] = unlocked;
            }
        }
    }
    let measure = Measure {
        timeline,
        tasks,
        graph,
    };
    measure.channels(&mut windows, &saturated);
    measure.files(&mut windows, &storage);
    windows
}

/// Time within an interval in which a process waited for data on its way through a network connection,
/// although the sender had already closed its end, ns.
fn in_flight(timeline: &Timeline, channel: u32, piece: &Piece, (from, to): (i64, i64)) -> f64 {
    let (from, to) = (piece.from.max(from), piece.to.min(to));
    let channel = &timeline.channels[channel as usize];
    let times = channel
        .under_way_within(from, to)
        .filter(|one| !one.is_full);
    times
        .map(|one| one.to.min(to) - one.from.max(from))
        .sum::<i64>() as f64
}

/// True if one process has most of the time.
fn is_one(times: &HashMap<ProcessId, f64>) -> bool {
    const MOST: f64 = 0.75;
    let most = times.values().copied().fold(0.0, f64::max);
    most > MOST * times.values().sum::<f64>()
}

/// True if the process waits for another task, or for a program that runs tasks: that one had the lock, or
/// is known to have ended the wait. The work is then there.
fn is_for_another(tasks: &Tasks, task: Option<usize>, piece: &Piece) -> bool {
    matches!(piece.state, State::Lock | State::Other)
        && piece
            .waker
            .is_some_and(|waker| tasks.of[waker.0 as usize] != task)
}

/// Mean share of busy CPUs over all machines with counters; `None`: no counters.
fn busy(timeline: &Timeline, from: i64, to: i64) -> Option<f64> {
    let hosts = timeline.counters.hosts();
    let known: Vec<f64> = hosts
        .iter()
        .filter_map(|&host| timeline.counters.cpu_busy(host, from, to))
        .collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

struct Measure<'a> {
    timeline: &'a Timeline,
    tasks: &'a Tasks,
    graph: &'a Contracted,
}

impl Measure<'_> {
    fn channels(&self, windows: &mut [Measured], saturated: &HashMap<(u32, usize), f64>) {
        for (e, edge) in self.tasks.edges.iter().enumerate() {
            let Some(to) = self.graph.edge_of[e] else {
                continue;
            };
            for &channel in &edge.channels {
                let ends = &self.timeline.channels[channel as usize];
                let hull = |sides: &[(_, i64, i64)]| {
                    let from = sides.iter().map(|&(_, from, _)| from).min();
                    from.zip(sides.iter().map(|&(_, _, to)| to).max())
                };
                let Some((writes, reads)) = hull(&ends.writers).zip(hull(&ends.readers)) else {
                    continue;
                };
                // Data on its way outlives its sender.
                let until = match ends.is_network() {
                    true => reads.1,
                    false => writes.1.min(reads.1),
                };
                let from = writes.0.max(reads.0);
                let first = windows.partition_point(|window| window.to <= from);
                for (w, window) in windows.iter_mut().enumerate().skip(first) {
                    if window.from >= until {
                        break;
                    }
                    let alive = until.min(window.to) - from.max(window.from);
                    if (alive as f64) < LEAST_LIFE * (window.to - window.from) as f64 || alive <= 0
                    {
                        continue;
                    }
                    let full = saturated.get(&(channel, w)).copied().unwrap_or(0.0);
                    window.st[to].add(Load::of((full / alive as f64).min(1.0)));
                }
            }
        }
    }

    /// A file is saturated while its writer or reader is blocked in storage and a disk is busy.
    fn files(&self, windows: &mut [Measured], storage: &HashMap<(usize, usize), Load>) {
        for (w, window) in windows.iter_mut().enumerate() {
            let counters = &self.timeline.counters;
            let busy = counters.busiest_disk(window.from, window.to).unwrap_or(0.0);
            for (e, edge) in self.tasks.edges.iter().enumerate() {
                let Some(to) = self.graph.edge_of[e].filter(|_| edge.file_count > 0) else {
                    continue;
                };
                let blocked = [edge.from, edge.to]
                    .iter()
                    .filter_map(|&task| storage.get(&(task, w))?.mean())
                    .reduce(f64::max);
                if let Some(blocked) = blocked {
                    let is_busy = busy >= DISK_BUSY;
                    window.st[to].add(Load::of(if is_busy { blocked } else { 0.0 }));
                }
            }
        }
    }
}
