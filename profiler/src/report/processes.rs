//! The processes, one column for each fact, and the bars of the timeline.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use flowtrace_schema::CostRow;
use serde::Serialize;

use super::rules::{Numbers, cost};
use super::text::Texts;
use crate::model::{ProcessId, Workflow};

/// The processes that are shown one by one: all, or those that lived longest.
#[derive(Debug)]
pub(super) struct Kept {
    /// In the order of discovery.
    ids: Vec<ProcessId>,
    /// Their places in `ids`, by process.
    places: Vec<Option<u32>>,
}

impl Kept {
    pub(super) fn of(workflow: &Workflow, most: usize) -> Kept {
        let mut ids: Vec<ProcessId> = workflow.process_ids().collect();
        if ids.len() > most {
            let life = |id: ProcessId| workflow.process(id).duration_ns().unwrap_or(i64::MAX);
            // Roots first: without them the others have no place in the tree.
            ids.sort_by_key(|&id| {
                let is_root = workflow.process(id).parent.is_none();
                (Reverse(is_root), Reverse(life(id)), id)
            });
            ids.truncate(most);
            ids.sort_unstable();
        }
        let mut places = vec![None; workflow.processes.len()];
        for (place, id) in (0..).zip(&ids) {
            places[id.0 as usize] = Some(place);
        }
        Kept { ids, places }
    }

    /// Those kept, in the order of discovery.
    pub(super) fn ids(&self) -> &[ProcessId] {
        &self.ids
    }

    /// The place of a process among those kept.
    pub(super) fn place(&self, id: ProcessId) -> Option<u32> {
        self.places.get(id.0 as usize).copied().flatten()
    }

    /// The place of the process itself, or of the nearest ancestor that is kept.
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
    /// Processes of each rule that are not among them, where there are any.
    left_out: BTreeMap<usize, i64>,
}

/// What a process was from one exec to the next, or from its fork where it called none. The
/// moment between a fork and an exec is no step, and has no bar.
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
        p.command
            .push(texts.place(last.command.as_ref().unwrap_or(&last.rule)));
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
                .or_insert_with(|| crate::analysis::time::signal_name(signal));
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
    }
    p.texts_cut = texts.cut();
    p.texts = std::mem::take(texts).into_texts();
    p
}
