//! A step that is not yet in order, and the steps of a run.

use std::collections::HashSet;
use std::sync::Arc;

use crate::generate::ast::Command;
use crate::generate::drivers::{MANAGERS, is_one_of};
use crate::generate::source::Source;
/// A step, not yet in order.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) command: Command,
    /// Its process images.
    pub(super) members: HashSet<i64>,
    pub(super) rule: Arc<str>,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    /// True if the output of the step went to the script, as in `$(…)`.
    pub(super) answers_script: bool,
}

/// The steps of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Split {
    pub(super) drafts: Vec<Draft>,
    /// Images of the processes that drove the run.
    pub(super) drivers: HashSet<i64>,
    /// True if the driver is a workflow manager, whose own files do not matter.
    pub(super) is_manager: bool,
}

impl Split {
    pub(super) fn add_drivers(&mut self, source: &Source, places: &[usize]) {
        for image in places.iter().map(|&at| &source.workflow.images[at]) {
            self.is_manager |= is_one_of(image, MANAGERS);
            self.drivers.insert(image.upid);
        }
    }
}
