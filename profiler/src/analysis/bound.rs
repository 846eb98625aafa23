//! Nothing promises to save more than the critical path allows: what is mended beside the path, or where another way is nearly as
//! long, saves little, however long it took.

use std::collections::HashMap;
use std::ops::Range;

use crate::analysis::critical_path::CriticalPath;
use crate::analysis::serial::Serial;
use crate::model::{ProcessId, Workflow};
use crate::timeline::{Part, State, Timeline};

/// Replays a run with less work in some of its processes.
pub(crate) struct Bound<'a> {
    pub(crate) workflow: &'a Workflow,
    pub(crate) timeline: &'a Timeline,
    pub(crate) path: &'a CriticalPath,
}

impl Bound<'_> {
    /// What the run saves if of the work of some programs, by their places in [`Programs::stints`], such a share goes,
    /// ns. Without a path there is no bound.
    pub(crate) fn without_programs(&self, share: &HashMap<usize, f64>) -> i64 {
        let length = self.path.length_ns();
        if length <= 0 {
            return i64::MAX;
        }
        let factor = |program| 1.0 - share.get(&program).copied().unwrap_or(0.0).clamp(0.0, 1.0);
        (length - self.path.what_if_programs(factor)).max(0)
    }

    /// The same by processes.
    fn without(&self, share: impl Iterator<Item = (ProcessId, f64)>) -> i64 {
        let programs = &self.timeline.programs;
        let of_programs = share.flat_map(|(id, share)| {
            let places = programs.of_process(id);
            places.map(move |program| (program, share))
        });
        self.without_programs(&of_programs.collect())
    }

    /// The same if programs are never in some states. Waits for channels and children are no work, nor is to be stopped.
    pub(crate) fn without_states(&self, members: &[Part], of: impl Fn(State) -> bool) -> i64 {
        let share = members.iter().map(|part| {
            let totals = self.timeline.within(part.process, part.from, part.to);
            let sum = |counts: &dyn Fn(State) -> bool| -> f64 {
                let states = State::ALL.into_iter().filter(|&state| counts(state));
                states.map(|state| totals[state as usize]).sum()
            };
            let no_work = [State::In, State::Out, State::Child, State::Stopped];
            let work = sum(&|state| !no_work.contains(&state));
            let share = if work > 0.0 { sum(&of) / work } else { 0.0 };
            (part.program, share)
        });
        self.without_programs(&share.collect())
    }

    /// The same if the steps of a stretch run side by side: each as much shorter as the stretch.
    pub(crate) fn side_by_side(&self, one: &Serial) -> i64 {
        let share = 1.0 - one.could_ns as f64 / one.took_ns.max(1) as f64;
        self.of_steps_below(one.runner, one.from..one.to, share)
    }

    /// The same if what a runner started within a time takes a share less.
    pub(crate) fn of_steps_below(&self, runner: ProcessId, within: Range<i64>, share: f64) -> i64 {
        let is_step = |id: &ProcessId| {
            let start = self.workflow.process(*id).start_ns;
            let parent = |id: &ProcessId| self.workflow.process(*id).parent;
            within.contains(&start)
                && std::iter::successors(parent(id), parent).any(|above| above == runner)
        };
        let steps = self.workflow.process_ids().filter(is_step);
        self.without(steps.map(|id| (id, share)))
    }
}
