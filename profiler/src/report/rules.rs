//! The steps of the workflow with their sums over all process images.

use std::collections::HashMap;
use std::sync::Arc;

use flowtrace_render::units::plain;
use flowtrace_schema::CostRow;
use serde::Serialize;

use crate::analysis::statistics::jobs;
use crate::analysis::time;
use crate::analysis::time::failed;
use crate::managers::runner_of;
use crate::model::{Image, ProcessId, Workflow};

/// Number of rules with a number of their own; the others, those with the least CPU time, share one.
const MOST: usize = 1_000;

/// Rules by number, those with the most CPU time first.
#[derive(Debug)]
pub(super) struct Numbers {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, usize>,
}

impl Numbers {
    pub(super) fn of(workflow: &Workflow) -> Numbers {
        let names: Vec<Arc<str>> = time::by_rule(workflow)
            .into_iter()
            .map(|r| r.rule)
            .collect();
        Numbers::cut(names, MOST)
    }

    fn cut(mut names: Vec<Arc<str>>, most: usize) -> Numbers {
        let more = names.len().saturating_sub(most);
        if more > 1 {
            names.truncate(most);
        }
        let numbers = names.iter().cloned().zip(0..).collect();
        if more > 1 {
            names.push(format!("(+{more} more steps)").into());
        }
        Numbers { names, numbers }
    }

    /// The number of a rule.
    pub(super) fn get(&self, rule: &str) -> usize {
        let last = self.names.len().saturating_sub(1);
        self.numbers.get(rule).copied().unwrap_or(last)
    }

    /// The number of the rule of that name.
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    /// The name of the rule of that number.
    pub(super) fn name(&self, number: usize) -> &str {
        self.names.get(number).map_or("?", |name| name)
    }

    /// The number of an image's rule.
    pub(super) fn of_image(&self, image: &Image) -> usize {
        self.get(&image.rule)
    }

    /// The number of the last rule of a process.
    pub(super) fn of_process(&self, workflow: &Workflow, id: ProcessId) -> usize {
        self.of_image(workflow.last_image(id))
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }
}

/// Sums over all images of a rule, as `SELECT SUM(…) FROM processes GROUP BY rule` gives them.
#[derive(Debug, Default, Serialize)]
pub(super) struct Rules {
    name: Vec<String>,
    /// True for a shell, launcher or manager, which runs others.
    is_runner: Vec<bool>,
    /// Images that began by an exec, or were found running.
    executions: Vec<i64>,
    /// Images, forks included.
    images: Vec<i64>,
    /// Processes whose last image is of the rule.
    processes: Vec<i64>,
    failed: Vec<i64>,
    cpu_ns: Vec<i64>,
    /// Life of all images, forks included.
    life_ns: Vec<i64>,
    run_queue_ns: Vec<i64>,
    storage_ns: Vec<i64>,
    wait_ns: Vec<i64>,
    read_bytes: Vec<i64>,
    write_bytes: Vec<i64>,
    max_rss_bytes: Vec<i64>,
    /// Jobs, as `flowtrace stats jobs` counts them.
    jobs: Vec<i64>,
    /// Of the life times of the jobs, ns: the least, the quartiles, the longest; `None`: no end was seen.
    job_life_ns: Vec<Option<[i64; 5]>>,
}

pub(super) fn of(workflow: &Workflow, numbers: &Numbers, costs: &[CostRow]) -> Rules {
    let zeros = || vec![0; numbers.len()];
    let mut rules = Rules {
        name: numbers.names.iter().map(|name| plain(name)).collect(),
        is_runner: vec![false; numbers.len()],
        executions: zeros(),
        images: zeros(),
        processes: zeros(),
        failed: zeros(),
        cpu_ns: zeros(),
        life_ns: zeros(),
        run_queue_ns: zeros(),
        storage_ns: zeros(),
        wait_ns: zeros(),
        read_bytes: zeros(),
        write_bytes: zeros(),
        max_rss_bytes: zeros(),
        jobs: zeros(),
        job_life_ns: vec![None; numbers.len()],
    };
    for one in jobs::by_rule(workflow) {
        if let Some(rule) = numbers.named(&one.rule) {
            let part = |share| one.life.quantile(share);
            rules.jobs[rule] = one.count;
            rules.job_life_ns[rule] = part(0.25)
                .zip(part(0.5))
                .zip(part(0.75))
                .map(|((low, middle), high)| [one.life.min, low, middle, high, one.life.max]);
        }
    }
    let add = |sum: &mut i64, value: Option<i64>| *sum = sum.saturating_add(value.unwrap_or(0));
    for image in &workflow.images {
        let rule = numbers.of_image(image);
        rules.images[rule] += 1;
        rules.is_runner[rule] |= runner_of(image.exe.as_deref(), &image.rule).is_some();
        rules.executions[rule] += i64::from(!image.is_fork);
        add(&mut rules.cpu_ns[rule], image.cpu_ns);
        add(&mut rules.run_queue_ns[rule], image.run_queue_ns);
        let end = image.end_ns.unwrap_or(workflow.last_ns);
        let life = (end - image.start_ns).max(0);
        add(&mut rules.life_ns[rule], Some(life));
        if let Some(cost) = cost(costs, image.upid) {
            add(&mut rules.storage_ns[rule], cost.storage_ns);
            add(&mut rules.wait_ns[rule], cost.wait_ns);
            add(&mut rules.read_bytes[rule], cost.read_bytes);
            add(&mut rules.write_bytes[rule], cost.write_bytes);
            let most = &mut rules.max_rss_bytes[rule];
            *most = (*most).max(cost.max_rss_bytes.unwrap_or(0));
        }
    }
    let failed = failed(workflow);
    for id in workflow.process_ids() {
        let rule = numbers.of_process(workflow, id);
        rules.processes[rule] += 1;
        rules.failed[rule] += i64::from(failed.contains(&id));
    }
    rules
}

/// The costs of an image; they are in the order of upids.
pub(super) fn cost(costs: &[CostRow], upid: i64) -> Option<&CostRow> {
    let at = costs.binary_search_by_key(&upid, |cost| cost.upid).ok()?;
    Some(&costs[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lightest_rules_share_a_number() {
        let names = |n: usize| (0..n).map(|i| Arc::from(format!("r{i}"))).collect();
        let all = Numbers::cut(names(4), 3);
        assert_eq!(all.len(), 4, "one alone is not hidden behind a number");
        let cut = Numbers::cut(names(6), 3);
        assert_eq!(cut.names.last().map(|n| &**n), Some("(+3 more steps)"));
        let of = |name: &str| cut.get(name);
        assert_eq!((of("r0"), of("r2"), of("r3"), of("r5")), (0, 2, 3, 3));
        assert_eq!(Numbers::cut(Vec::new(), 3).get("x"), 0);
    }
}
