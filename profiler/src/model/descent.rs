//! Descent of processes, computed once for many pairs: there may be as many generations as processes.

use std::ops::Range;

use super::{ProcessId, Workflow};

/// The processes in an order in which the descendants of each follow it.
pub(crate) struct Descent {
    /// The place of each process.
    place: Vec<u32>,
    /// The place after its last descendant.
    end: Vec<u32>,
}

impl Descent {
    pub(crate) fn of(workflow: &Workflow) -> Descent {
        let children = workflow.children();
        let count = workflow.processes.len();
        let (mut place, mut end) = (vec![0; count], vec![0; count]);
        let mut next = 0;
        let roots = workflow.process_ids();
        for root in roots.filter(|&id| workflow.process(id).parent.is_none()) {
            // A process, and the number of its children that are done.
            let mut path = vec![(root, 0)];
            place[root.0 as usize] = next;
            next += 1;
            while let Some((id, done)) = path.last_mut() {
                match children[id.0 as usize].get(*done) {
                    Some(&child) => {
                        *done += 1;
                        place[child.0 as usize] = next;
                        next += 1;
                        path.push((child, 0));
                    }
                    None => {
                        end[id.0 as usize] = next;
                        path.pop();
                    }
                }
            }
        }
        Descent { place, end }
    }

    /// The place of a process in the order.
    pub(crate) fn place(&self, id: ProcessId) -> u32 {
        self.place[id.0 as usize]
    }

    /// The places of the descendants of a process.
    pub(crate) fn below(&self, id: ProcessId) -> Range<u32> {
        self.place(id) + 1..self.end[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Process;

    /// A root, ten thousand generations below it, and another child of the root.
    #[test]
    fn descendants_of_any_generation_follow_their_forebear() {
        const GENERATIONS: u32 = 10_000;
        let process = |parent: Option<u32>| Process {
            parent: parent.map(ProcessId),
            ..Process::default()
        };
        let line = (0..GENERATIONS).map(|id| process(Some(id)));
        let workflow = Workflow {
            processes: std::iter::once(process(None))
                .chain(line)
                .chain([process(Some(0))])
                .collect(),
            ..Workflow::default()
        };
        let descent = Descent::of(&workflow);
        let descends = |id, from| {
            descent
                .below(ProcessId(from))
                .contains(&descent.place(ProcessId(id)))
        };
        assert!(descends(GENERATIONS, 0) && descends(GENERATIONS, 1));
        assert!(descends(GENERATIONS + 1, 0) && !descends(GENERATIONS + 1, 1));
        assert!(!descends(0, GENERATIONS) && !descends(7, 7));
    }
}
