//! Nothing promises to save more than the critical path allows: what is mended beside the path, or where another way is nearly as
//! long, saves little, however long it took.

use std::collections::HashMap;

use crate::analysis::critical_path::CriticalPath;
use crate::analysis::serial::Serial;
use crate::model::{ProcessId, Workflow};
use crate::timeline::{State, Timeline};

/// Replays a run with less work in some of its processes.
pub(crate) struct Bound<'a> {
    pub(crate) workflow: &'a Workflow,
    pub(crate) timeline: &'a Timeline,
    pub(crate) path: &'a CriticalPath,
}

impl Bound<'_> {
    /// What the run saves if of the work of some processes such a share goes, ns. Without a path there is no bound.
    pub(crate) fn without(&self, share: &HashMap<ProcessId, f64>) -> i64 {
        let length = self.path.length_ns();
        if length <= 0 {
            return i64::MAX;
        }
        let factor = |id| 1.0 - share.get(&id).copied().unwrap_or(0.0).clamp(0.0, 1.0);
        (length - self.path.what_if(factor)).max(0)
    }

    /// The same if processes are never in some states. Waits for channels and children are no work.
    pub(crate) fn without_states(&self, members: &[ProcessId], of: impl Fn(State) -> bool) -> i64 {
        let share = members.iter().map(|&id| {
            let totals = &self.timeline.instance(id).totals;
            let sum = |counts: &dyn Fn(State) -> bool| -> f64 {
                let states = State::ALL.into_iter().filter(|&state| counts(state));
                states.map(|state| totals[state as usize]).sum()
            };
            let work = sum(&|state| !matches!(state, State::In | State::Out | State::Child));
            (id, if work > 0.0 { sum(&of) / work } else { 0.0 })
        });
        self.without(&share.collect())
    }

    /// The same if the steps of a stretch run side by side: each as much shorter as the stretch.
    pub(crate) fn side_by_side(&self, one: &Serial) -> i64 {
        let share = 1.0 - one.could_ns as f64 / one.took_ns.max(1) as f64;
        let is_step = |id: &ProcessId| {
            let start = self.workflow.process(*id).start_ns;
            let parent = |id: &ProcessId| self.workflow.process(*id).parent;
            (one.from..one.to).contains(&start)
                && std::iter::successors(parent(id), parent).any(|above| above == one.runner)
        };
        let steps = self.workflow.process_ids().filter(is_step);
        self.without(&steps.map(|id| (id, share)).collect())
    }
}
