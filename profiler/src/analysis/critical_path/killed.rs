//! Processes that somebody of the run ended by a signal: whoever did so decided when, not their work.

use super::waits::{SeenOn, SeenWait, Waits, slack_ns};
use crate::model::ProcessId;

/// Looks are not farther apart, ns.
const LOOK: i64 = 40_000_000;

/// A process may be over for its parent so much before it leaves its processor for the last time, ns.
const HEARD: i64 = 1_000_000;

impl Waits<'_> {
    /// Who ended a process by a signal: the nearest of those that it descends from that was at work then. `None`: nobody,
    /// or none of them, as when a terminal ends all that run in it.
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

    /// Whether a process did not wait for anybody at a moment: no look saw it do so, or it had just been let go by a child that
    /// ended by itself.
    fn was_at_work(&self, id: ProcessId, at_ns: i64, seen: &[Vec<SeenWait>]) -> bool {
        let (start, end) = self.life(id);
        if start >= at_ns || end < at_ns - LOOK {
            return false;
        }
        let waits = &seen[id.0 as usize];
        let place = waits.partition_point(|wait| wait.to_ns < at_ns);
        // Who waited for the one that was ended was let go by that, and may have heard of it before its last moment.
        let heard = |wait: &&SeenWait| {
            matches!(wait.on, SeenOn::Child(_))
                && wait.to_ns > at_ns - slack_ns(wait.error_ns).max(HEARD)
        };
        let before = place.checked_sub(1).and_then(|last| waits.get(last));
        let wait = waits.get(place).filter(|wait| wait.from_ns < at_ns);
        let wait = wait.or_else(|| before.filter(heard));
        let slack = wait.map_or(LOOK, |wait| slack_ns(wait.error_ns).max(HEARD));
        let waited = wait.is_some_and(|wait| wait.from_ns < at_ns - slack);
        let has_looks = !self.activity.of(id).is_empty();
        has_looks && !waited
            || self.children_of(id).iter().any(|&child| {
                let end = self.life(child).1;
                end <= at_ns && end > at_ns - slack && !self.workflow.process(child).was_killed()
            })
    }
}
