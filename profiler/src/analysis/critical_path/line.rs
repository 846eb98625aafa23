//! The life of one process, divided into work and waiting.

use super::Evidence;
use super::cut::Cut;
use super::waits::{Cause, Release, SeenOn, SeenWait};
use crate::model::{Activity, Doing, ProcessId, Span, Workflow};

/// Largest share of a segment that may seem to be a wait although it was work.
const INEXACT: f64 = 0.1;

/// The life of one process.
pub(super) struct Line<'a> {
    pub(super) workflow: &'a Workflow,
    pub(super) activity: &'a Activity,
    pub(super) id: ProcessId,
    pub(super) life: (i64, i64),
    pub(super) cuts: &'a [(i64, Cut)],
    pub(super) seen: &'a [SeenWait],
    pub(super) releases: &'a [Release],
    /// True if the process had threads: the event that ended the wait of one thread need not be what
    /// another waited for.
    pub(super) is_threaded: bool,
}

/// The part of a life between two cuts.
#[derive(Clone, Copy, Default)]
pub(super) struct Segment {
    /// Work, ns.
    pub(super) own_ns: i64,
    /// Work that samples show, ns.
    pub(super) seen_own_ns: i64,
    /// Time that no sample covers, ns.
    pub(super) uncovered_ns: i64,
    /// Waits that samples saw.
    pub(super) waited_ns: i64,
    pub(super) is_candidate: bool,
    pub(super) is_released: bool,
}

impl Line<'_> {
    /// The segments that end at the cuts, and the one to the end of the process. Only a segment that a
    /// release ends may contain a wait.
    pub(super) fn segments(&self, evidence: &mut Evidence) -> Vec<Segment> {
        let mut segments = Vec::with_capacity(self.cuts.len());
        let mut from = self.life.0;
        // Work outside of the candidates, ns.
        let mut elsewhere = 0;
        for &(to, cut) in self.cuts {
            let mut segment = Segment::default();
            match cut {
                Cut::Release(place) if to > from => {
                    // What the process waited for in vain it had only now. Since it acted on no other process.
                    let waited = match self.waited(from, to, self.releases[place]) {
                        0 => 0,
                        waited => waited + self.in_vain(from, to),
                    };
                    let covered = self.covered(from, to) - self.for_nobody(from, to);
                    let covered = covered.max(waited);
                    segment = Segment {
                        seen_own_ns: covered - waited,
                        uncovered_ns: (to - from - covered - self.for_nobody(from, to)).max(0),
                        waited_ns: waited,
                        is_candidate: true,
                        ..segment
                    };
                }
                _ => {
                    segment.own_ns = to - from - self.idle(from, to);
                    elsewhere += to - from - self.any_wait(from, to);
                }
            }
            segments.push(segment);
            from = to;
        }
        elsewhere += self.life.1 - from - self.any_wait(from, self.life.1);
        segments.push(Segment {
            own_ns: self.life.1 - from - self.idle(from, self.life.1),
            ..Segment::default()
        });
        self.balance(&mut segments, elsewhere);
        let mut before = (i64::MIN, false);
        for (segment, &(to, cut)) in segments.iter_mut().zip(self.cuts) {
            let inferred = segment.own_ns < segment.seen_own_ns + segment.uncovered_ns;
            let waited = segment.waited_ns > 0 || segment.is_candidate && inferred;
            // The second of two releases at the same time.
            let is_second = before == (to, true);
            segment.is_released = match cut {
                Cut::Release(place) => {
                    // A pipe is read to its end, so its end and the data in it bind a reader that did not
                    // wait for them, too.
                    let cause = self.releases[place].cause;
                    let binds = matches!(cause, Cause::Closed(_) | Cause::Fed(..));
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

    /// Divides time without samples into work and waits, by the exact time that the process was busy: the
    /// work of all segments must sum up to that. If the busy time is not known either, such time counts as
    /// a wait.
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
        // A process that starts others and has worked less than that waited for an unknown event, for
        // example for a place to start a job. In other processes such a wait is their own, as a sleep is.
        let has_children = self.cuts.iter().any(|cut| matches!(cut.1, Cut::Fork(_)));
        if let Some(busy) = self.busy_ns().filter(|&b| has_children && b < elsewhere) {
            let share = busy as f64 / elsewhere as f64;
            for segment in segments.iter_mut().filter(|s| !s.is_candidate) {
                segment.own_ns = (segment.own_ns as f64 * share).round() as i64;
            }
        }
        for segment in segments.iter_mut().filter(|s| s.is_candidate) {
            let whole = segment.seen_own_ns + segment.uncovered_ns;
            let own = segment.seen_own_ns as f64 * keep + segment.uncovered_ns as f64 * fill;
            // Samples, and the time accounting of a virtual machine that does not run all the time, are no
            // more exact than that.
            let is_all = segment.waited_ns == 0 && own >= whole as f64 * (1.0 - INEXACT);
            segment.own_ns = if is_all { whole } else { own.round() as i64 };
        }
    }

    /// Time that the process was busy, or in a wait that no process ends, ns; `None`: not known, or of so
    /// many threads that the sum says little.
    fn busy_ns(&self) -> Option<i64> {
        let process = self.workflow.process(self.id);
        let cpu = process.cpu_ns?;
        let mut busy = cpu;
        for image in self.workflow.images(self.id) {
            for part in [image.run_queue_ns, image.storage_ns, image.tracer_ns] {
                busy = busy.saturating_add(part.unwrap_or(0));
            }
        }
        let spans = self.activity.of(self.id);
        if self.is_threaded && !spans.is_empty() {
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

    /// Time of an interval in which, by the samples, the process waited for the event that then released
    /// it, ns.
    fn waited(&self, from: i64, to: i64, release: Release) -> i64 {
        let fits = |wait: &SeenWait| match (wait.on, release.cause) {
            (_, Cause::Fed(..)) => false,
            (SeenOn::Child(_) | SeenOn::Channel(_), _) if self.is_threaded => true,
            (SeenOn::Child(child), Cause::Child(by)) => child.is_none_or(|child| child == by),
            (SeenOn::Channel(other), Cause::Child(by) | Cause::Channel(by) | Cause::Closed(by)) => {
                other == by
            }
            (SeenOn::Child(_) | SeenOn::Nobody, _) => false,
        };
        self.overlap(from, to, fits)
    }

    /// Time that was no work in an interval without a release at its end, ns: the process waited for a
    /// place to run or was stopped, or one of its threads acted while the others waited.
    fn idle(&self, from: i64, to: i64) -> i64 {
        match self.is_threaded {
            true => self.any_wait(from, to).min(to - from),
            false => self.for_nobody(from, to),
        }
    }

    /// Time of an interval in which the process waited for a place to run or was stopped, ns: no work of
    /// its own.
    fn for_nobody(&self, from: i64, to: i64) -> i64 {
        let waited = self.overlap(from, to, |wait| wait.on == SeenOn::Nobody);
        waited.min(to - from)
    }

    /// Time of an interval in which the process waited for channels until a time limit, ns.
    fn in_vain(&self, from: i64, to: i64) -> i64 {
        self.covered_by(from, to, |span| span.doing == Doing::InVain)
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
                // The sample after the end of the wait came late: the wait lasted until the release.
                let is_near = to > wait.to_ns && to - wait.to_ns <= wait.error_ns * 2;
                let until = if is_near { to } else { wait.to_ns };
                (until.min(to) - wait.from_ns.max(from)).max(0)
            })
            .sum()
    }

    fn covered(&self, from: i64, to: i64) -> i64 {
        self.covered_by(from, to, |_| true)
    }

    fn covered_by(&self, from: i64, to: i64, of: impl Fn(&Span) -> bool) -> i64 {
        let spans = self.activity.of(self.id);
        let first = spans.partition_point(|span| span.to_ns <= from);
        spans[first..]
            .iter()
            .take_while(|span| span.from_ns < to)
            .filter(|span| of(span))
            .map(|span| span.to_ns.min(to) - span.from_ns.max(from))
            .sum()
    }
}
