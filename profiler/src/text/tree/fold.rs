//! Siblings that are alike: same rule, same ending, same kinds of children.

use std::collections::HashMap;

use crate::model::{ProcessId, Workflow};

/// The shape of every process; processes with one number are alike.
pub(super) struct Shapes(Vec<u32>);

impl Shapes {
    /// Children first, so that a shape is known before it is needed. The *number* of children of a kind does
    /// not matter: a line of a recipe is the same with two greps or three.
    pub(super) fn of(workflow: &Workflow, children: &[Vec<ProcessId>]) -> Shapes {
        let mut order: Vec<ProcessId> = workflow
            .process_ids()
            .filter(|&id| workflow.process(id).parent.is_none())
            .collect();
        let mut next = 0;
        while let Some(&ProcessId(id)) = order.get(next) {
            order.extend(&children[id as usize]);
            next += 1;
        }
        let mut shapes = vec![0; workflow.processes.len()];
        let mut numbers = HashMap::new();
        for &id in order.iter().rev() {
            let process = workflow.process(id);
            let mut below: Vec<u32> = children[id.0 as usize]
                .iter()
                .map(|child| shapes[child.0 as usize])
                .collect();
            below.sort_unstable();
            below.dedup();
            let ending = (
                process.exit_code,
                process.exit_signal,
                process.end_ns.is_none(),
            );
            let next = numbers.len() as u32;
            let shape = numbers
                .entry((workflow.rule(id), ending, below))
                .or_insert(next);
            shapes[id.0 as usize] = *shape;
        }
        Shapes(shapes)
    }
}

/// Siblings, or cousins below one group, grouped by shape, in the order of their first. Without shapes each
/// is a group of its own.
pub(super) fn groups(siblings: &[ProcessId], shapes: Option<&Shapes>) -> Vec<Vec<ProcessId>> {
    let Some(Shapes(shapes)) = shapes else {
        return siblings.iter().map(|&id| vec![id]).collect();
    };
    let mut groups: Vec<Vec<ProcessId>> = Vec::new();
    let mut place: HashMap<u32, usize> = HashMap::new();
    for &id in siblings {
        let at = *place.entry(shapes[id.0 as usize]).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(id),
            None => groups.push(vec![id]),
        }
    }
    groups
}
