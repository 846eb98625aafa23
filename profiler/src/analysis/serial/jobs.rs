//! The runs of one step, and the number of them that could have been at work at the same time: the basis of
//! advice on more instances of a step.

use std::collections::{HashMap, HashSet};

use super::order::{Dependencies, Limits, Schedule};
use super::runs::has_a_queue;
use super::steps::{Step, fill, logs, streams_from};
use crate::intervals::at_once;
use crate::model::{FileIndex, ProcessId, Workflow};
use crate::timeline::Timeline;

/// The part of a step's work that one process did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// The process.
    pub(crate) process: ProcessId,
    /// Time that it was processing, ns; without waits.
    pub(crate) processing_ns: f64,
    /// The part of that on CPUs, ns.
    pub(crate) cpu_ns: f64,
    /// Time that it waited for a CPU, ns.
    pub(crate) queued_ns: f64,
}

/// The runs of one step, each of which is a piece of work that cannot be shared.
pub(crate) struct Jobs {
    steps: Vec<Step>,
    dependencies: Dependencies,
    /// For each run, its time plus that of the longest chain after it, ns.
    ways: Vec<i64>,
}

/// The way in which the work of a step is divided among its instances.
pub(crate) enum Work {
    /// Each instance has a piece of its own.
    Jobs(Jobs),
    /// The step is a stage of a pipeline. Its instances share the data that others send, and more of them could
    /// share it, too: at most this number, where several clients each wait for an answer before they ask again.
    Stream(Option<usize>),
    /// Others ask the instances, and go on by their answers. Not all instances had work at a time; or there is one
    /// instance with one client, of which it is not known if it would ever ask a second one at the same time.
    InTurn,
}

impl Work {
    /// The division of the work of a step among its runs, within a time of `ns`.
    pub(crate) fn of(workflow: &Workflow, timeline: &Timeline, jobs: &[Job], ns: i64) -> Work {
        /// Share of the instances at work above which there is work for more.
        const ALL: f64 = 0.75;
        let places: HashMap<ProcessId, usize> = jobs
            .iter()
            .enumerate()
            .map(|(at, job)| (job.process, at))
            .collect();
        let feeders = feeders(workflow, places.keys());
        let Some(clients) = clients(workflow, timeline, &places, &feeders) else {
            return Work::Jobs(Jobs::of(workflow, timeline, jobs, &places, &feeders));
        };
        let at_work = jobs.iter().map(|job| job.processing_ns + job.queued_ns);
        let have_work = at_work.sum::<f64>() > ALL * (jobs.len() as i64 * ns.max(1)) as f64;
        match clients {
            0 => Work::Stream(None),
            1 if have_work && jobs.len() > 1 => Work::Stream(None),
            clients if have_work && clients > 1 => Work::Stream(Some(clients.max(jobs.len()))),
            _ => Work::InTurn,
        }
    }

    /// The pieces, if each instance has its own.
    pub(crate) fn jobs(self) -> Option<Jobs> {
        match self {
            Work::Jobs(jobs) => Some(jobs),
            Work::Stream(_) | Work::InTurn => None,
        }
    }
}

impl Jobs {
    fn of(
        workflow: &Workflow,
        timeline: &Timeline,
        jobs: &[Job],
        places: &HashMap<ProcessId, usize>,
        feeders: &HashSet<ProcessId>,
    ) -> Jobs {
        let children = workflow.children();
        let logs = logs(workflow);
        let step = |job: &Job| {
            let mut step = Step {
                from: i64::MAX,
                to: i64::MIN,
                ..Step::default()
            };
            let mut left = vec![job.process];
            while let Some(id) = left.pop() {
                step.members.push(id);
                let below = children[id.0 as usize].iter().copied();
                left.extend(below.filter(|id| !places.contains_key(id)));
            }
            fill(workflow, timeline, &logs, &mut step);
            (step, *job)
        };
        let mut steps: Vec<(Step, Job)> = jobs.iter().map(step).collect();
        mark_read_by_runners(workflow, timeline, places, feeders, &mut steps);
        steps.sort_by_key(|(step, _)| (step.from, step.to));
        let (steps, jobs): (Vec<Step>, Vec<Job>) = steps.into_iter().unzip();
        Jobs::from(steps, &jobs)
    }

    fn from(mut steps: Vec<Step>, jobs: &[Job]) -> Jobs {
        let dependencies = Dependencies::of_overlapping(&steps);
        for (step, job) in steps.iter_mut().zip(jobs) {
            *step = Step {
                to: job.processing_ns.max(1.0) as i64,
                cpu_ns: job.cpu_ns,
                ..Step::default()
            };
        }
        Jobs {
            ways: super::late::ways_to_the_end(&steps, &dependencies),
            steps,
            dependencies,
        }
    }

    /// Number of runs.
    pub(crate) fn count(&self) -> usize {
        self.steps.len()
    }

    /// True if some runs used the output of others.
    pub(crate) fn need_each_other(&self) -> bool {
        self.dependencies.pairs(|_| true) > 0
    }

    /// Time of all runs with `at_once` at a time, those with the longest way to the end first, ns.
    pub(crate) fn makespan(&self, at_once: usize) -> f64 {
        let limits = Limits {
            cores: f64::MAX,
            jobs: at_once.max(1),
        };
        Schedule::by(&self.steps, &self.dependencies, limits, |at| -self.ways[at]).end as f64
    }
}

/// Marks the runs whose output a shell or program got that started them, through a pipe or a file, itself or by a process
/// that it read from (`$(cat file)`): it may have used that for the runs after it. Managers only pass output on;
/// so do programs that give each run data of files.
fn mark_read_by_runners(
    workflow: &Workflow,
    timeline: &Timeline,
    places: &HashMap<ProcessId, usize>,
    feeders: &HashSet<ProcessId>,
    steps: &mut [(Step, Job)],
) {
    let decides = |id: &ProcessId| !has_a_queue(workflow, timeline, *id) && !feeders.contains(id);
    let mut runners: HashSet<ProcessId> = HashSet::new();
    for &job in places.keys() {
        let mut above = workflow.process(job).parent;
        while let Some(id) = above.filter(|id| decides(id) && runners.insert(*id)) {
            above = workflow.process(id).parent;
        }
    }
    let last_begin = steps.iter().map(|(step, _)| step.from).max();
    let readers = workflow
        .streams
        .iter()
        .filter(|stream| runners.contains(&stream.to) && !places.contains_key(&stream.from));
    let readers: HashSet<ProcessId> = readers.map(|stream| stream.from).collect();
    let reads = runners
        .union(&readers)
        .flat_map(|&id| workflow.accesses_of(id));
    let in_time = reads.filter(|access| {
        access.reads > 0 && last_begin.is_some_and(|begin| access.span_ns.0 < begin)
    });
    let read: HashSet<FileIndex> = in_time.map(|access| access.file).collect();
    for (step, _) in steps {
        let mut members = step.members.iter();
        step.is_read_by_shell = step.written.iter().any(|file| read.contains(file))
            || members.any(|&id| {
                let mut streams = streams_from(workflow, id).iter();
                streams.any(|stream| runners.contains(&stream.to))
            });
    }
}

/// Processes that started runs and gave them, through pipes, no more bytes than they read from files themselves:
/// what one run got need not be made of the output of another.
fn feeders<'a>(
    workflow: &Workflow,
    runs: impl Iterator<Item = &'a ProcessId>,
) -> HashSet<ProcessId> {
    /// Most bytes that the loader of a program reads from libraries.
    const LOADED: i64 = 8192;
    let read = |id: ProcessId| {
        let accesses = workflow.accesses_of(id).iter();
        accesses.map(|access| access.read_bytes).sum::<i64>()
    };
    let mut given: HashMap<ProcessId, i64> = HashMap::new();
    for &run in runs {
        let images = workflow.images(run).iter();
        let all: i64 = images.map(|image| image.reads.bytes).sum();
        if let Some(parent) = workflow.process(run).parent {
            *given.entry(parent).or_default() += (all - read(run) - LOADED).max(0);
        }
    }
    let given = given.into_iter();
    let fed = given.filter(|&(id, bytes)| bytes > 0 && bytes <= read(id));
    fed.map(|(id, _)| id).collect()
}

/// The number of processes at a time that get answers from `jobs`, of those that are no managers and feed
/// several of them, or the only one. `None`: there is no such process. Who started a process for each piece of
/// data of its files asks none of them again.
fn clients(
    workflow: &Workflow,
    timeline: &Timeline,
    jobs: &HashMap<ProcessId, usize>,
    feeders: &HashSet<ProcessId>,
) -> Option<usize> {
    let mut fed: HashMap<ProcessId, (HashSet<ProcessId>, bool)> = HashMap::new();
    for stream in &workflow.streams {
        let is_answered = workflow.is_answered(stream);
        let ends = [(stream.from, stream.to), (stream.to, stream.from)];
        for (from, to) in ends.into_iter().take(1 + usize::from(is_answered)) {
            let is_source = !jobs.contains_key(&from) && !timeline.instance(from).is_orchestrator;
            let starts = feeders.contains(&from) && workflow.process(to).parent == Some(from);
            if is_source && !starts && jobs.contains_key(&to) {
                let fed = fed.entry(from).or_default();
                fed.0.insert(to);
                fed.1 |= is_answered;
            }
        }
    }
    fed.retain(|_, (fed, _)| fed.len() > 1 || fed.len() == jobs.len());
    let clients = fed.iter().filter(|(_, (_, is_answered))| *is_answered);
    let lives: Vec<(i64, i64)> = clients
        .map(|(&id, _)| timeline.instance(id))
        .map(|instance| (instance.from, instance.to))
        .collect();
    match (fed.is_empty(), lives.is_empty()) {
        (true, _) => None,
        (_, true) => Some(0),
        _ => Some(at_once(&lives)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Access, Image, Process};

    fn jobs(lengths: &[i64], needs: &[(usize, usize)]) -> Jobs {
        let mut from = 0;
        let mut steps: Vec<Step> = Vec::new();
        for (at, &length) in lengths.iter().enumerate() {
            let mut step = Step {
                from,
                to: from + length,
                ..Step::default()
            };
            from += length;
            step.written.insert(FileIndex(at as u32));
            step.touched.insert(FileIndex(at as u32));
            for &(_, need) in needs.iter().filter(|(by, _)| *by == at) {
                step.touched.insert(FileIndex(need as u32));
            }
            steps.push(step);
        }
        let jobs: Vec<Job> = lengths
            .iter()
            .enumerate()
            .map(|(at, &length)| Job {
                process: ProcessId(at as u32),
                processing_ns: length as f64,
                cpu_ns: length as f64,
                queued_ns: 0.0,
            })
            .collect();
        Jobs::from(steps, &jobs)
    }

    #[test]
    fn the_longest_job_and_their_number_bound_the_time() {
        let three = jobs(&[10, 10, 20], &[]);
        let times: Vec<f64> = (1..=4).map(|n| three.makespan(n)).collect();
        assert_eq!(times, [40.0, 20.0, 20.0, 20.0]);
        assert_eq!(three.count(), 3);
    }

    /// `subprocess.run(['gzip'], input=data)` in a loop of a Python program.
    #[test]
    fn who_feeds_runs_from_files_need_not_wait_for_the_output_of_one() {
        let fed = |from_files: i64, inputs: &[i64]| {
            let mut workflow = Workflow::default();
            for (at, bytes) in [from_files].iter().chain(inputs).enumerate() {
                let mut image = Image::default();
                image.reads.bytes = *bytes;
                workflow.images.push(image);
                workflow.processes.push(Process {
                    images: at..at + 1,
                    parent: (at > 0).then_some(ProcessId(0)),
                    ..Process::default()
                });
            }
            workflow.accesses.push(Access {
                process: ProcessId(0),
                read_bytes: from_files,
                ..Access::default()
            });
            let runs: Vec<ProcessId> = (1..=inputs.len() as u32).map(ProcessId).collect();
            !feeders(&workflow, runs.iter()).is_empty()
        };
        assert!(fed(4_000_000, &[1_000_800; 4]));
        // The second gets the output of the first.
        assert!(!fed(1_000_000, &[1_000_000, 600_000]));
        assert!(!fed(1_000_000, &[0, 0]));
    }

    #[test]
    fn jobs_that_need_each_other_gain_nothing() {
        let chain = jobs(&[10, 10, 10], &[(1, 0), (2, 1)]);
        assert_eq!(chain.makespan(3), 30.0);
        let two_chains = jobs(&[10, 10, 10, 10], &[(2, 0), (3, 1)]);
        assert_eq!(two_chains.makespan(4), 20.0);
    }
}
