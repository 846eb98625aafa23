//! The lives of all processes as a network of instants.

use std::collections::{HashMap, HashSet};

use super::Evidence;
use super::line::Line;
use super::waits::{Cause, Release, SeenWait, Waits, lives};
use crate::analysis::critical_path::cut::Cut;
use crate::model::{Activity, FileIndex, ProcessId, Relation, Workflow};

/// No instant.
pub(super) const NONE: u32 = u32::MAX;

/// An instant in the life of a process. It comes `own_ns` after the instant before it in the same process
/// and not before `cross`, and `late_ns` after the later of both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instant {
    pub(super) process: ProcessId,
    /// Measured time, ns.
    pub(super) at_ns: i64,
    /// Work since the instant before, ns.
    pub(super) own_ns: i64,
    /// Instant of another process that had to come first, or [`NONE`].
    pub(super) cross: u32,
    /// Time that neither of them explains, ns.
    pub(super) late_ns: i64,
    /// True if `cross` freed a lock that the process waited for.
    pub(super) is_lock: bool,
}

/// The network of instants.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    /// The instants of all processes. Those of one process are adjacent and in order.
    pub(super) instants: Vec<Instant>,
    /// First and last instant of every process.
    pub(super) ends: Vec<(u32, u32)>,
    /// An order in which every instant comes after those it depends on.
    pub(super) order: Vec<u32>,
    pub(super) evidence: Evidence,
}

impl Network {
    pub(super) fn of(workflow: &Workflow, activity: &Activity) -> Network {
        let lives = lives(workflow);
        let children = workflow.children();
        let waits = Waits::new(workflow, activity, &lives, &children);

        let count = workflow.processes.len();
        let mut found: Vec<(ProcessId, Release)> = Vec::new();
        let mut cuts: Vec<Vec<(i64, Cut)>> = vec![Vec::new(); count];
        let seen: Vec<Vec<SeenWait>> = workflow.process_ids().map(|id| waits.seen(id)).collect();
        for id in workflow.process_ids() {
            let of_id = waits.releases(id, &seen);
            found.extend(of_id.into_iter().map(|release| (id, release)));
            for &child in &children[id.0 as usize] {
                let (start, end) = lives[id.0 as usize];
                let at = lives[child.0 as usize].0.clamp(start, end);
                cuts[id.0 as usize].push((at, Cut::Fork(child)));
            }
        }
        // Each release that is added is examined in turn: the process that caused it may itself have been
        // released.
        let mut next = 0;
        let mut known: HashSet<(ProcessId, i64, ProcessId)> = HashSet::new();
        while let Some(&(id, release)) = found.get(next) {
            next += 1;
            let Cause::Channel(other) = release.cause else {
                continue;
            };
            if !waits.is_threaded(other) {
                continue;
            }
            let by = waits.let_go_meanwhile(other, release.at_ns, id, &seen);
            if let Some((by, at_ns)) = by
                && at_ns <= lives[id.0 as usize].1.min(lives[other.0 as usize].1)
                && known.insert((other, at_ns, by))
            {
                found[next - 1].1.at_ns = at_ns;
                let cause = Cause::Channel(by);
                let is_lock = false;
                found.push((
                    other,
                    Release {
                        at_ns,
                        cause,
                        is_lock,
                    },
                ));
            }
        }
        let mut releases: Vec<Release> = Vec::with_capacity(found.len());
        for (id, release) in found {
            let place = releases.len();
            cuts[id.0 as usize].push((release.at_ns, Cut::Release(place)));
            let let_go = match release.cause {
                Cause::Channel(other) => Some((other, release.at_ns)),
                Cause::Fed(other, written_ns) => Some((other, written_ns)),
                Cause::Child(_) | Cause::Closed(_) => None,
            };
            if let Some((other, at_ns)) = let_go {
                cuts[other.0 as usize].push((at_ns, Cut::LetGo(place)));
            }
            releases.push(release);
        }
        let killers: Vec<Option<ProcessId>> = workflow
            .process_ids()
            .map(|id| waits.killer(id, &seen))
            .collect();
        for (id, killer) in workflow.process_ids().zip(&killers) {
            if let Some(killer) = killer {
                let (start, end) = lives[killer.0 as usize];
                let at = lives[id.0 as usize].1.clamp(start, end);
                cuts[killer.0 as usize].push((at, Cut::Kill(id)));
            }
        }
        for (reader, writer, at_ns) in fed_by(workflow, &lives) {
            cuts[writer.0 as usize].push((at_ns, Cut::Fork(reader)));
        }

        let mut network = Network::default();
        let mut forked_at = vec![NONE; count];
        let mut killed_at = vec![NONE; count];
        let mut let_go_at = vec![NONE; releases.len()];
        // The instants at which a release happened, and the release.
        let mut released: Vec<(u32, usize)> = Vec::new();
        for id in workflow.process_ids() {
            let at = id.0 as usize;
            cuts[at].sort_unstable();
            let line = Line {
                workflow,
                activity,
                id,
                life: lives[at],
                cuts: &cuts[at],
                seen: &seen[at],
                releases: &releases,
                is_threaded: waits.is_threaded(id),
            };
            let segments = line.segments(&mut network.evidence);
            let first = network.instants.len() as u32;
            network.push(id, lives[at].0, 0);
            for (&(at_ns, cut), segment) in cuts[at].iter().zip(&segments) {
                let instant = network.push(id, at_ns, segment.own_ns);
                match cut {
                    Cut::Release(place) if segment.is_released => released.push((instant, place)),
                    Cut::Release(_) => {}
                    Cut::Kill(killed) => killed_at[killed.0 as usize] = instant,
                    Cut::Fork(child) => forked_at[child.0 as usize] = instant,
                    Cut::LetGo(place) => let_go_at[place] = instant,
                }
            }
            // If a process was killed, nothing depended on its work since the last cut.
            let rest = segments.last().filter(|_| killers[at].is_none());
            let rest = rest.map_or(0, |segment| segment.own_ns);
            let last = network.push(id, lives[at].1, rest);
            network.ends.push((first, last));
        }
        for (instant, place) in released {
            network.instants[instant as usize].is_lock = releases[place].is_lock;
            network.instants[instant as usize].cross = match releases[place].cause {
                Cause::Channel(_) | Cause::Fed(..) => let_go_at[place],
                Cause::Child(id) | Cause::Closed(id) => network.ends[id.0 as usize].1,
            };
        }
        for (child, &instant) in forked_at.iter().enumerate() {
            let start = network.ends[child].0 as usize;
            network.instants[start].cross = instant;
        }
        for (killed, &instant) in killed_at.iter().enumerate() {
            if instant != NONE {
                let end = network.ends[killed].1 as usize;
                network.instants[end].cross = instant;
            }
        }
        network.put_in_order();
        network
    }

    fn push(&mut self, process: ProcessId, at_ns: i64, own_ns: i64) -> u32 {
        self.instants.push(Instant {
            process,
            at_ns,
            own_ns,
            cross: NONE,
            late_ns: 0,
            is_lock: false,
        });
        self.instants.len() as u32 - 1
    }

    /// The instant before in the same process.
    pub(super) fn before(&self, instant: u32) -> Option<u32> {
        let process = self.instants[instant as usize].process;
        (self.ends[process.0 as usize].0 != instant).then(|| instant - 1)
    }

    /// Time that a process worked between two instants, ns. The work of a segment comes before its wait.
    pub(super) fn own_within(&self, id: ProcessId, from_ns: i64, to_ns: i64) -> i64 {
        let (first, last) = self.ends[id.0 as usize];
        let stretches = (first..last).map(|before| {
            let begin = self.instants[before as usize].at_ns;
            let end = begin + self.instants[before as usize + 1].own_ns;
            (end.min(to_ns) - begin.max(from_ns)).max(0)
        });
        stretches.sum()
    }
}

/// For each process whose parent is not in the trace: the last writer of a file that it read, if the write
/// was before the process began, and the time of that write. Whatever started the process may have waited
/// for the file.
fn fed_by(workflow: &Workflow, lives: &[(i64, i64)]) -> Vec<(ProcessId, ProcessId, i64)> {
    let is_root = |id: ProcessId| workflow.process(id).parent.is_none();
    if workflow.process_ids().filter(|&id| is_root(id)).count() < 2 {
        return Vec::new();
    }
    let mut writers: HashMap<FileIndex, Vec<(i64, ProcessId)>> = HashMap::new();
    for access in &workflow.accesses {
        if let Some((_, last)) = access.write_ns {
            let (start, end) = lives[access.process.0 as usize];
            let written = (last.clamp(start, end), access.process);
            writers.entry(access.file).or_default().push(written);
        }
    }
    let mut found: HashMap<ProcessId, (i64, ProcessId)> = HashMap::new();
    for access in &workflow.accesses {
        if !is_root(access.process) || access.relation() != Relation::Read {
            continue;
        }
        let start = lives[access.process.0 as usize].0;
        let before = writers.get(&access.file).into_iter().flatten();
        let last = before
            .filter(|&&(at, writer)| at <= start && writer != access.process)
            .max();
        if let Some(&last) = last {
            let kept = found.entry(access.process).or_insert(last);
            *kept = last.max(*kept);
        }
    }
    let mut found: Vec<_> = found
        .into_iter()
        .map(|(reader, (at, writer))| (reader, writer, at))
        .collect();
    found.sort_unstable();
    found
}
