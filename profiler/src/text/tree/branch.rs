//! The lines of the tree: processes, or groups of processes alike, in the order in which they are
//! written.

use super::fold::{Shapes, groups};
use crate::model::{ProcessId, Workflow};

/// Deeper levels are not indented further: 100 000 nested forks must not fill the screen with
/// lines. Their depth is written instead.
pub(super) const DEEPEST: usize = 30;

/// A process, or siblings and cousins alike.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) members: Vec<ProcessId>,
    /// Place of the branch that forked them; `None`: no process in the trace did.
    pub(super) parent: Option<usize>,
    /// Box lines of the levels above.
    pub(super) indent: String,
    pub(super) is_last: bool,
    pub(super) depth: usize,
    /// True if one of them is on the longest chain.
    pub(super) is_on_chain: bool,
}

/// All branches, parents before children. `is_full`: every process is one of its own.
pub(super) fn branches(workflow: &Workflow, is_full: bool, chain: &[ProcessId]) -> Vec<Branch> {
    let children = workflow.children();
    let shapes = (!is_full).then(|| Shapes::of(workflow, &children));
    let mut on_chain = vec![false; workflow.processes.len()];
    for id in chain {
        on_chain[id.0 as usize] = true;
    }
    let branch = |members: Vec<ProcessId>, parent, indent: &str, is_last, depth| Branch {
        is_on_chain: members.iter().any(|id| on_chain[id.0 as usize]),
        members,
        parent,
        indent: indent.into(),
        is_last,
        depth,
    };
    let mut done: Vec<Branch> = Vec::new();
    // The last element is the next to write.
    let mut waiting: Vec<Branch> = Vec::new();
    let first = groups(&roots(workflow), shapes.as_ref());
    waiting.extend(
        first
            .into_iter()
            .rev()
            .enumerate()
            .map(|(from_end, members)| branch(members, None, "", from_end == 0, 0)),
    );
    while let Some(next) = waiting.pop() {
        let below: Vec<ProcessId> = next
            .members
            .iter()
            .flat_map(|&ProcessId(id)| children[id as usize].iter().copied())
            .collect();
        let bar = match (next.depth, next.is_last) {
            (0 | DEEPEST.., _) => "",
            (_, true) => "   ",
            (_, false) => "│  ",
        };
        let (indent, depth, own) = (format!("{}{bar}", next.indent), next.depth + 1, done.len());
        done.push(next);
        let below = groups(&below, shapes.as_ref())
            .into_iter()
            .rev()
            .enumerate();
        waiting.extend(
            below.map(|(from_end, members)| {
                branch(members, Some(own), &indent, from_end == 0, depth)
            }),
        );
    }
    done
}

/// The processes without a parent in the trace, in the order of their start.
pub(super) fn roots(workflow: &Workflow) -> Vec<ProcessId> {
    let mut roots: Vec<ProcessId> = workflow
        .process_ids()
        .filter(|&id| workflow.process(id).parent.is_none())
        .collect();
    roots.sort_by_key(|&id| (workflow.process(id).start_ns, id));
    roots
}

/// The longest chain of forks: from the longest lived process without a parent, always to the child that
/// lived longest. Of equals the first; empty when no process forked another.
pub(super) fn longest_chain(workflow: &Workflow) -> Vec<ProcessId> {
    let children = workflow.children();
    let longest = |of: &[ProcessId]| {
        let mut best: Option<(i64, ProcessId)> = None;
        for &id in of {
            let life = life_ns(workflow, id);
            if best.is_none_or(|(most, _)| life > most) {
                best = Some((life, id));
            }
        }
        best.map(|(_, id)| id)
    };
    let mut chain = Vec::new();
    let mut next = longest(&roots(workflow));
    while let Some(id) = next {
        chain.push(id);
        next = longest(&children[id.0 as usize]);
    }
    if chain.len() < 2 {
        chain.clear();
    }
    chain
}

/// Life of a process, to the end of the recording where its end was not seen, ns.
pub(super) fn life_ns(workflow: &Workflow, id: ProcessId) -> i64 {
    let process = workflow.process(id);
    process
        .end_ns
        .unwrap_or(workflow.last_ns)
        .saturating_sub(process.start_ns)
}
