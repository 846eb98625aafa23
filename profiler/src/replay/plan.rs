//! Makes a workload of a trace.

use std::collections::{HashMap, HashSet};

use flowtrace_schema::{NameRow, ReplayedCallRow, Result, Trace};

use super::calls::Planner;
use super::order::Order;
use super::{Act, Actor, Call, Workload};
use crate::load::load;
use crate::model::Workflow;

/// Makes a workload of the calls on files in the traced directories.
///
/// # Errors
/// When the file cannot be read.
pub fn plan(trace: &Trace) -> Result<Workload> {
    let workflow = load(trace)?;
    let mut names: HashMap<i64, Vec<NameRow>> = HashMap::new();
    for name in trace.file_names()? {
        names.entry(name.file_id).or_default().push(name);
    }
    let calls = trace.replayed_calls()?;
    let roots = workflow.roots();
    let mut planner = Planner {
        names: &names,
        roots: &roots,
        place: HashMap::new(),
        unnamed: HashSet::new(),
        order: Order::default(),
        workload: Workload {
            actors: vec![Actor::default(); workflow.processes.len()],
            recorded_ns: workflow.duration_ns(),
            warnings: incomplete(&workflow),
            ..Workload::default()
        },
    };
    planner.prepare(&calls);
    let mut of_process: Vec<Vec<(&ReplayedCallRow, Call)>> =
        vec![Vec::new(); workflow.processes.len()];
    let process_of = workflow.process_of_images();
    for row in &calls {
        let Some(&process) = process_of.get(&row.upid) else {
            continue;
        };
        match planner.call(row, process) {
            Some(call) => of_process[process.0 as usize].push((row, call)),
            None => planner.workload.left_out += 1,
        }
    }
    let children = workflow.children();
    for id in workflow.process_ids() {
        let process = workflow.process(id);
        let images = workflow.images(id);
        let own = &of_process[id.0 as usize];
        let end = process.end_ns.unwrap_or(workflow.last_ns);
        let queued: i64 = images.iter().filter_map(|i| i.run_queue_ns).sum();
        let traced: i64 = images.iter().filter_map(|i| i.tracer_ns).sum();
        let cpu_ns = process.cpu_ns.unwrap_or(0);
        let not_played = &mut planner.workload.not_played;
        not_played.run_queue_ns = not_played.run_queue_ns.saturating_add(queued);
        not_played.tracer_ns = not_played.tracer_ns.saturating_add(traced);
        not_played.cpu_ns = not_played.cpu_ns.saturating_add(cpu_ns);
        let actor = &mut planner.workload.actors[id.0 as usize];
        actor.parent = process.parent.map(|parent| parent.0 as usize);
        // All events of the process in order: begin, end, act.
        let mut events: Vec<(i64, i64, Act)> = own
            .iter()
            .map(|(row, call)| {
                (
                    row.start_ns,
                    row.start_ns + row.duration_ns,
                    Act::Call(call.clone()),
                )
            })
            .collect();
        for &child in &children[id.0 as usize] {
            let start = workflow.process(child).start_ns;
            events.push((start, start, Act::Fork(child.0 as usize)));
            let child_end = workflow.process(child).end_ns.unwrap_or(end);
            if child_end <= end {
                events.push((child_end, child_end, Act::Wait(child.0 as usize)));
            }
        }
        events.sort_by_key(|event| event.0);
        // A parent that acts before its child has ended is not waiting for the child.
        let mut gaps = Vec::new();
        let mut at = process.start_ns;
        for (start, over, act) in events {
            gaps.push((start - at).max(0));
            at = at.max(over);
            actor.acts.push(act);
        }
        gaps.push((end - at).max(0));
        spread(&mut actor.acts, &gaps, cpu_ns, queued + traced);
    }
    planner.workload.counters = planner.order.counters();
    Ok(planner.workload)
}

/// The reasons why a trace does not have its whole run.
fn incomplete(workflow: &Workflow) -> Vec<String> {
    let mut reasons = Vec::new();
    if workflow.is_live {
        reasons.push("it is still being recorded: only what is stored by now is played".to_owned());
    } else if workflow.is_cut_short() {
        let why = workflow.unrecorded.as_deref();
        let why = why.unwrap_or("its recording was cut short");
        reasons.push(format!("{why}: its last calls are not played"));
    }
    if workflow.is_incomplete() {
        reasons.push("rows of it are missing, and the calls in them".to_owned());
    }
    reasons
}

/// Puts thinking times between the acts of a process. A gap that ends with the end of a child was a
/// wait for the child. From the other gaps, the time stopped by the tracer or waiting for a CPU is left
/// out.
fn spread(acts: &mut Vec<Act>, gaps: &[i64], cpu_ns: i64, not_played_ns: i64) {
    let is_waiting = |at: usize| matches!(acts.get(at), Some(Act::Wait(_)));
    let own: Vec<i64> = gaps
        .iter()
        .enumerate()
        .map(|(at, &gap)| if is_waiting(at) { 0 } else { gap })
        .collect();
    let sum = own.iter().sum::<i64>().max(1) as f64;
    let kept = (1.0 - not_played_ns as f64 / sum).clamp(0.0, 1.0);
    let computing = cpu_ns as f64 / sum;
    let mut with_thoughts = Vec::with_capacity(acts.len() * 2 + 1);
    let mut acts_left = std::mem::take(acts).into_iter();
    for gap in own {
        let compute_ns = (gap as f64 * computing) as u64;
        let gap_ns = (gap as f64 * kept) as u64;
        if compute_ns.max(gap_ns) > 0 {
            with_thoughts.push(Act::Think { compute_ns, gap_ns });
        }
        with_thoughts.extend(acts_left.next());
    }
    *acts = with_thoughts;
}
