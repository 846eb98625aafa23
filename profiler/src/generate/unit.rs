//! A process from one of its images on: a program, or a subshell with what it starts.

use crate::generate::source::Source;
use crate::model::ProcessId;
/// A process from one of its images on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub(super) process: ProcessId,
    pub(super) from: usize,
}

pub(super) fn started_by(source: &Source, upid: i64, process: ProcessId) -> Vec<Unit> {
    let children = &source.children[process.0 as usize];
    let of_image = children.iter().filter(|&&child| {
        // A command given to a program as a file belongs to that program.
        if source.substitutions.owner.contains_key(&child) {
            return false;
        }
        let first = &source.workflow.images(child)[0];
        source.rows.get(&first.upid).and_then(|row| row.parent_upid) == Some(upid)
    });
    of_image
        .map(|&child| Unit {
            process: child,
            from: source.workflow.process(child).images.start,
        })
        .collect()
}
