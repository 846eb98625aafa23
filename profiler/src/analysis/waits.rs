//! Who waited for whom, and for what in the end: wait states, their culprits and root causes.
//!
//! A reader blocked on an empty channel waits for a *late writer*, a writer blocked on a full one
//! for a *late reader*, a parent for its child. Where the culprit waited itself at that time, its
//! own culprit is charged, and so on: nobody is ever charged with more than the waiter waited.

use std::collections::{BTreeMap, BTreeSet};

use crate::analysis::bottlenecks::union;
use crate::model::{ProcessId, Workflow};
use crate::timeline::{Piece, State, Timeline};

/// Why something waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The channel was empty.
    LateWriter,
    /// The channel was full.
    LateReader,
    /// A child had not ended.
    Child,
    /// Storage.
    Storage,
    /// A lock.
    Lock,
    /// No place to run was free, of those that a jobserver hands out.
    Place,
    /// Time had to pass.
    Sleep,
    /// Ready to run, but all processors were taken.
    Processor,
    /// Anything else.
    Other,
}

impl Kind {
    /// The kind of wait that a state is; `None`: it is none.
    pub const fn of(state: State) -> Option<Kind> {
        match state {
            State::In => Some(Kind::LateWriter),
            State::Out => Some(Kind::LateReader),
            State::Child => Some(Kind::Child),
            State::File | State::Fault => Some(Kind::Storage),
            State::Lock => Some(Kind::Lock),
            State::Sleep => Some(Kind::Sleep),
            State::Queue => Some(Kind::Processor),
            State::Other => Some(Kind::Other),
            State::Cpu | State::Tracer | State::Unknown => None,
        }
    }

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::LateWriter => "late writer",
            Kind::LateReader => "late reader",
            Kind::Child => "child",
            Kind::Storage => "storage",
            Kind::Lock => "lock",
            Kind::Place => "job slot",
            Kind::Sleep => "sleep",
            Kind::Processor => "processor",
            Kind::Other => "other",
        }
    }
}

/// What a culprit was doing while others waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Root {
    /// It was in this state.
    Doing(State),
    /// They waited for each other.
    EachOther,
    /// No place to run was free, of those that a jobserver hands out.
    NoPlace,
    /// Nobody of the run held the other end.
    Outside,
    /// On which channel it waited is not known.
    Unseen,
}

impl Root {
    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Root::Doing(State::Cpu) => "computed",
            Root::Doing(State::Queue) => "waited for a processor",
            Root::Doing(State::File) => "waited for storage",
            Root::Doing(State::Fault) => "waited for memory",
            Root::Doing(State::Lock) => "waited for a lock",
            Root::Doing(State::Sleep) => "slept",
            Root::Doing(State::In | State::Out | State::Child) => "waited itself",
            Root::Doing(State::Tracer) => "was held by the tracer",
            Root::Doing(State::Other) => "waited for something else",
            Root::Doing(State::Unknown) => "nobody saw what it did",
            Root::EachOther => "they waited for each other",
            Root::NoPlace => "no job slot was free",
            Root::Outside => "outside of the run",
            Root::Unseen => "nobody saw for what",
        }
    }
}

/// Waits of the processes of one rule for those of another.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// Rule that waited.
    pub waiter: String,
    /// Why.
    pub kind: Kind,
    /// Rule that it waited for; `None`: not a process, or not known which.
    pub culprit: Option<String>,
    /// Kind of the channel.
    pub channel: Option<String>,
    /// Time waited, summed over the processes, ns.
    pub ns: f64,
    /// Intervals seen.
    pub waits: u64,
    /// How many processes waited.
    pub processes: usize,
    /// Whether the waiter only runs others.
    pub is_orchestrator: bool,
}

/// What made others wait in the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// Rule that is charged; `None`: nobody of the run.
    pub culprit: Option<String>,
    /// What it did meanwhile.
    pub root: Root,
    /// Time that steps waited for that, ns.
    pub ns: f64,
    /// The rules that waited, the longest first, with their time.
    pub waiters: Vec<(String, f64)>,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// The longest first.
    pub waits: Vec<Wait>,
    /// Root causes of the waits of steps for others, the longest first.
    pub causes: Vec<Cause>,
    /// Time in which nothing was on a processor, ready to be, or in storage: intervals.
    pub idle: Vec<(i64, i64)>,
    /// Life of all steps, ns.
    pub life_ns: f64,
}

impl Waits {
    /// Sum of the idle intervals, ns.
    pub fn idle_ns(&self) -> i64 {
        self.idle.iter().map(|&(from, to)| to - from).sum()
    }
}

/// Shorter parts than this are charged where they are, ns: to follow them tells nothing.
const LEAST: f64 = 100_000.0;
/// Longest chain of culprits followed.
const DEEPEST: usize = 24;

struct Search<'a> {
    workflow: &'a Workflow,
    timeline: &'a Timeline,
    children: Vec<Vec<ProcessId>>,
    causes: BTreeMap<(Option<String>, Root), BTreeMap<String, f64>>,
}

/// Works out all waits of a run.
pub fn waits(workflow: &Workflow, timeline: &Timeline) -> Waits {
    let mut search = Search {
        workflow,
        timeline,
        children: workflow.children(),
        causes: BTreeMap::new(),
    };
    let mut sums: BTreeMap<Key, Sum> = BTreeMap::new();
    let mut life = 0.0;
    for instance in &timeline.instances {
        let waiter = search.name(instance.process);
        if !instance.is_orchestrator {
            life += (instance.to - instance.from) as f64;
        }
        for piece in &instance.pieces {
            let length = (piece.to - piece.from) as f64;
            for (state, share) in State::ALL.iter().zip(timeline.shares(piece)) {
                let Some(kind) = Kind::of(*state).filter(|_| *share > 0.0) else {
                    continue;
                };
                let ns = share * length;
                let channel = piece
                    .channel
                    .filter(|_| *state == piece.state)
                    .map(|at| &timeline.channels[at as usize]);
                let is_place = channel.is_some_and(|channel| channel.is_token)
                    && matches!(state, State::In | State::Out);
                let kind = if is_place { Kind::Place } else { kind };
                let channel = channel.map(|channel| channel.kind.to_string());
                let counterparts = search.counterparts(instance.process, piece, *state);
                let mut charged = 0.0;
                for &(culprit, part) in &counterparts {
                    charged += ns * part;
                    let key = (
                        waiter.clone(),
                        kind,
                        Some(search.name(culprit)),
                        channel.clone(),
                        instance.is_orchestrator,
                    );
                    sums.entry(key)
                        .or_default()
                        .add(ns * part, instance.process);
                    if !instance.is_orchestrator {
                        let mut path = vec![instance.process];
                        let time = (piece.from, piece.to);
                        search.charge(&waiter, culprit, time, ns * part, &mut path);
                    }
                }
                if ns - charged > 1.0 {
                    let key = (
                        waiter.clone(),
                        kind,
                        None,
                        channel.clone(),
                        instance.is_orchestrator,
                    );
                    sums.entry(key)
                        .or_default()
                        .add(ns - charged, instance.process);
                    if state.is_waiting() && !instance.is_orchestrator {
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
            |((waiter, kind, culprit, channel, is_orchestrator), sum)| Wait {
                waiter,
                kind,
                culprit,
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
        life_ns: life,
    }
}

/// Who held an end of a channel, from when to when.
type Side = (ProcessId, i64, i64);

/// Waiter, kind, culprit, kind of the channel, and whether the waiter only runs others.
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

impl Search<'_> {
    fn name(&self, process: ProcessId) -> String {
        self.workflow.rule(process).to_string()
    }

    /// Whom a piece waited for, with the part of it that each is charged with; at most 1 in all.
    fn counterparts(
        &self,
        waiter: ProcessId,
        piece: &Piece,
        state: State,
    ) -> Vec<(ProcessId, f64)> {
        let overlap = |from: i64, to: i64| (to.min(piece.to) - from.max(piece.from)).max(0);
        // Who ended the wait is who was waited for; within a process it says nothing of others.
        let ends = matches!(
            state,
            State::In | State::Out | State::Child | State::Lock | State::Other
        );
        if let Some(waker) = piece.waker.filter(|&waker| waker != waiter)
            && ends
            && state == piece.state
        {
            return vec![(waker, 1.0)];
        }
        // The first of these that held the other end throughout is charged with all.
        let mut tiers: Vec<BTreeMap<ProcessId, i64>> = Vec::new();
        match state {
            State::In | State::Out => {
                let Some(channel) = piece.channel else {
                    return Vec::new();
                };
                let channel = &self.timeline.channels[channel as usize];
                let (sides, keepers) = match state {
                    State::In => (&channel.writers, channel.keepers.as_slice()),
                    _ => (&channel.readers, [].as_slice()),
                };
                // A shell that merely keeps an end open is not who is waited for, as long as there is another.
                let is_shell = |id: ProcessId| self.timeline.instance(id).is_orchestrator;
                let steps = |side: &&Side| !is_shell(side.0);
                let shells = |side: &&Side| is_shell(side.0);
                let held = |tier: &mut dyn Iterator<Item = &Side>| {
                    let mut held: BTreeMap<ProcessId, i64> = BTreeMap::new();
                    for &(process, from, to) in tier.filter(|side| side.0 != waiter) {
                        let kept = held.entry(process).or_insert(0);
                        *kept = overlap(from, to).max(*kept);
                    }
                    held
                };
                tiers.push(held(&mut sides.iter().filter(steps)));
                tiers.push(held(&mut keepers.iter().filter(steps)));
                tiers.push(held(&mut sides.iter().chain(keepers).filter(shells)));
            }
            State::Child => {
                let children = self.children[waiter.0 as usize].iter().copied();
                let named = children.filter(|&child| {
                    let pid = self.workflow.process(child).pid;
                    piece.child_pid.is_none_or(|waited| waited == pid)
                });
                let lived = named.map(|child| {
                    let instance = self.timeline.instance(child);
                    (child, overlap(instance.from, instance.to))
                });
                tiers.push(lived.collect());
            }
            _ => {}
        }
        let length = (piece.to - piece.from) as f64;
        let mut left = 1.0;
        let mut found: BTreeMap<ProcessId, f64> = BTreeMap::new();
        for tier in tiers {
            let sum: i64 = tier.values().sum();
            let whole = (sum as f64).max(length * left);
            let before = left;
            for (id, held) in tier.into_iter().filter(|(_, held)| *held > 0) {
                let share = before * held as f64 / whole;
                *found.entry(id).or_default() += share;
                left -= share;
            }
            if left * length < 1.0 {
                break;
            }
        }
        found.into_iter().collect()
    }

    /// Charges `ns` of waiting within a time to a culprit, or to whom that waited for itself.
    fn charge(
        &mut self,
        waiter: &str,
        culprit: ProcessId,
        (from, to): (i64, i64),
        ns: f64,
        path: &mut Vec<ProcessId>,
    ) {
        let timeline = self.timeline;
        let instance = timeline.instance(culprit);
        let (begin, end) = (instance.from.max(from), instance.to.min(to));
        if end <= begin {
            return self.add(None, Root::Outside, waiter, ns);
        }
        let whole = (end - begin) as f64;
        for piece in timeline.pieces_within(culprit, begin, end) {
            let length = piece.overlap(begin, end) as f64;
            for (state, share) in State::ALL.iter().zip(timeline.shares(piece)) {
                let part = ns * share * length / whole;
                if part <= 0.0 {
                    continue;
                }
                if !state.is_waiting() || part < LEAST || path.len() >= DEEPEST {
                    let name = self.name(culprit);
                    self.add(Some(name), Root::Doing(*state), waiter, part);
                    continue;
                }
                let mut clipped = *piece;
                clipped.from = piece.from.max(begin);
                clipped.to = piece.to.min(end);
                let mut rest = part;
                for (next, of) in self.counterparts(culprit, &clipped, *state) {
                    rest -= part * of;
                    if path.contains(&next) || next == culprit {
                        self.add(Some(self.name(next)), Root::EachOther, waiter, part * of);
                        continue;
                    }
                    path.push(culprit);
                    self.charge(waiter, next, (clipped.from, clipped.to), part * of, path);
                    path.pop();
                }
                if rest > 1.0 {
                    let name = self.name(culprit);
                    self.add(Some(name), Root::Doing(*state), waiter, rest);
                }
            }
        }
    }

    fn add(&mut self, culprit: Option<String>, root: Root, waiter: &str, ns: f64) {
        let waiters = self.causes.entry((culprit, root)).or_default();
        *waiters.entry(waiter.to_owned()).or_default() += ns;
    }

    fn ranked(&mut self) -> Vec<Cause> {
        let mut causes: Vec<Cause> = std::mem::take(&mut self.causes)
            .into_iter()
            .map(|((culprit, root), waiters)| {
                let mut waiters: Vec<(String, f64)> = waiters.into_iter().collect();
                waiters.sort_by(|a, b| b.1.total_cmp(&a.1));
                Cause {
                    culprit,
                    root,
                    ns: waiters.iter().map(|(_, ns)| ns).sum(),
                    waiters,
                }
            })
            .collect();
        causes.sort_by(|a, b| b.ns.total_cmp(&a.ns));
        causes
    }
}

/// When no process was on a processor, ready to be, or in storage.
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
    let mut idle = Vec::new();
    let mut at = timeline.span.0;
    for (from, to) in union(busy) {
        if from > at {
            idle.push((at, from));
        }
        at = at.max(to);
    }
    if at < timeline.span.1 {
        idle.push((at, timeline.span.1));
    }
    idle
}
