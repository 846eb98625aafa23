//! The lives of all processes as a network of moments.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::Evidence;
use super::waits::{Cause, Release, SeenOn, SeenWait, Waits, lives};
use crate::model::{Activity, Doing, FileIndex, ProcessId, Relation, Workflow};

/// No moment.
pub(super) const NONE: u32 = u32::MAX;

/// A moment in the life of a process. It comes `own_ns` after the moment before it in the same
/// process and not before `cross`, and `late_ns` after the later of both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) process: ProcessId,
    /// As measured, ns.
    pub(super) at_ns: i64,
    /// Work since the moment before, ns.
    pub(super) own_ns: i64,
    /// Moment of another process that had to come first, or [`NONE`].
    pub(super) cross: u32,
    /// What neither explains, ns.
    pub(super) late_ns: i64,
}

/// The network.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    /// The moments of each process stand together, in the order of its life.
    pub(super) moments: Vec<Moment>,
    /// First and last moment of every process.
    pub(super) ends: Vec<(u32, u32)>,
    /// An order in which every moment comes after those it depends on.
    pub(super) order: Vec<u32>,
    pub(super) evidence: Evidence,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cut {
    /// A wait ended, by its place among all releases.
    Release(usize),
    /// It started that process, or wrote what that one needed to begin.
    Fork(ProcessId),
    /// What this process did let go the release at that place.
    LetGo(usize),
}

impl Network {
    pub(super) fn of(workflow: &Workflow, activity: &Activity) -> Network {
        let lives = lives(workflow);
        let children = workflow.children();
        let waits = Waits::new(workflow, activity, &lives, &children);

        let count = workflow.processes.len();
        let mut releases: Vec<Release> = Vec::new();
        let mut cuts: Vec<Vec<(i64, Cut)>> = vec![Vec::new(); count];
        let mut seen: Vec<Vec<SeenWait>> = Vec::with_capacity(count);
        for id in workflow.process_ids() {
            let of_process = waits.seen(id);
            for release in waits.releases(id, &of_process) {
                let place = releases.len();
                cuts[id.0 as usize].push((release.at_ns, Cut::Release(place)));
                if let Cause::Channel(other) = release.cause {
                    cuts[other.0 as usize].push((release.at_ns, Cut::LetGo(place)));
                }
                releases.push(release);
            }
            for &child in &children[id.0 as usize] {
                let (start, end) = lives[id.0 as usize];
                let at = lives[child.0 as usize].0.clamp(start, end);
                cuts[id.0 as usize].push((at, Cut::Fork(child)));
            }
            seen.push(of_process);
        }
        for (reader, writer, at_ns) in fed_by(workflow, &lives) {
            cuts[writer.0 as usize].push((at_ns, Cut::Fork(reader)));
        }

        let mut network = Network::default();
        let mut forked_at = vec![NONE; count];
        let mut let_go_at = vec![NONE; releases.len()];
        // The moments at which a release happened, and the release.
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
            };
            let segments = line.segments(&mut network.evidence);
            let first = network.moments.len() as u32;
            network.push(id, lives[at].0, 0);
            for (&(at_ns, cut), segment) in cuts[at].iter().zip(&segments) {
                let moment = network.push(id, at_ns, segment.own_ns);
                match cut {
                    Cut::Release(place) if segment.is_released => released.push((moment, place)),
                    Cut::Release(_) => {}
                    Cut::Fork(child) => forked_at[child.0 as usize] = moment,
                    Cut::LetGo(place) => let_go_at[place] = moment,
                }
            }
            let rest = segments.last().map_or(0, |segment| segment.own_ns);
            let last = network.push(id, lives[at].1, rest);
            network.ends.push((first, last));
        }
        for (moment, place) in released {
            network.moments[moment as usize].cross = match releases[place].cause {
                Cause::Channel(_) => let_go_at[place],
                Cause::Child(id) | Cause::Closed(id) => network.ends[id.0 as usize].1,
            };
        }
        for (child, &moment) in forked_at.iter().enumerate() {
            let start = network.ends[child].0 as usize;
            network.moments[start].cross = moment;
        }
        network.put_in_order();
        network
    }

    fn push(&mut self, process: ProcessId, at_ns: i64, own_ns: i64) -> u32 {
        self.moments.push(Moment {
            process,
            at_ns,
            own_ns,
            cross: NONE,
            late_ns: 0,
        });
        self.moments.len() as u32 - 1
    }

    /// The moment before in the same process.
    pub(super) fn before(&self, moment: u32) -> Option<u32> {
        let process = self.moments[moment as usize].process;
        (self.ends[process.0 as usize].0 != moment).then(|| moment - 1)
    }

    /// Finds the order. Two that let each other go at the same moment would wait for ever: of
    /// such a knot the earliest moment is taken to depend on its own process alone.
    fn put_in_order(&mut self) {
        let count = self.moments.len();
        let mut after: Vec<(u32, u32)> = (0..count as u32)
            .filter(|&m| self.moments[m as usize].cross != NONE)
            .map(|m| (self.moments[m as usize].cross, m))
            .collect();
        after.sort_unstable();
        let mut missing: Vec<u8> = (0..count as u32)
            .map(|m| {
                let has_cross = self.moments[m as usize].cross != NONE;
                u8::from(self.before(m).is_some()) + u8::from(has_cross)
            })
            .collect();
        let key = |moments: &[Moment], m: u32| Reverse((moments[m as usize].at_ns, m));
        let mut ready: BinaryHeap<_> = (0..count as u32)
            .filter(|&m| missing[m as usize] == 0)
            .map(|m| key(&self.moments, m))
            .collect();
        // Moments whose own process has come that far: the first of them gives way in a knot.
        let mut waiting: BinaryHeap<_> = (0..count as u32)
            .filter(|&m| missing[m as usize] == 1 && self.before(m).is_none())
            .map(|m| key(&self.moments, m))
            .collect();
        let mut is_done = vec![false; count];
        while self.order.len() < count {
            let Some(Reverse((_, m))) = ready.pop() else {
                let Some(Reverse((_, m))) = waiting.pop() else {
                    return;
                };
                if missing[m as usize] == 1 && !is_done[m as usize] {
                    self.moments[m as usize].cross = NONE;
                    missing[m as usize] = 0;
                    ready.push(key(&self.moments, m));
                }
                continue;
            };
            if std::mem::replace(&mut is_done[m as usize], true) {
                continue;
            }
            self.order.push(m);
            self.fix_lateness(m);
            let next = m + 1;
            if (next as usize) < count && self.before(next).is_some() {
                missing[next as usize] -= 1;
                match missing[next as usize] {
                    0 => ready.push(key(&self.moments, next)),
                    _ => waiting.push(key(&self.moments, next)),
                }
            }
            let from = after.partition_point(|&(cross, _)| cross < m);
            for &(_, to) in after[from..].iter().take_while(|&&(cross, _)| cross == m) {
                if self.moments[to as usize].cross == m {
                    missing[to as usize] -= 1;
                    if missing[to as usize] == 0 {
                        ready.push(key(&self.moments, to));
                    }
                }
            }
        }
    }

    /// What the moments before do not explain, so that the network gives the measured times.
    fn fix_lateness(&mut self, m: u32) {
        let own = self
            .before(m)
            .map(|b| self.moments[b as usize].at_ns + self.moments[m as usize].own_ns);
        let moment = self.moments[m as usize];
        let cross = (moment.cross != NONE).then(|| self.moments[moment.cross as usize].at_ns);
        let earliest = own.max(cross).unwrap_or(0);
        // A damaged trace may have causes after their effects.
        self.moments[m as usize].late_ns = (moment.at_ns - earliest).max(0);
    }
}

/// The life of one process.
struct Line<'a> {
    workflow: &'a Workflow,
    activity: &'a Activity,
    id: ProcessId,
    life: (i64, i64),
    cuts: &'a [(i64, Cut)],
    seen: &'a [SeenWait],
    releases: &'a [Release],
}

/// What lies between two cuts.
#[derive(Clone, Copy, Default)]
struct Segment {
    /// Work, ns.
    own_ns: i64,
    /// Of it, what samples say.
    seen_own_ns: i64,
    /// What no sample covers.
    uncovered_ns: i64,
    /// Waits that samples saw.
    waited_ns: i64,
    is_candidate: bool,
    is_released: bool,
}

impl Line<'_> {
    /// The segments that end at the cuts, and the one to the end of the process. A segment may hold
    /// waiting only if a release ends it.
    fn segments(&self, evidence: &mut Evidence) -> Vec<Segment> {
        let mut segments = Vec::with_capacity(self.cuts.len());
        let mut from = self.life.0;
        // Work outside of the candidates, ns.
        let mut elsewhere = 0;
        for &(to, cut) in self.cuts {
            let mut segment = Segment::default();
            match cut {
                Cut::Release(place) if to > from => {
                    let waited = self.waited(from, to, self.releases[place]);
                    let covered = self.covered(from, to).max(waited);
                    segment = Segment {
                        seen_own_ns: covered - waited,
                        uncovered_ns: to - from - covered,
                        waited_ns: waited,
                        is_candidate: true,
                        ..segment
                    };
                }
                _ => {
                    segment.own_ns = to - from;
                    elsewhere += to - from - self.any_wait(from, to);
                }
            }
            segments.push(segment);
            from = to;
        }
        elsewhere += self.life.1 - from - self.any_wait(from, self.life.1);
        segments.push(Segment {
            own_ns: self.life.1 - from,
            ..Segment::default()
        });
        self.balance(&mut segments, elsewhere);
        let mut before = (i64::MIN, false);
        for (segment, &(to, cut)) in segments.iter_mut().zip(self.cuts) {
            let inferred = segment.own_ns < segment.seen_own_ns + segment.uncovered_ns;
            let waited = segment.waited_ns > 0 || segment.is_candidate && inferred;
            // The second of two that let it go in the same moment.
            let is_second = before == (to, true);
            segment.is_released = match cut {
                Cut::Release(place) => {
                    // A pipe is read to its end: that binds even who did not wait for it.
                    let binds = matches!(self.releases[place].cause, Cause::Closed(_));
                    waited || is_second || binds
                }
                _ => false,
            };
            if segment.is_candidate {
                evidence.sampled_ns += segment.waited_ns;
                let inferred = segment.seen_own_ns + segment.uncovered_ns - segment.own_ns;
                evidence.inferred_ns += inferred.max(0);
            }
            before = (to, segment.is_released);
        }
        segments
    }

    /// Decides what was work where no sample tells, from the exact time that the process was busy:
    /// the work of all segments must sum up to that. Where that is not known either, it waited.
    fn balance(&self, segments: &mut [Segment], elsewhere: i64) {
        let seen_own: i64 = segments.iter().map(|s| s.seen_own_ns).sum();
        let uncovered: i64 = segments.iter().map(|s| s.uncovered_ns).sum();
        let (mut keep, mut fill) = (1.0, 0.0);
        if let Some(busy) = self.busy_ns() {
            let have = elsewhere + seen_own;
            if have < busy && uncovered > 0 {
                fill = ((busy - have) as f64 / uncovered as f64).min(1.0);
            } else if have > busy && seen_own > 0 {
                keep = ((busy - elsewhere).max(0) as f64 / seen_own as f64).min(1.0);
            }
        }
        // Who starts others and has not worked that much waited for something that is not known: a
        // job that could not start yet. Of others that is their own affair, as a sleep is.
        let has_children = self.cuts.iter().any(|cut| matches!(cut.1, Cut::Fork(_)));
        if let Some(busy) = self.busy_ns().filter(|&b| has_children && b < elsewhere) {
            let share = busy as f64 / elsewhere as f64;
            for segment in segments.iter_mut().filter(|s| !s.is_candidate) {
                segment.own_ns = (segment.own_ns as f64 * share).round() as i64;
            }
        }
        for segment in segments.iter_mut().filter(|s| s.is_candidate) {
            let own = segment.seen_own_ns as f64 * keep + segment.uncovered_ns as f64 * fill;
            segment.own_ns = own.round() as i64;
        }
    }

    /// Time that the process was busy, or waited for what is nobody's doing, ns; `None`: not
    /// known, or of so many threads that the sum says little.
    fn busy_ns(&self) -> Option<i64> {
        let process = self.workflow.process(self.id);
        let cpu = process.cpu_ns?;
        let images = self.workflow.images(self.id);
        let mut busy = cpu;
        for image in images {
            for part in [image.run_queue_ns, image.storage_ns, image.tracer_ns] {
                busy = busy.saturating_add(part.unwrap_or(0));
            }
        }
        let spans = self.activity.of(self.id);
        let has_threads = images.iter().any(|i| i.threads.is_some_and(|n| n > 1));
        if has_threads && !spans.is_empty() {
            return None;
        }
        let not_busy: i64 = spans
            .iter()
            .filter(|span| span.doing != Doing::Busy)
            .map(|span| span.to_ns - span.from_ns)
            .sum();
        let seen: i64 = self.seen.iter().map(|w| w.to_ns - w.from_ns).sum();
        Some((busy + not_busy - seen).min(self.life.1 - self.life.0))
    }

    /// Time of an interval that samples say it waited for what then let it go, ns.
    fn waited(&self, from: i64, to: i64, release: Release) -> i64 {
        let fits = |wait: &SeenWait| match (wait.on, release.cause) {
            (SeenOn::Child(child), Cause::Child(by)) => child.is_none_or(|child| child == by),
            (SeenOn::Channel(other), Cause::Child(by) | Cause::Channel(by) | Cause::Closed(by)) => {
                other == by
            }
            (SeenOn::Child(_), _) => false,
        };
        self.overlap(from, to, fits)
    }

    fn any_wait(&self, from: i64, to: i64) -> i64 {
        self.overlap(from, to, |_| true)
    }

    fn overlap(&self, from: i64, to: i64, fits: impl Fn(&SeenWait) -> bool) -> i64 {
        let first = self.seen.partition_point(|wait| wait.to_ns <= from);
        self.seen[first.saturating_sub(1)..]
            .iter()
            .take_while(|wait| wait.from_ns < to)
            .filter(|wait| fits(wait))
            .map(|wait| {
                // The look after its end came late: it lasted to what let it go.
                let is_near = to > wait.to_ns && to - wait.to_ns <= wait.error_ns * 2;
                let until = if is_near { to } else { wait.to_ns };
                (until.min(to) - wait.from_ns.max(from)).max(0)
            })
            .sum()
    }

    fn covered(&self, from: i64, to: i64) -> i64 {
        let spans = self.activity.of(self.id);
        let first = spans.partition_point(|span| span.to_ns <= from);
        spans[first..]
            .iter()
            .take_while(|span| span.from_ns < to)
            .map(|span| span.to_ns.min(to) - span.from_ns.max(from))
            .sum()
    }
}

/// Of processes that nobody in the trace started: who wrote the last of the files that they read,
/// if that was before they began, and when. Whoever started them may have waited for that.
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
