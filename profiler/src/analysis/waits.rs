//! Waits of steps: their kinds, blockers and root causes.
//!
//! A reader blocked on an empty channel waits for a *late writer*, a writer blocked on a full one for a
//! *late reader*, a parent for its child. If the blocker itself waited at that time, its own blocker is
//! charged, and so on. The charges for a wait never exceed the wait.

mod cause;
mod search;

use std::collections::{BTreeMap, BTreeSet};

pub use cause::{Cause, Root};
use search::Search;

use crate::analysis::threads::{Threads, threads};
use crate::intervals::{minus, union};
use crate::model::{ProcessId, Workflow};
use crate::timeline::{State, Timeline};

/// The kind of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The channel was empty.
    LateWriter,
    /// The channel was full.
    LateReader,
    /// Data was on its way through a network connection, and its sender was blocked writing, or had ended.
    Network,
    /// A child had not ended.
    Child,
    /// Storage.
    Storage,
    /// A lock was not free.
    Lock,
    /// No place of a jobserver was free.
    Place,
    /// Time had to pass.
    Sleep,
    /// Job control had stopped the process.
    Stopped,
    /// The process was ready to run, but all CPUs were in use.
    Cpu,
    /// Anything else.
    Other,
}

impl Kind {
    /// The kind of wait of a state; `None`: the state is no wait.
    pub const fn of(state: State) -> Option<Kind> {
        match state {
            State::In => Some(Kind::LateWriter),
            State::Out => Some(Kind::LateReader),
            State::Child => Some(Kind::Child),
            State::File | State::Fault => Some(Kind::Storage),
            State::Lock => Some(Kind::Lock),
            State::Sleep => Some(Kind::Sleep),
            State::Stopped => Some(Kind::Stopped),
            State::Queue => Some(Kind::Cpu),
            State::Other => Some(Kind::Other),
            State::Cpu | State::Tracer | State::Unknown => None,
        }
    }

    /// Name of the kind in output.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::LateWriter => "late writer",
            Kind::LateReader => "late reader",
            Kind::Network => "network",
            Kind::Child => "child",
            Kind::Storage => "storage",
            Kind::Lock => "lock",
            Kind::Place => "job slot",
            Kind::Sleep => "sleep",
            Kind::Stopped => "stopped",
            Kind::Cpu => "CPU",
            Kind::Other => "other",
        }
    }
}

/// Waits of the processes of one rule for those of another.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// Rule that waited.
    pub waiter: String,
    /// Kind of the wait.
    pub kind: Kind,
    /// Rule that it waited for; `None`: not a process, or not known which.
    pub blocker: Option<String>,
    /// Kind of the channel.
    pub channel: Option<String>,
    /// Time waited, summed over the processes, ns.
    pub ns: f64,
    /// Intervals seen.
    pub waits: u64,
    /// Number of processes that waited.
    pub processes: usize,
    /// True if the waiter only runs others.
    pub is_orchestrator: bool,
}

/// All waits of a run.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// The waits, the longest first.
    pub waits: Vec<Wait>,
    /// Root causes of the waits of steps for others, the longest first.
    pub causes: Vec<Cause>,
    /// Intervals in which no process was on a CPU, ready to run, or in storage.
    pub idle: Vec<(i64, i64)>,
    /// Programs whose threads waited for each other, the longest first.
    pub threads: Vec<Threads>,
    /// Life of all steps, ns.
    pub life_ns: f64,
}

impl Waits {
    /// Sum of the idle intervals, ns.
    pub fn idle_ns(&self) -> i64 {
        self.idle.iter().map(|&(from, to)| to - from).sum()
    }
}

/// Finds all waits of a run.
pub fn waits(workflow: &Workflow, timeline: &Timeline) -> Waits {
    let mut search = Search::new(workflow, timeline);
    let mut sums: BTreeMap<Key, Sum> = BTreeMap::new();
    let mut life = 0.0;
    for (program, &only_runs) in timeline.only_runs.iter().enumerate() {
        let part = timeline.part(program);
        let waiter = search.name(part.process, part.from);
        if !only_runs {
            life += (part.to - part.from) as f64;
        }
        for piece in timeline.pieces_within(part.process, part.from, part.to) {
            let length = (piece.to - piece.from) as f64;
            let mut under_way = search.under_way(piece);
            if only_runs {
                under_way.clear();
            }
            let way_ns: f64 = under_way.values().sum();
            for ((from, to), ns) in under_way {
                let ns = ns * timeline.shares(piece)[piece.state as usize];
                let other = if from == part.process { to } else { from };
                let kind = piece.channel.map(|at| &timeline.channels[at as usize].kind);
                let other = search.name(other, piece.from);
                let key = (
                    waiter.clone(),
                    Kind::Network,
                    Some(other),
                    kind.map(ToString::to_string),
                    false,
                );
                sums.entry(key).or_default().add(ns, part.process);
                let between = search.between(from, to, piece.from);
                search.add(Some(between), Root::Network, &waiter, ns);
            }
            for (state, share) in State::ALL.iter().zip(timeline.shares(piece)) {
                let Some(kind) = Kind::of(*state).filter(|_| *share > 0.0) else {
                    continue;
                };
                let ns = match *state == piece.state {
                    true => share * (length - way_ns),
                    false => share * length,
                };
                if ns < 1.0 {
                    continue;
                }
                let channel = piece
                    .channel
                    .filter(|_| *state == piece.state && state.is_waiting())
                    .map(|at| &timeline.channels[at as usize]);
                let is_place = channel.is_some_and(|channel| channel.is_token)
                    && matches!(state, State::In | State::Out);
                let kind = if is_place { Kind::Place } else { kind };
                let channel = channel.map(|channel| channel.kind.to_string());
                // `flock FILE COMMAND` only runs another program, but its wait for the lock is its own.
                let is_lock = *state == State::Lock;
                let is_orchestrator = only_runs && !is_lock;
                let counterparts = search.counterparts(part.process, piece, *state);
                let mut charged = 0.0;
                for &(blocker, share) in &counterparts {
                    charged += ns * share;
                    for (name, of_it) in search.names(blocker, piece.from, piece.to) {
                        let key = (
                            waiter.clone(),
                            kind,
                            Some(name),
                            channel.clone(),
                            is_orchestrator,
                        );
                        sums.entry(key)
                            .or_default()
                            .add(ns * share * of_it, part.process);
                    }
                    if !is_orchestrator {
                        let mut path = vec![part.process];
                        let time = (piece.from, piece.to);
                        search.charge(&waiter, blocker, time, ns * share, &mut path);
                    }
                }
                if ns - charged > 1.0 {
                    let key = (waiter.clone(), kind, None, channel.clone(), is_orchestrator);
                    sums.entry(key).or_default().add(ns - charged, part.process);
                    if state.is_waiting() && !is_orchestrator {
                        let root = match &channel {
                            _ if is_place => Root::NoPlace,
                            Some(_) => Root::Outside,
                            None => Root::Unseen,
                        };
                        search.add(None, root, &waiter, ns - charged);
                    }
                }
            }
        }
    }
    let mut waits: Vec<Wait> = sums
        .into_iter()
        .map(
            |((waiter, kind, blocker, channel, is_orchestrator), sum)| Wait {
                waiter,
                kind,
                blocker,
                channel,
                ns: sum.ns,
                waits: sum.waits,
                processes: sum.processes.len(),
                is_orchestrator,
            },
        )
        .collect();
    waits.sort_by(|a, b| b.ns.total_cmp(&a.ns));
    Waits {
        waits,
        causes: search.ranked(),
        idle: idle(timeline),
        threads: threads(workflow, timeline),
        life_ns: life,
    }
}

/// Waiter, kind, blocker, kind of the channel, and true if the waiter only runs others.
type Key = (String, Kind, Option<String>, Option<String>, bool);

#[derive(Default)]
struct Sum {
    ns: f64,
    waits: u64,
    processes: BTreeSet<ProcessId>,
}

impl Sum {
    fn add(&mut self, ns: f64, process: ProcessId) {
        self.ns += ns;
        self.waits += 1;
        self.processes.insert(process);
    }
}

/// Intervals in which no process was on a CPU, ready to run, or in storage.
fn idle(timeline: &Timeline) -> Vec<(i64, i64)> {
    let mut busy = Vec::new();
    for instance in &timeline.instances {
        for piece in &instance.pieces {
            let shares = timeline.shares(piece);
            let is_busy = State::ALL.iter().zip(shares).any(|(state, &share)| {
                (state.is_active() || state.is_storage() || *state == State::Unknown)
                    && share > 0.05
            });
            if is_busy {
                busy.push((piece.from, piece.to));
            }
        }
    }
    busy.sort_unstable();
    // Processes that the command left behind live on after it.
    minus(&[timeline.span], &union(busy))
}
