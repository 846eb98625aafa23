//! Bounds savings by the critical path. An improvement beside the path, or where another path is nearly as
//! long, saves little, however long the improved part took.

use std::collections::HashMap;
use std::ops::Range;

use crate::analysis::critical_path::CriticalPath;
use crate::model::{ProcessId, Workflow};
use crate::timeline::{Instance, LockWait, Part, State, Timeline};

/// Predicts a run with less work in some of its processes.
pub(crate) struct Bound<'a> {
    pub(crate) workflow: &'a Workflow,
    pub(crate) timeline: &'a Timeline,
    pub(crate) path: &'a CriticalPath,
    children: Vec<Vec<ProcessId>>,
}

impl<'a> Bound<'a> {
    pub(crate) fn new(
        workflow: &'a Workflow,
        timeline: &'a Timeline,
        path: &'a CriticalPath,
    ) -> Self {
        Bound {
            workflow,
            timeline,
            path,
            children: workflow.children(),
        }
    }

    /// The processes that a process started, in the order of their start.
    pub(crate) fn children(&self, id: ProcessId) -> &[ProcessId] {
        &self.children[id.0 as usize]
    }

    /// Shortest time in which this number of CPUs can do the computation of the run, ns; 0: not known.
    fn cpu_ns(&self, cores: Option<f64>) -> i64 {
        let used: f64 = self.timeline.instances.iter().map(Instance::cpu_ns).sum();
        let cores = cores.filter(|&cores| cores > 0.0);
        cores.map_or(0, |cores| (used / cores) as i64)
    }

    /// Predicted length of the run without these waits for a lock, ns. The waits are ordered by process and
    /// time.
    pub(crate) fn without_lock(&self, waits: &[&LockWait]) -> i64 {
        let waited = |process: ProcessId, from: i64, to: i64| {
            let first = waits.partition_point(|wait| (wait.process, wait.to) <= (process, from));
            let within = waits[first..]
                .iter()
                .take_while(|wait| wait.process == process && wait.from < to);
            within
                .map(|wait| wait.to.min(to) - wait.from.max(from))
                .sum()
        };
        let length = self.path.length_ns();
        let could = self.path.without_locks(waited);
        could.max(self.cpu_ns(self.timeline.cores())).min(length)
    }

    /// Time that the run saves if a share of the work of some programs is removed, ns. `share` is by places
    /// in [`Programs::stints`](crate::model::Programs::stints). Without a path there is no bound.
    pub(crate) fn without_programs(&self, share: &HashMap<usize, f64>) -> i64 {
        let length = self.path.length_ns();
        if length <= 0 {
            return i64::MAX;
        }
        let factor = |program| 1.0 - share.get(&program).copied().unwrap_or(0.0).clamp(0.0, 1.0);
        (length - self.path.what_if_programs(factor)).max(0)
    }

    /// Time that the run saves if a share of the work of some processes is removed, ns.
    pub(crate) fn without(&self, share: impl Iterator<Item = (ProcessId, f64)>) -> i64 {
        let programs = &self.timeline.programs;
        let of_programs = share.flat_map(|(id, share)| {
            let places = programs.of_process(id);
            places.map(move |program| (program, share))
        });
        self.without_programs(&of_programs.collect())
    }

    /// Time that the run saves if programs are never in some states, ns. Waits for channels and children
    /// are no work, nor is the time in which job control had stopped a process.
    pub(crate) fn without_states(&self, members: &[Part], of: impl Fn(State) -> bool) -> i64 {
        let does_compute = of(State::Cpu);
        let saved = self.without_share(members, of);
        // If computation stays, the CPUs still have to do it.
        match does_compute {
            true => saved,
            false => saved.min(self.beyond_cpus(self.timeline.cores())),
        }
    }

    /// Time that the run saves if programs never wait for a CPU that an affinity mask or a quota kept from
    /// them, ns.
    pub(crate) fn without_limit(&self, members: &[Part]) -> i64 {
        let cpus = self.timeline.cpus().map(|cpus| cpus as f64);
        let saved = self.without_share(members, |state| state == State::Queue);
        saved.min(self.beyond_cpus(cpus))
    }

    /// Time by which the run took longer than this number of CPUs need for its computation, ns.
    fn beyond_cpus(&self, cores: Option<f64>) -> i64 {
        (self.path.length_ns() - self.cpu_ns(cores)).max(0)
    }

    fn without_share(&self, members: &[Part], of: impl Fn(State) -> bool) -> i64 {
        let share = members.iter().map(|part| {
            let totals = self.timeline.within(part.process, part.from, part.to);
            let sum = |counts: &dyn Fn(State) -> bool| -> f64 {
                let states = State::ALL.into_iter().filter(|&state| counts(state));
                states.map(|state| totals[state as usize]).sum()
            };
            let no_work = [State::In, State::Out, State::Child, State::Stopped];
            let work = sum(&|state| !no_work.contains(&state));
            // Nor is a wait for a lock that another process freed.
            let work = match of(State::Lock) {
                true => work,
                false => work - self.for_lock_of_other(part),
            };
            let share = if work > 0.0 { sum(&of) / work } else { 0.0 };
            (part.program, share)
        });
        self.without_programs(&share.collect())
    }

    /// Time that a program waited for locks that another process freed, ns.
    fn for_lock_of_other(&self, part: &Part) -> f64 {
        let pieces = self
            .timeline
            .pieces_within(part.process, part.from, part.to);
        let waits = pieces.iter().filter(|piece| {
            piece.state == State::Lock && piece.waker.is_some_and(|by| by != part.process)
        });
        let waits = waits.map(|piece| {
            let share = self.timeline.shares(piece)[State::Lock as usize];
            share * piece.overlap(part.from, part.to) as f64
        });
        waits.sum()
    }

    /// Time that the run saves if the steps that a runner started within a time take a share less, ns.
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
