//! The jobs of each rule: how many there were, how long they took, and what they used.

use std::collections::HashMap;
use std::sync::Arc;

use crate::distribution::Distribution;
use crate::managers::runner_of_process;
use crate::model::Workflow;

/// All jobs of a rule. A job is a process from its first exec on; shells, launchers and managers that only
/// started others are none.
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
    let mut jobs: HashMap<&Arc<str>, Jobs> = HashMap::new();
    for id in workflow.process_ids().filter(|&id| {
        children[id.0 as usize].is_empty() || runner_of_process(workflow, id).is_none()
    }) {
        let process = workflow.process(id);
        let images = workflow.images(id);
        // A copy of a shell that did a part of its work is no job, nor is that part before the exec.
        let Some(first) = images.iter().position(|image| !image.is_fork) else {
            continue;
        };
        let images = &images[first..];
        let rule = workflow.rule(id);
        let one = jobs.entry(rule).or_insert_with(|| Jobs {
            rule: Arc::clone(rule),
            ..Jobs::default()
        });
        one.count += 1;
        if let Some(end) = process.end_ns {
            one.life.add(end - images[0].start_ns);
        }
        let peak = images.iter().filter_map(|image| image.max_rss_bytes).max();
        one.max_rss_bytes = one.max_rss_bytes.max(peak);
        for ns in images.iter().filter_map(|image| image.cpu_ns) {
            *one.cpu_ns.get_or_insert(0) += ns;
        }
        one.read_bytes += process.read_bytes.unwrap_or(0);
        one.write_bytes += process.write_bytes.unwrap_or(0);
    }
    let mut jobs: Vec<Jobs> = jobs.into_values().collect();
    jobs.sort_by(|a, b| (b.life.sum, &a.rule).cmp(&(a.life.sum, &b.rule)));
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Image, Process, ProcessId};

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
}
