//! Finds the blocker of a wait, and the blocker of that one in turn.

use std::collections::BTreeMap;

use super::{Cause, Root};
use crate::model::{ProcessId, Workflow};
use crate::timeline::{Piece, State, Timeline};

/// A process that had an end of a channel open, and the begin and end of that time, ns.
type Side = (ProcessId, i64, i64);

/// Shorter parts of a wait are charged to the blocker without a search for its own blocker, ns.
const LEAST: f64 = 100_000.0;
/// Longest chain of blockers followed.
const DEEPEST: usize = 24;

pub(super) struct Search<'a> {
    workflow: &'a Workflow,
    timeline: &'a Timeline,
    children: Vec<Vec<ProcessId>>,
    /// For each process that may have adopted them, processes that outlived their parents, with the time of
    /// that. A subreaper waits for them as for its children (`PR_SET_CHILD_SUBREAPER` of prctl(2)).
    orphans: Vec<Vec<(ProcessId, i64)>>,
    causes: BTreeMap<(Option<String>, Root), BTreeMap<String, f64>>,
}

/// For each process, its descendants that lost their parents and had it as their nearest living ancestor.
fn orphans(workflow: &Workflow, timeline: &Timeline) -> Vec<Vec<(ProcessId, i64)>> {
    let mut adopted = vec![Vec::new(); workflow.processes.len()];
    for id in workflow.process_ids() {
        let until = timeline.instance(id).to;
        let mut from = i64::MIN;
        let mut above = workflow.process(id).parent;
        while let Some(ancestor) = above.filter(|_| from < until) {
            let ends = timeline.instance(ancestor).to;
            if from > i64::MIN && ends > from {
                adopted[ancestor.0 as usize].push((id, from));
            }
            from = from.max(ends);
            above = workflow.process(ancestor).parent;
        }
    }
    adopted
}

impl<'a> Search<'a> {
    pub(super) fn new(workflow: &'a Workflow, timeline: &'a Timeline) -> Self {
        Search {
            workflow,
            timeline,
            children: workflow.children(),
            orphans: orphans(workflow, timeline),
            causes: BTreeMap::new(),
        }
    }

    /// Name of the program that a process ran at `ns`.
    pub(super) fn name(&self, process: ProcessId, ns: i64) -> String {
        let programs = &self.timeline.programs;
        let stint = &programs.stints[programs.at(process, ns)];
        self.workflow.program(stint).rule.to_string()
    }

    /// Names of the programs that a process ran in an interval, each with its part of the interval.
    pub(super) fn names(&self, process: ProcessId, from: i64, to: i64) -> Vec<(String, f64)> {
        let instance = self.timeline.instance(process);
        let (from, to) = (from.max(instance.from), to.min(instance.to));
        if to <= from {
            return vec![(self.name(process, from), 1.0)];
        }
        let parts = self.timeline.programs.within(process, from, to);
        let length = (to - from) as f64;
        parts
            .map(|(_, begin, end)| (self.name(process, begin), (end - begin) as f64 / length))
            .collect()
    }

    /// The part of a wait at a network connection in which data was on its way, ns, by sender and receiver.
    pub(super) fn under_way(&self, piece: &Piece) -> BTreeMap<(ProcessId, ProcessId), f64> {
        let mut found = BTreeMap::new();
        let channel = piece.channel.map(|at| &self.timeline.channels[at as usize]);
        let Some(channel) = channel.filter(|_| matches!(piece.state, State::In | State::Out))
        else {
            return found;
        };
        for one in channel.under_way_within(piece.from, piece.to) {
            let ns = one.to.min(piece.to) - one.from.max(piece.from);
            *found.entry((one.sender, one.receiver)).or_default() += ns as f64;
        }
        let all: f64 = found.values().sum();
        let length = (piece.to - piece.from) as f64;
        if all > length {
            found.values_mut().for_each(|ns| *ns *= length / all);
        }
        found
    }

    /// Name of a connection for people: sender and receiver.
    pub(super) fn between(&self, sender: ProcessId, receiver: ProcessId, ns: i64) -> String {
        format!("{} → {}", self.name(sender, ns), self.name(receiver, ns))
    }

    /// The processes that a piece waited for, with the part of the wait that each is charged with; at most
    /// 1 in all.
    pub(super) fn counterparts(
        &self,
        waiter: ProcessId,
        piece: &Piece,
        state: State,
    ) -> Vec<(ProcessId, f64)> {
        let overlap = |from: i64, to: i64| (to.min(piece.to) - from.max(piece.from)).max(0);
        // The waker is the process waited for. A waker within the same process says nothing about others.
        let ends = matches!(
            state,
            State::In | State::Out | State::Child | State::Lock | State::Stopped | State::Other
        );
        if let Some(waker) = piece.waker.filter(|&waker| waker != waiter)
            && ends
            && state == piece.state
        {
            return self.wakers(waiter, waker, piece);
        }
        // The first tier whose processes had the other end open throughout is charged with the whole wait.
        let mut tiers: Vec<BTreeMap<ProcessId, i64>> = Vec::new();
        match state {
            State::In | State::Out => {
                let Some(channel) = piece.channel else {
                    return Vec::new();
                };
                let channel = &self.timeline.channels[channel as usize];
                let (sides, holders) = match state {
                    State::In => (&channel.writers, &channel.write_holders),
                    _ => (&channel.readers, &channel.read_holders),
                };
                // A shell that merely keeps an end open is not the blocker if there is another process.
                let is_shell = |id: ProcessId| self.timeline.instance(id).is_orchestrator;
                let steps = |side: &&Side| !is_shell(side.0);
                let shells = |side: &&Side| is_shell(side.0);
                let open = |tier: &mut dyn Iterator<Item = &Side>| {
                    let mut open: BTreeMap<ProcessId, i64> = BTreeMap::new();
                    for &(process, from, to) in tier.filter(|side| side.0 != waiter) {
                        let kept = open.entry(process).or_insert(0);
                        *kept = overlap(from, to).max(*kept);
                    }
                    self.without_peers(open, piece, state)
                };
                tiers.push(open(&mut sides.iter().filter(steps)));
                if state == State::Out {
                    // A shell that reads takes all data, even if it runs programs between two lines.
                    tiers.push(open(&mut sides.iter().filter(shells)));
                }
                tiers.push(open(&mut holders.iter().filter(steps)));
                tiers.push(open(&mut sides.iter().chain(holders).filter(shells)));
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
                let orphans = self.orphans[waiter.0 as usize].iter();
                let lived = orphans.map(|&(orphan, from)| {
                    let until = self.timeline.instance(orphan).to;
                    (orphan, overlap(from, until))
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
            for (id, open) in tier.into_iter().filter(|(_, open)| *open > 0) {
                let share = before * open as f64 / whole;
                *found.entry(id).or_default() += share;
                left -= share;
            }
            if left * length < 1.0 {
                break;
            }
        }
        // Begin and end of a wait are known to half the time between two samples. Time of the wait within
        // that error that no process is charged with is charged to the known ones.
        let is_within_error = left * f64::from(piece.samples.max(1)) <= 1.0;
        let scale = if is_within_error {
            1.0 / (1.0 - left)
        } else {
            1.0
        };
        found
            .into_iter()
            .map(|(id, part)| (id, part * scale))
            .collect()
    }

    /// Leaves out the time in which processes with the other side open waited at the same channel: no
    /// client of one datagram socket answers another. If all of them waited all the time, nothing is left
    /// out.
    fn without_peers(
        &self,
        open: BTreeMap<ProcessId, i64>,
        piece: &Piece,
        state: State,
    ) -> BTreeMap<ProcessId, i64> {
        if open.len() < 2 {
            return open;
        }
        let waits_too = |other: &&Piece| other.state == state && other.channel == piece.channel;
        let free: BTreeMap<ProcessId, i64> = open
            .iter()
            .map(|(&process, &kept)| {
                let pieces = self
                    .timeline
                    .pieces_within(process, piece.from, piece.to)
                    .iter();
                let too = pieces.filter(waits_too);
                let waited: i64 = too.map(|other| other.overlap(piece.from, piece.to)).sum();
                (process, (kept - waited).max(0))
            })
            .collect();
        match free.values().all(|kept| *kept == 0) {
            true => open,
            false => free,
        }
    }

    /// The process that ended a wait, and for the part of the wait before its birth, the process that
    /// started it: a program that a script runs to unlock frees the lock of the script.
    fn wakers(&self, waiter: ProcessId, waker: ProcessId, piece: &Piece) -> Vec<(ProcessId, f64)> {
        let length = (piece.to - piece.from).max(1) as f64;
        let mut found = Vec::new();
        let mut until = piece.to;
        let mut next = Some(waker);
        while let Some(id) = next.filter(|&id| id != waiter && until > piece.from) {
            let from = self.timeline.instance(id).from.max(piece.from);
            if from < until {
                found.push((id, (until - from) as f64 / length));
                until = from;
            }
            next = self.workflow.process(id).parent;
        }
        found
    }

    /// Charges `ns` of a wait within a time to a blocker, or to the process that the blocker itself waited
    /// for.
    pub(super) fn charge(
        &mut self,
        waiter: &str,
        blocker: ProcessId,
        (from, to): (i64, i64),
        ns: f64,
        path: &mut Vec<ProcessId>,
    ) {
        let timeline = self.timeline;
        let instance = timeline.instance(blocker);
        let (begin, end) = (instance.from.max(from), instance.to.min(to));
        if end <= begin {
            return self.add(None, Root::Outside, waiter, ns);
        }
        let whole = (end - begin) as f64;
        for piece in timeline.pieces_within(blocker, begin, end) {
            let length = piece.overlap(begin, end) as f64;
            for (state, share) in State::ALL.iter().zip(timeline.shares(piece)) {
                let part = ns * share * length / whole;
                if part <= 0.0 {
                    continue;
                }
                // A blocker that also waited for the lock waited for those before it.
                let waits = state.is_waiting() || *state == State::Lock && piece.waker.is_some();
                if !waits || part < LEAST || path.len() >= DEEPEST {
                    let name = self.name(blocker, begin.max(piece.from));
                    self.add(Some(name), Root::Doing(*state), waiter, part);
                    continue;
                }
                let mut clipped = *piece;
                clipped.from = piece.from.max(begin);
                clipped.to = piece.to.min(end);
                let mut part = part;
                if *state == piece.state {
                    let under_way = self.under_way(&clipped);
                    let whole = part;
                    for ((sender, receiver), way_ns) in under_way {
                        let of_it = whole * way_ns / length;
                        let between = self.between(sender, receiver, clipped.from);
                        self.add(Some(between), Root::Network, waiter, of_it);
                        part -= of_it;
                    }
                    if part < 1.0 {
                        continue;
                    }
                }
                let mut rest = part;
                let mut counterparts = self.counterparts(blocker, &clipped, *state);
                self.drop_cycles(&mut counterparts, path);
                for (next, of) in counterparts {
                    rest -= part * of;
                    if path.contains(&next) || next == blocker {
                        let name = self.name(next, clipped.from);
                        self.add(Some(name), Root::EachOther, waiter, part * of);
                        continue;
                    }
                    path.push(blocker);
                    self.charge(waiter, next, (clipped.from, clipped.to), part * of, path);
                    path.pop();
                }
                if rest > 1.0 {
                    let name = self.name(blocker, clipped.from);
                    self.add(Some(name), Root::Doing(*state), waiter, rest);
                }
            }
        }
    }

    /// Drops children that wait for the waiter: a process does not wait for the end of such a child, if
    /// there are other children that it can have waited for.
    fn drop_cycles(&self, counterparts: &mut Vec<(ProcessId, f64)>, path: &[ProcessId]) {
        let ancestors = |&id: &ProcessId| {
            std::iter::successors(Some(id), |&id| self.workflow.process(id).parent)
        };
        let waits_here = |id: ProcessId| path.iter().flat_map(ancestors).any(|own| own == id);
        let sum = |all: &[(ProcessId, f64)]| all.iter().map(|(_, part)| part).sum::<f64>();
        let before = sum(counterparts);
        let (cyclic, mut free): (Vec<_>, Vec<_>) =
            counterparts.iter().partition(|(id, _)| waits_here(*id));
        if cyclic.is_empty() || free.is_empty() {
            return;
        }
        let scale = before / sum(&free);
        for (_, part) in &mut free {
            *part *= scale;
        }
        *counterparts = free;
    }

    pub(super) fn add(&mut self, blocker: Option<String>, root: Root, waiter: &str, ns: f64) {
        let waiters = self.causes.entry((blocker, root)).or_default();
        *waiters.entry(waiter.to_owned()).or_default() += ns;
    }

    pub(super) fn ranked(&mut self) -> Vec<Cause> {
        let mut causes: Vec<Cause> = std::mem::take(&mut self.causes)
            .into_iter()
            .map(|((blocker, root), waiters)| {
                let mut waiters: Vec<(String, f64)> = waiters.into_iter().collect();
                waiters.sort_by(|a, b| b.1.total_cmp(&a.1));
                Cause {
                    blocker,
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
