//! Advice on the number of instances of each step: service demands, balanced degrees, predicted makespans.
//!
//! Battré et al., sections VI and VIII. A task's work does not depend on how many instances share it
//! (Assumption 7). With `n` instances of each task a phase takes `max(max P_v / n_v, ΣW_v / cores)`, where
//! `P_v` is the processing time of a task over all its instances and `W_v` the part of it on CPUs. A step
//! may consist of jobs, each a process with work of its own. Such a step has at most as many instances at
//! once as jobs. It takes as long as a schedule of the jobs with `n` at a time, and at least as long as the
//! longest job.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::analysis::bottlenecks::Bottlenecks;
use crate::analysis::bottlenecks::cause::states;
use crate::analysis::bottlenecks::tasks::Task;
use crate::analysis::serial::{Job, Work};
use crate::intervals::at_once;
use crate::model::{ProcessId, Workflow};
use crate::timeline::{Limit, State, Timeline, sum_of};

/// A cause of less than this share of the run is not worth advice.
const LEAST: f64 = 0.1;
/// Reasons for which more instances may gain nothing.
const IN_TURN: &str = "who asks it may wait for each answer before asking again";
const IN_A_CIRCLE: &str = "it waits for what it sends others to come back";

/// The demand of a task in the examined phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Demand {
    /// Place in the tasks.
    pub task: usize,
    /// Name of the task.
    pub name: String,
    /// Most instances that lived at the same time.
    pub degree: usize,
    /// Instances in all.
    pub instances: usize,
    /// Time in processing, all instances, ns; without waits for a CPU or a lock.
    pub processing_ns: f64,
    /// Time on CPUs, ns.
    pub cpu_ns: f64,
    /// Bytes that its instances read from files, pipes and sockets; `None`: not known.
    pub read_bytes: Option<i64>,
    /// Number of jobs, each done by one instance alone; `None`: a stage of a pipeline, whose work several
    /// instances can share.
    pub jobs: Option<usize>,
    /// Time of the step with one instance, two and so on, ns. More instances than the last entry gain
    /// nothing. Empty: the work is shared evenly.
    #[serde(skip)]
    pub times_ns: Vec<f64>,
    /// Degree that is advised.
    pub advised: usize,
}

impl Demand {
    /// Time of the step with this number of instances, ns.
    fn time_ns(&self, degree: usize) -> f64 {
        match self.times_ns.len() {
            0 => self.processing_ns / degree.max(1) as f64,
            known => self.times_ns[degree.clamp(1, known) - 1],
        }
    }

    /// The least number of instances, up to `most`, with which the step takes no longer than `ns`.
    fn least(&self, ns: f64, most: usize) -> usize {
        let most = self.jobs.map_or(most, |jobs| jobs.min(most)).max(1);
        // If no number of instances reaches `ns`, the least that comes nearest to it.
        let ns = ns.max(self.time_ns(most));
        (1..most)
            .find(|&degree| self.time_ns(degree) <= ns)
            .unwrap_or(most)
    }
}

/// Advice for the phase that takes longest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Task that limits the phase now.
    pub binding: usize,
    /// Begin and end of the phase, ns.
    pub span: (i64, i64),
    /// The tasks in it, the greatest demand first.
    pub demands: Vec<Demand>,
    /// Number of CPUs that the advice is for.
    pub cores: usize,
    /// The reason for which `cores` is less than the number asked for: the part of the machine that the run
    /// may use, in words.
    pub limit: Option<String>,
    /// Time of the phase, ns.
    pub now_ns: f64,
    /// Predicted time of the phase with one more instance of the binding task, ns; `None`: not known.
    pub one_more_ns: Option<f64>,
    /// Predicted time of the phase with the advised degrees, ns; `None`: not known.
    pub balanced_ns: Option<f64>,
    /// The reason for which the predictions are not known.
    pub unknown: Option<&'static str>,
    /// Degree of the binding task beyond which another task or the CPUs limit the phase.
    pub enough: usize,
    /// The limit at that degree: place in `demands`; `None`: the CPUs.
    pub then: Option<usize>,
    /// True if the binding task runs out of jobs to do at once, or of clients to answer at once, before anything
    /// else limits the phase.
    pub is_out_of_jobs: bool,
}

/// Makes advice for the run's first cause. `None`: the run has no cause, the cause is not a step, or it
/// limits the run for too short a time.
pub fn advice(
    workflow: &Workflow,
    result: &Bottlenecks,
    timeline: &Timeline,
    cores: Option<usize>,
) -> Option<Advice> {
    let cause = result.causes.first().filter(|cause| cause.share >= LEAST)?;
    let binding_task = cause.task?;
    let cores = cores
        .or_else(|| usize::try_from(timeline.cpus()?).ok())?
        .max(1);
    // More cores do not help a process that may not use them.
    let limit = cause.limit.as_ref().or(timeline.limit.as_ref());
    let limit = limit.filter(|limit| limit.cores < cores as f64);
    let cores = limit.map_or(cores, |limit| (limit.cores as usize).max(1));
    let span = (cause.intervals.first()?.0, cause.intervals.last()?.1);
    let now_ns = (span.1 - span.0) as f64;
    let mut demands: Vec<Demand> = Vec::new();
    let mut unknown = None;
    let mut has_clients = false;
    for (task, one) in result.tasks.tasks.iter().enumerate() {
        let (sums, _) = states(result, timeline, &[task], &[span]);
        let queue = sums[State::Queue as usize];
        let processing_ns = sum_of(&sums, State::is_own) - queue;
        let lives: Vec<(i64, i64)> = one
            .members
            .iter()
            .map(|part| (part.from, part.to))
            .filter(|life| life.0 < span.1 && life.1 > span.0)
            .collect();
        // A step that does not live for most of the phase is no stage of it.
        let alive: i64 = lives
            .iter()
            .map(|l| l.1.min(span.1) - l.0.max(span.0))
            .sum();
        if lives.is_empty() || (alive as f64) < 0.2 * now_ns && task != binding_task {
            continue;
        }
        // Bytes are counted for whole processes.
        let is_alone = |id| timeline.programs.of_process(id).len() == 1;
        let read_bytes = one.members.iter().try_fold(0_i64, |sum, part| {
            let process = Some(part.process).filter(|&id| is_alone(id))?;
            Some(sum + workflow.process(process).read_bytes?)
        });
        let degree = at_once(&lives);
        let jobs = jobs_of(timeline, one, span);
        let work = Work::of(workflow, timeline, &jobs, span.1 - span.0);
        if task == binding_task {
            let vertex = result.graph.vertex_of[task];
            has_clients = matches!(work, Work::Stream(Some(_)));
            unknown = match work {
                Work::InTurn => Some(IN_TURN),
                Work::Stream(_) if result.graph.members[vertex].len() > 1 => Some(IN_A_CIRCLE),
                _ => None,
            };
        }
        // One more instance than now is asked for as well.
        let degrees = |most: usize| 1..=most.min(cores.max(degree) + 1);
        let times_ns = match &work {
            Work::Jobs(jobs) => degrees(jobs.count()).map(|n| jobs.makespan(n)).collect(),
            Work::Stream(most) => {
                let degrees = degrees(most.unwrap_or(usize::MAX));
                degrees.map(|n| processing_ns / n as f64).collect()
            }
            Work::InTurn => Vec::new(),
        };
        let jobs = work.jobs();
        demands.push(Demand {
            task,
            name: one.name(),
            degree,
            instances: lives.len(),
            processing_ns,
            cpu_ns: sums[State::Cpu as usize],
            read_bytes,
            jobs: jobs.map(|jobs| jobs.count()),
            times_ns,
            advised: 0,
        });
    }
    demands.sort_by(|a, b| b.processing_ns.total_cmp(&a.processing_ns));
    let binding = demands
        .iter()
        .position(|demand| demand.task == binding_task)?;
    let mut advice = balance(demands, binding, cores, span);
    advice.limit = limit.map(Limit::text);
    if unknown.is_some() {
        advice.unknown = unknown;
        (advice.one_more_ns, advice.balanced_ns) = (None, None);
    }
    for demand in &mut advice.demands {
        demand.advised = match unknown {
            Some(_) => demand.degree,
            // Fewer clients would ask less at a time.
            None if has_clients => demand.advised.max(demand.degree),
            None => demand.advised,
        };
    }
    Some(advice)
}

/// The work that each process did for a task within `span`.
pub(crate) fn jobs_of(timeline: &Timeline, task: &Task, span: (i64, i64)) -> Vec<Job> {
    let mut of: BTreeMap<ProcessId, Job> = BTreeMap::new();
    for part in &task.members {
        let (from, to) = (part.from.max(span.0), part.to.min(span.1));
        if from >= to {
            continue;
        }
        let sums = timeline.within(part.process, from, to);
        let job = of.entry(part.process).or_insert(Job {
            process: part.process,
            processing_ns: 0.0,
            cpu_ns: 0.0,
            queued_ns: 0.0,
        });
        let queued_ns = sums[State::Queue as usize];
        job.processing_ns += sum_of(&sums, State::is_own) - queued_ns;
        job.queued_ns += queued_ns;
        job.cpu_ns += sums[State::Cpu as usize];
    }
    of.into_values().collect()
}

/// Length of the phase with these degrees, ns.
fn makespan(demands: &[Demand], degree: impl Fn(usize) -> usize, cores: usize) -> f64 {
    let work: f64 = demands.iter().map(|demand| demand.cpu_ns).sum();
    let stages = demands.iter().enumerate();
    let longest = stages
        .map(|(at, demand)| demand.time_ns(degree(at)))
        .fold(0.0, f64::max);
    longest.max(work / cores as f64)
}

/// Chooses the smallest degrees that give the shortest phase the CPUs allow. No degree is above the number
/// of CPUs: more instances would only take turns.
pub fn balance(mut demands: Vec<Demand>, binding: usize, cores: usize, span: (i64, i64)) -> Advice {
    // A stage gains nothing from more parts than CPUs. So the phase takes at least as long as the longest
    // stage in that many parts, and as all work together.
    let best = makespan(&demands, |_| cores, cores);
    for demand in &mut demands {
        // A gain of less than a tenth is no reason for one more instance.
        demand.advised = demand.least((best * 1.1).max(1.0), cores);
    }
    let measured = (span.1 - span.0) as f64;
    let modelled = makespan(&demands, |at| demands[at].degree, cores);
    // The time that the model leaves out (passing data on, begin and end of the pipeline) is taken as
    // proportional.
    let scale = if modelled > 0.0 {
        measured / modelled
    } else {
        1.0
    };
    let one_more = makespan(
        &demands,
        |at| demands[at].degree + usize::from(at == binding),
        cores,
    );
    let balanced = makespan(&demands, |at| demands[at].advised, cores);
    let without = |limit: Option<usize>| -> f64 {
        match limit {
            Some(at) => demands[at].time_ns(demands[at].degree),
            None => demands.iter().map(|d| d.cpu_ns).sum::<f64>() / cores as f64,
        }
    };
    let others = (0..demands.len()).filter(|&at| at != binding).map(Some);
    let then = others
        .chain([None])
        .max_by(|a, b| without(*a).total_cmp(&without(*b)))
        .flatten();
    let most = cores.max(demands[binding].degree);
    let enough = demands[binding].least(without(then).max(1.0), most);
    let is_out_of_jobs = demands[binding].time_ns(enough) > without(then).max(1.0)
        && !demands[binding].times_ns.is_empty()
        && enough < most;
    Advice {
        binding,
        span,
        cores,
        limit: None,
        now_ns: measured,
        one_more_ns: Some(one_more * scale),
        balanced_ns: Some(balanced * scale),
        unknown: None,
        enough,
        then,
        is_out_of_jobs,
        demands,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(name: &str, degree: usize, seconds: f64) -> Demand {
        Demand {
            task: 0,
            name: name.into(),
            degree,
            instances: degree,
            processing_ns: seconds * 1e9,
            cpu_ns: seconds * 1e9,
            read_bytes: None,
            jobs: None,
            times_ns: Vec::new(),
            advised: 0,
        }
    }

    /// A step of three jobs, one of which takes as long as the other two together.
    #[test]
    fn no_more_instances_than_jobs() {
        let three = Demand {
            jobs: Some(3),
            instances: 3,
            times_ns: vec![40e9, 20e9, 20e9],
            ..demand("gzip", 1, 40.0)
        };
        let advice = balance(vec![three], 0, 16, (0, 40_000_000_000));
        assert_eq!((degrees(&advice), advice.enough), (vec![2], 2));
        assert!(advice.is_out_of_jobs);
        assert!((advice.balanced_ns.unwrap() - 20e9).abs() < 1e6);
        let one = Demand {
            jobs: Some(1),
            times_ns: vec![40e9],
            ..demand("solver", 1, 40.0)
        };
        let advice = balance(vec![one], 0, 16, (0, 40_000_000_000));
        assert_eq!(
            (degrees(&advice), advice.one_more_ns),
            (vec![1], Some(40e9))
        );
    }

    fn degrees(advice: &Advice) -> Vec<usize> {
        advice.demands.iter().map(|demand| demand.advised).collect()
    }

    /// The paper's job: OCR takes four times as long as PDF, readers and writers next to nothing.
    fn paper(cores: usize) -> Advice {
        let demands = vec![
            demand("ocr", 1, 40.0),
            demand("pdf", 1, 10.0),
            demand("reader", 1, 1.0),
            demand("writer", 1, 0.5),
        ];
        balance(demands, 0, cores, (0, 40_000_000_000))
    }

    #[test]
    fn demands_of_four_to_one_are_balanced_four_to_one() {
        assert_eq!(degrees(&paper(5)), [4, 1, 1, 1]);
        assert_eq!(degrees(&paper(20)), [15, 4, 1, 1]);
    }

    #[test]
    fn no_more_instances_than_cpus() {
        let advice = paper(2);
        assert_eq!(degrees(&advice), [2, 1, 1, 1]);
        assert!(
            (advice.balanced_ns.unwrap() - 25.75e9).abs() < 1e6,
            "{}",
            advice.balanced_ns.unwrap()
        );
        assert!((advice.one_more_ns.unwrap() - 25.75e9).abs() < 1e6);
        assert!(paper(1).demands.iter().all(|demand| demand.advised == 1));
    }

    #[test]
    fn the_degree_at_which_the_next_one_limits() {
        let advice = paper(64);
        assert_eq!(advice.enough, 4);
        assert_eq!(
            advice.then.map(|at| advice.demands[at].name.as_str()),
            Some("pdf")
        );
        // Two CPUs limit the phase from a degree of two on.
        assert_eq!((paper(2).enough, paper(2).then), (2, None));
    }

    #[test]
    fn what_is_balanced_stays_as_it_is() {
        let demands = vec![demand("a", 1, 10.0), demand("b", 1, 9.5)];
        let advice = balance(demands, 0, 2, (0, 10_000_000_000));
        assert_eq!(degrees(&advice), [1, 1]);
        assert!((advice.balanced_ns.unwrap() - 10e9).abs() < 1e6);
    }

    #[test]
    fn lives_that_touch_are_not_at_once() {
        assert_eq!(at_once(&[(0, 10), (10, 20), (5, 15)]), 2);
        assert_eq!(at_once(&[(0, 10)]), 1);
    }
}
