//! The part of the machine that processes may use: less than all of it by an affinity mask or a quota of
//! their control group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flowtrace_schema::{SettingRow, cpu_list, cpus_of_list};

use super::{Timeline, sum_of};
use crate::model::{ProcessId, Workflow};
use crate::timeline::{Confined, Limit};

/// A process with less than this share of the CPU time of several does not count among them.
const LITTLE: f64 = 0.05;

/// The part of the machine that each process may use, by its place; empty: all may use the whole machine.
/// `runs`: the first image of each run.
pub(super) fn confined(
    workflow: &Workflow,
    settings: &[SettingRow],
    runs: &[i64],
) -> Vec<Option<Arc<Confined>>> {
    if settings
        .iter()
        .all(|row| row.cpus.is_none() && row.cpu_quota_ns.is_none())
    {
        return Vec::new();
    }
    let of_row = |row: &SettingRow| {
        let is_confined = row.cpus.is_some() || row.cpu_quota_ns.is_some();
        is_confined.then(|| {
            Arc::new(Confined {
                cpus: row.cpus.as_deref().map(cpus_of_list),
                quota: row.cpu_quota_ns.map(|ns| ns as f64 / 1e9),
            })
        })
    };
    let of: BTreeMap<i64, _> = settings.iter().map(|row| (row.upid, of_row(row))).collect();
    // A program without a row began as the first program of its run.
    let of_first = |upid: i64| {
        let run = runs.partition_point(|&first| first <= upid);
        let first = run.checked_sub(1).map_or(i64::MIN, |at| runs[at]);
        of.range(first..).next().and_then(|(_, it)| it.clone())
    };
    let mut found: Vec<Option<Arc<Confined>>> = vec![None; workflow.processes.len()];
    let mut ids: Vec<ProcessId> = workflow.process_ids().collect();
    ids.sort_by_key(|&id| workflow.process(id).start_ns);
    for id in ids {
        let executed = workflow.images(id).iter().rfind(|image| image.is_exec);
        found[id.0 as usize] = match (executed, workflow.process(id).parent) {
            (Some(image), _) => match of.get(&image.upid) {
                Some(own) => own.clone(),
                None => of_first(image.upid),
            },
            // A copy of its parent.
            (None, Some(parent)) => found[parent.0 as usize].clone(),
            (None, None) => None,
        };
    }
    found
}

impl Timeline {
    /// The CPUs that some processes together may use; `None`: all of the machine, or it is not known.
    pub fn limit_of(&self, processes: impl Iterator<Item = ProcessId>) -> Option<Limit> {
        let [host] = &self.hosts[..] else {
            return None;
        };
        let mut active: Vec<(Option<&Confined>, f64)> = Vec::new();
        for process in processes {
            let instance = self.instance(process);
            let ns = sum_of(&instance.totals, super::State::is_active);
            let confined = instance.confined.as_deref();
            match active.iter_mut().find(|(known, _)| *known == confined) {
                Some((_, sum)) => *sum += ns,
                None => active.push((confined, ns)),
            }
        }
        let all: f64 = active.iter().map(|(_, ns)| ns).sum();
        active.retain(|&(_, ns)| ns > LITTLE * all);
        let mut cpus = Some(BTreeSet::new());
        let mut quota = Some(0.0);
        for (confined, _) in &active {
            let confined = (*confined)?;
            cpus = cpus
                .zip(confined.cpus.as_ref())
                .map(|(all, own)| &all | own);
            quota = quota
                .zip(confined.quota)
                .map(|(most, own): (f64, f64)| most.max(own));
        }
        let of_mask = cpus.map(|cpus| Limit {
            cores: cpus.len() as f64,
            cpus: Some(cpu_list(&cpus)),
        });
        let of_quota = quota.map(|cores| Limit { cores, cpus: None });
        let least = of_mask.into_iter().chain(of_quota);
        let least = least.min_by(|a, b| a.cores.total_cmp(&b.cores))?;
        let is_less = host.cpus.is_none_or(|cpus| least.cores < cpus as f64);
        (is_less && least.cores > 0.0).then_some(least)
    }

    /// CPUs that the run may use; `None`: not recorded.
    pub fn cores(&self) -> Option<f64> {
        match &self.limit {
            Some(limit) => Some(limit.cores),
            None => self.cpus().map(|cpus| cpus as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named() {
        let limit = |cores, cpus: Option<&str>| Limit {
            cores,
            cpus: cpus.map(str::to_owned),
        };
        let text = |limit: Limit| limit.text();
        assert!(text(limit(1.0, Some("0"))).ends_with("CPU 0 only"));
        assert!(text(limit(2.0, Some("0-1"))).ends_with("CPUs 0-1 only"));
        assert!(text(limit(0.3, None)).ends_with("allows 0.3 cores"));
    }
}
