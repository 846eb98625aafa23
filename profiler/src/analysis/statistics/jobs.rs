//! The jobs of each rule: how many there were, how long they took, and what they used.

use std::collections::HashMap;
use std::sync::Arc;

use crate::distribution::Distribution;
use crate::managers::runner_of_process;
use crate::model::Workflow;

/// All jobs of a rule. A job is a process; shells, launchers and managers that only started others are none.
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
        // A copy of a shell that did a part of its work is no job.
        if images.iter().all(|image| image.is_fork) {
            continue;
        }
        let rule = workflow.rule(id);
        let one = jobs.entry(rule).or_insert_with(|| Jobs {
            rule: Arc::clone(rule),
            ..Jobs::default()
        });
        one.count += 1;
        if let Some(life) = process.duration_ns() {
            one.life.add(life);
        }
        let peak = images.iter().filter_map(|image| image.max_rss_bytes).max();
        one.max_rss_bytes = one.max_rss_bytes.max(peak);
        if let Some(ns) = process.cpu_ns {
            *one.cpu_ns.get_or_insert(0) += ns;
        }
        one.read_bytes += process.read_bytes.unwrap_or(0);
        one.write_bytes += process.write_bytes.unwrap_or(0);
    }
    let mut jobs: Vec<Jobs> = jobs.into_values().collect();
    jobs.sort_by(|a, b| (b.life.sum, &a.rule).cmp(&(a.life.sum, &b.rule)));
    jobs
}
