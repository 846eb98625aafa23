//! The critical path: the chain of work and waiting that decided how long the run took.
//!
//! Every process is a line through time, cut into *segments* at each fork, at the end of each child that it
//! waited for, and at the arrival of data that it waited for (`waits`). A segment takes the time that the
//! process worked in it; a wait ends when what it waits for has come (`network`). The times of this network
//! are the measured times, and its longest path is the critical path. The slack of an event is the time by
//! which it could be later without delaying the end of the run. With the segments of one rule scaled, the
//! network predicts the run with a faster or slower rule (`solve`).
//!
//! This joins ParaTrac's makespan by the longest path (sections 5.2 and 5.3) with the waits of the samples.
//! A file by itself makes no process wait: the process that starts the reader waits.

mod backlog;
mod counterpart;
mod cut;
mod killed;
mod line;
mod network;
mod order;
mod path;
pub mod route;
mod solve;
mod step;
mod waits;

use std::collections::HashMap;
use std::sync::Arc;

use network::Network;
pub use path::CriticalPath;
pub use solve::MOST_EQUAL;
pub use step::{Contribution, Evidence, Step, StepKind};

use crate::graph::Dag;
use crate::model::{Activity, ProcessId, Workflow};

impl CriticalPath {
    /// Computes the path.
    pub fn of(workflow: &Workflow, activity: &Activity) -> CriticalPath {
        let network = Network::of(workflow, activity);
        solve::solve(workflow, network)
    }

    /// Length of the path, ns.
    pub fn length_ns(&self) -> i64 {
        self.end_ns - self.start_ns
    }

    /// Predicted length of the run with the work of every process scaled by a factor, ns. The dependencies
    /// between processes stay as they were; see `docs/critical-path.md` for what that leaves out.
    pub fn what_if(&self, factor: impl Fn(ProcessId) -> f64) -> i64 {
        self.what_if_programs(|program| factor(self.programs.stints[program].process))
    }

    /// Predicted length of the run with the work of every program, a place in
    /// [`Programs::stints`](crate::model::Programs::stints), scaled by a factor, ns.
    pub fn what_if_programs(&self, factor: impl Fn(usize) -> f64) -> i64 {
        let Some(last) = self.last else { return 0 };
        let end = solve::end_of(&self.network, &self.programs, last, factor, |_, _, _| 0);
        end.saturating_sub(self.start_ns)
    }

    /// Predicted length of the run without some waits for locks, ns. `unlocked` gives the time that a
    /// process waited for these locks between two instants, ns. All other work stays as it was, with a CPU
    /// for each process.
    pub fn without_locks(&self, unlocked: impl Fn(ProcessId, i64, i64) -> i64) -> i64 {
        let Some(last) = self.last else { return 0 };
        let end = solve::end_of(&self.network, &self.programs, last, |_| 1.0, unlocked);
        end.saturating_sub(self.start_ns)
    }

    /// The rule of a program: a place in [`Programs::stints`](crate::model::Programs::stints).
    pub fn rule<'a>(&self, workflow: &'a Workflow, program: usize) -> &'a Arc<str> {
        &workflow.program(&self.programs.stints[program]).rule
    }

    /// The rules on the path, the largest contribution first.
    pub fn by_rule(&self, workflow: &Workflow) -> Vec<Contribution> {
        let mut found: HashMap<&Arc<str>, (Vec<ProcessId>, i64)> = HashMap::new();
        for step in &self.steps {
            let entry = found
                .entry(&workflow.program(&step.program).rule)
                .or_default();
            entry.0.push(step.process);
            entry.1 += step.to_ns - step.from_ns;
        }
        let mut rules: Vec<Contribution> = found
            .into_iter()
            .map(|(rule, (mut processes, ns))| {
                processes.sort_unstable();
                processes.dedup();
                Contribution {
                    rule: Arc::clone(rule),
                    processes: processes.len() as i64,
                    ns,
                    halved_ns: 0,
                }
            })
            .collect();
        rules.sort_by(|a, b| (b.ns, &a.rule).cmp(&(a.ns, &b.rule)));
        // Each rule costs a pass over the network, and no reader needs the hundredth rule.
        for (place, rule) in rules.iter_mut().enumerate() {
            rule.halved_ns = if place < 20 {
                self.what_if_programs(|program| {
                    if *self.rule(workflow, program) == rule.rule {
                        0.5
                    } else {
                        1.0
                    }
                })
            } else {
                self.length_ns()
            };
        }
        rules
    }

    /// The processes on the path, in the order of their first steps.
    pub fn processes(&self) -> Vec<ProcessId> {
        let mut seen = std::collections::HashSet::new();
        let steps = self.steps.iter().map(|step| step.process);
        steps.filter(|&id| seen.insert(id)).collect()
    }

    /// The longest path through the data dependencies alone, ns: a lower bound of the run with unlimited
    /// CPUs. This is ParaTrac's estimate of the makespan (5.3) with the work of processes as weights. A
    /// process that outlives the run, as a daemon does, has weight 0. If the processes of the graph are cut
    /// into versions ([`crate::graph::lineage()`]), each version has the work done in its time.
    pub fn by_data_alone_ns(&self, workflow: &Workflow, dag: &Dag) -> i64 {
        let network = &self.network;
        solve::by_data_alone(dag, |id, version, versions| {
            let last = network.ends[id.0 as usize].1;
            if network.instants[last as usize].at_ns > self.end_ns {
                return 0;
            }
            if versions == 1 {
                return self.own_ns[id.0 as usize];
            }
            let (from, to) = dag.version_ns(workflow, id, version);
            let from = if version == 1 { i64::MIN } else { from };
            let to = to.filter(|_| version < versions).unwrap_or(i64::MAX);
            network.own_within(id, from, to)
        })
    }
}
