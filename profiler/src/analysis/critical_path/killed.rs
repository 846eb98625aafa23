//! Processes that another process of the run ended by a signal: the killer decided when, not their work.

use super::waits::{SeenOn, SeenWait, Waits, slack_ns};
use crate::model::ProcessId;

/// Largest distance of two samples, ns.
const SAMPLE_GAP: i64 = 40_000_000;

/// Longest time by which a parent may see the end of a process before the process leaves its CPU for the
/// last time, ns.
const HEARD: i64 = 1_000_000;

impl Waits<'_> {
    /// The process that ended this one by a signal: the nearest ancestor that was at work at that time.
    /// `None`: no ancestor was, or the process was not killed. A terminal, for example, ends all processes
    /// that run in it.
    pub(super) fn killer(&self, id: ProcessId, seen: &[Vec<SeenWait>]) -> Option<ProcessId> {
        let killed = self.workflow.process(id);
        let end_ns = killed.end_ns.filter(|_| killed.was_killed())?;
        let mut above = killed.parent;
        while let Some(other) = above {
            if self.was_at_work(other, end_ns, seen) {
                return Some(other);
            }
            above = self.workflow.process(other).parent;
        }
        None
    }

    /// True if a process did not wait for another one at `at_ns`: no sample shows such a wait, or a child
    /// that ended by itself had just released it.
    fn was_at_work(&self, id: ProcessId, at_ns: i64, seen: &[Vec<SeenWait>]) -> bool {
        let (start, end) = self.life(id);
        if start >= at_ns || end < at_ns - SAMPLE_GAP {
            return false;
        }
        let waits = &seen[id.0 as usize];
        let place = waits.partition_point(|wait| wait.to_ns < at_ns);
        // A process that waited for the killed one was released by that end. It may know of the end a
        // little earlier than the recorded end.
        let heard = |wait: &&SeenWait| {
            matches!(wait.on, SeenOn::Child(_))
                && wait.to_ns > at_ns - slack_ns(wait.error_ns).max(HEARD)
        };
        let before = place.checked_sub(1).and_then(|last| waits.get(last));
        let wait = waits.get(place).filter(|wait| wait.from_ns < at_ns);
        let wait = wait.or_else(|| before.filter(heard));
        let slack = wait.map_or(SAMPLE_GAP, |wait| slack_ns(wait.error_ns).max(HEARD));
        let waited = wait.is_some_and(|wait| wait.from_ns < at_ns - slack);
        let has_samples = !self.activity.of(id).is_empty();
        has_samples && !waited
            || self.children_of(id).iter().any(|&child| {
                let end = self.life(child).1;
                end <= at_ns && end > at_ns - slack && !self.workflow.process(child).was_killed()
            })
    }
}
