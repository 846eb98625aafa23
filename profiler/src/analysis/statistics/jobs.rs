//! The jobs of each rule: how many there were, how long they took, and what they used.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::distribution::Distribution;
use crate::managers::runner_of_process;
use crate::model::{Image, ProcessId, Workflow};

/// All jobs of a rule. A job is a process from its first exec on; shells, launchers and managers that only
/// started others are none. All processes of a job that a manager has named are one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Jobs {
    /// The rule.
    pub rule: Arc<str>,
    /// Number of jobs.
    pub count: i64,
    /// Life times of those whose end was seen, ns.
    pub life: Distribution,
    /// CPU time, ns; `None`: not known for any.
    pub cpu_ns: Option<i64>,
    /// Largest peak of resident memory of a job, bytes; `None`: not known for any.
    pub max_rss_bytes: Option<i64>,
    /// Bytes read from files, pipes and sockets.
    pub read_bytes: i64,
    /// Bytes written to them.
    pub write_bytes: i64,
}

/// The jobs by rule, those that took the longest in all first.
pub fn by_rule(workflow: &Workflow) -> Vec<Jobs> {
    let children = workflow.children();
    let mut members: BTreeMap<ProcessId, Vec<ProcessId>> = BTreeMap::new();
    for id in workflow.process_ids().filter(|&id| {
        children[id.0 as usize].is_empty() || runner_of_process(workflow, id).is_none()
    }) {
        if !executed(workflow, id).is_empty() {
            members.entry(first_of(workflow, id)).or_default().push(id);
        }
    }
    let mut jobs: HashMap<&Arc<str>, Jobs> = HashMap::new();
    for (first, members) in members {
        let rule = workflow.rule(first);
        let one = jobs.entry(rule).or_insert_with(|| Jobs {
            rule: Arc::clone(rule),
            ..Jobs::default()
        });
        one.count += 1;
        let begin = executed(workflow, first).first();
        if let Some((begin, end)) = begin.zip(workflow.process(first).end_ns) {
            one.life.add(end - begin.start_ns);
        }
        let starter = Some(first).filter(|_| !members.contains(&first));
        for id in starter.into_iter().chain(members) {
            let images = executed(workflow, id);
            let peak = images.iter().filter_map(|image| image.max_rss_bytes).max();
            one.max_rss_bytes = one.max_rss_bytes.max(peak);
            for ns in images.iter().filter_map(|image| image.cpu_ns) {
                *one.cpu_ns.get_or_insert(0) += ns;
            }
            one.read_bytes += workflow.process(id).read_bytes.unwrap_or(0);
            one.write_bytes += workflow.process(id).write_bytes.unwrap_or(0);
        }
    }
    let mut jobs: Vec<Jobs> = jobs.into_values().collect();
    jobs.sort_by(|a, b| (b.life.sum, &a.rule).cmp(&(a.life.sum, &b.rule)));
    jobs
}

/// The images of a process from its first exec on. A copy of a shell that did a part of its work is no job.
fn executed(workflow: &Workflow, id: ProcessId) -> &[Image] {
    let images = workflow.images(id);
    let first = images.iter().position(|image| !image.is_fork);
    &images[first.unwrap_or(images.len())..]
}

/// The process that began a job: the shell by which a manager ran the commands of the job, to all of whose
/// processes it gave the name of its rule; else the process itself.
fn first_of(workflow: &Workflow, id: ProcessId) -> ProcessId {
    let mut first = id;
    while let Some(parent) = workflow.process(first).parent
        && workflow.rule(parent) == workflow.rule(id)
    {
        first = parent;
    }
    match runner_of_process(workflow, first) {
        Some(_) => first,
        None => id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Process;

    /// `( sleep 4; touch ready ) &` of bash: the copy of the shell waits for sleep, then becomes touch.
    #[test]
    fn a_job_begins_when_its_program_does() {
        let image = |rule: &str, is_fork, start_ns, end_ns| Image {
            process: ProcessId(0),
            is_fork,
            is_exec: !is_fork,
            rule: Arc::from(rule),
            start_ns,
            end_ns: Some(end_ns),
            cpu_ns: Some(1),
            ..Image::default()
        };
        let workflow = Workflow {
            images: vec![
                image("run.sh", true, 0, 4000),
                image("touch", false, 4000, 4001),
            ],
            processes: vec![Process {
                images: 0..2,
                end_ns: Some(4001),
                ..Process::default()
            }],
            ..Workflow::default()
        };
        let jobs = by_rule(&workflow);
        assert_eq!(
            (&*jobs[0].rule, jobs[0].life.max, jobs[0].cpu_ns),
            ("touch", 1, Some(1))
        );
    }

    /// Snakemake runs `bash -c 'gzip -c in > out; date > log'` for each job of the rule `comp`.
    #[test]
    fn the_commands_of_a_named_job_are_one_job() {
        let mut workflow = Workflow::default();
        let mut add = |exe: &str, rule: &str, parent: Option<u32>, start_ns, end_ns| {
            let at = workflow.processes.len();
            workflow.images.push(Image {
                process: ProcessId(at as u32),
                is_exec: true,
                exe: Some(exe.into()),
                rule: Arc::from(rule),
                start_ns,
                end_ns: Some(end_ns),
                cpu_ns: Some(1),
                ..Image::default()
            });
            workflow.processes.push(Process {
                images: at..at + 1,
                parent: parent.map(ProcessId),
                end_ns: Some(end_ns),
                ..Process::default()
            });
            at as u32
        };
        let manager = add("/usr/bin/python3", "snakemake", None, 0, 100);
        for at in [10, 50] {
            let shell = add("/usr/bin/bash", "comp", Some(manager), at, at + 40);
            add("/usr/bin/gzip", "comp", Some(shell), at + 1, at + 30);
            add("/usr/bin/date", "comp", Some(shell), at + 30, at + 39);
        }
        let jobs = by_rule(&workflow);
        assert_eq!(jobs.len(), 1);
        let comp = &jobs[0];
        assert_eq!((comp.count, comp.life.sum, comp.cpu_ns), (2, 80, Some(6)));
    }
}
