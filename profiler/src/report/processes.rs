//! The processes, one column for each fact, and the bars of the timeline.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use flowtrace_schema::CostRow;
use serde::Serialize;

use super::rules::{Numbers, cost};
use super::text::Texts;
use crate::model::{ProcessId, Workflow};

/// Processes that each step shows one by one before the longest of all get the rest.
const EACH: usize = 40;
/// Intervals in which processes that are not shown one by one are counted.
const BINS: usize = 400;
/// Greatest number of steps for which these are counted, those with the most such processes.
const RESTS: usize = 40;

/// The processes that are shown one by one: all, or those that lived longest.
#[derive(Debug)]
pub(super) struct Kept {
    /// Ids in the order of discovery.
    ids: Vec<ProcessId>,
    /// Their places in `ids`, by process.
    places: Vec<Option<u32>>,
}

impl Kept {
    pub(super) fn of(workflow: &Workflow, most: usize) -> Kept {
        let mut ids: Vec<ProcessId> = workflow.process_ids().collect();
        if ids.len() > most {
            let life = |id: ProcessId| workflow.process(id).duration_ns().unwrap_or(i64::MAX);
            ids.sort_by_key(|&id| (Reverse(life(id)), id));
            // A step of short processes is shown, too.
            let mut of_rule: HashMap<&str, usize> = HashMap::new();
            let mut ranked: Vec<_> = ids
                .iter()
                .zip(0usize..)
                .map(|(&id, rank)| {
                    let seen = of_rule.entry(workflow.rule(id)).or_default();
                    *seen += 1;
                    // Roots first: without them the others have no place in the tree.
                    let is_root = workflow.process(id).parent.is_none();
                    (!is_root, *seen > EACH, rank, id)
                })
                .collect();
            ranked.sort_unstable();
            ranked.truncate(most);
            ids = ranked.into_iter().map(|(.., id)| id).collect();
            ids.sort_unstable();
        }
        let mut places = vec![None; workflow.processes.len()];
        for (place, id) in (0..).zip(&ids) {
            places[id.0 as usize] = Some(place);
        }
        Kept { ids, places }
    }

    /// The processes shown, in the order of discovery.
    pub(super) fn ids(&self) -> &[ProcessId] {
        &self.ids
    }

    /// The place of a process among those kept.
    pub(super) fn place(&self, id: ProcessId) -> Option<u32> {
        self.places.get(id.0 as usize).copied().flatten()
    }

    /// The place of a process, or of its nearest ancestor that is kept.
    fn ancestor(&self, workflow: &Workflow, mut at: Option<ProcessId>) -> Option<u32> {
        while let Some(id) = at {
            if let Some(place) = self.place(id) {
                return Some(place);
            }
            at = workflow.process(id).parent;
        }
        None
    }
}

/// Processes in columns.
#[derive(Debug, Default, Serialize)]
pub(super) struct Processes {
    upid: Vec<i64>,
    pid: Vec<i64>,
    /// Place of the parent, or of the nearest ancestor shown.
    parent: Vec<Option<u32>>,
    rule: Vec<usize>,
    command: Vec<usize>,
    start_ns: Vec<i64>,
    end_ns: Vec<Option<i64>>,
    cpu_ns: Vec<Option<i64>>,
    run_queue_ns: Vec<Option<i64>>,
    storage_ns: Vec<Option<i64>>,
    wait_ns: Vec<Option<i64>>,
    read_bytes: Vec<Option<i64>>,
    write_bytes: Vec<Option<i64>>,
    max_rss_bytes: Vec<Option<i64>>,
    exit_code: Vec<Option<i64>>,
    /// Number of the signal, and its name in `signals`.
    exit_signal: Vec<Option<i64>>,
    signals: BTreeMap<i64, String>,
    bars: Bars,
    texts: Vec<String>,
    texts_cut: usize,
    /// Number of processes of each rule that are not shown, where there are any.
    left_out: BTreeMap<usize, i64>,
    rest: Rest,
}

/// The rules of processes that are not shown one by one, over time.
#[derive(Debug, Default, Serialize)]
struct Rest {
    /// Length of an interval, ns; the first begins at 0.
    bin_ns: i64,
    /// Mean number of processes that lived in each interval, by rule.
    living: BTreeMap<usize, Vec<f32>>,
}

impl Rest {
    fn of(workflow: &Workflow, numbers: &Numbers, out: &BTreeMap<usize, i64>, kept: &Kept) -> Rest {
        let bin_ns = (workflow.last_ns / BINS as i64 + 1).max(1);
        let mut most: Vec<(Reverse<i64>, usize)> =
            out.iter().map(|(&rule, &n)| (Reverse(n), rule)).collect();
        most.sort_unstable();
        let rules = most.iter().take(RESTS).map(|&(_, rule)| rule);
        let mut sums: BTreeMap<usize, Vec<i64>> = rules.map(|rule| (rule, vec![0; BINS])).collect();
        for id in workflow
            .process_ids()
            .filter(|&id| kept.place(id).is_none())
        {
            let Some(bins) = sums.get_mut(&numbers.of_process(workflow, id)) else {
                continue;
            };
            let process = workflow.process(id);
            let from = process.start_ns.max(0);
            let to = process.end_ns.unwrap_or(workflow.last_ns).max(from);
            let first = usize::try_from(from / bin_ns).unwrap_or(0);
            for (at, bin) in bins.iter_mut().enumerate().skip(first) {
                let begin = at as i64 * bin_ns;
                if begin > to {
                    break;
                }
                *bin += to.min(begin + bin_ns) - from.max(begin);
            }
        }
        let mean = |ns: i64| ((ns as f64 / bin_ns as f64 * 100.0).round() / 100.0) as f32;
        let means = |(rule, bins): (usize, Vec<i64>)| (rule, bins.into_iter().map(mean).collect());
        Rest {
            bin_ns,
            living: sums.into_iter().map(means).collect(),
        }
    }
}

/// The program that a process ran from one exec to the next, or from its fork where it called none. The time
/// between a fork and an exec is no step, and has no bar.
#[derive(Debug, Default, Serialize)]
struct Bars {
    process: Vec<u32>,
    rule: Vec<usize>,
    start_ns: Vec<i64>,
    end_ns: Vec<i64>,
    cpu_ns: Vec<Option<i64>>,
}

pub(super) fn of(
    workflow: &Workflow,
    numbers: &Numbers,
    kept: &Kept,
    costs: &[CostRow],
    texts: &mut Texts,
) -> Processes {
    let mut p = Processes::default();
    for (place, &id) in (0..).zip(&kept.ids) {
        let process = workflow.process(id);
        let last = workflow.last_image(id);
        p.upid.push(last.upid);
        p.pid.push(process.pid);
        p.parent.push(kept.ancestor(workflow, process.parent));
        p.rule.push(numbers.get(&last.rule));
        p.command.push(texts.place(&workflow.joint_command(id)));
        p.start_ns.push(process.start_ns);
        p.end_ns.push(process.end_ns);
        p.cpu_ns.push(process.cpu_ns);
        let images = workflow.images(id);
        let sum = |of: fn(&CostRow) -> Option<i64>| {
            let values = images.iter().filter_map(|i| of(cost(costs, i.upid)?));
            values.reduce(i64::saturating_add)
        };
        let queue = images.iter().filter_map(|i| i.run_queue_ns);
        p.run_queue_ns.push(queue.reduce(i64::saturating_add));
        p.storage_ns.push(sum(|c| c.storage_ns));
        p.wait_ns.push(sum(|c| c.wait_ns));
        p.read_bytes.push(process.read_bytes);
        p.write_bytes.push(process.write_bytes);
        let rss = images
            .iter()
            .filter_map(|i| cost(costs, i.upid)?.max_rss_bytes);
        p.max_rss_bytes.push(rss.max());
        p.exit_code.push(process.exit_code);
        p.exit_signal.push(process.exit_signal);
        if let Some(signal) = process.exit_signal {
            p.signals
                .entry(signal)
                .or_insert_with(|| crate::signals::signal_name(signal));
        }
        for (i, image) in images.iter().enumerate() {
            if image.is_fork && i + 1 < images.len() {
                continue;
            }
            p.bars.process.push(place);
            p.bars.rule.push(numbers.of_image(image));
            p.bars.start_ns.push(image.start_ns);
            let end = image.end_ns.unwrap_or(workflow.last_ns);
            p.bars.end_ns.push(end.max(image.start_ns));
            p.bars.cpu_ns.push(image.cpu_ns);
        }
    }
    if kept.ids.len() < workflow.processes.len() {
        let out = |id: &ProcessId| kept.place(*id).is_none();
        for id in workflow.process_ids().filter(out) {
            *p.left_out
                .entry(numbers.of_process(workflow, id))
                .or_default() += 1;
        }
        p.rest = Rest::of(workflow, numbers, &p.left_out, kept);
    }
    p.texts_cut = texts.cut();
    p.texts = std::mem::take(texts).into_texts();
    p
}
