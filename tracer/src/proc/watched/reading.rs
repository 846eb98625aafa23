//! What is to be read in /proc for a row, and what was read.

use flowtrace_schema::{ProcessEnd, Record, Upid, Usage};

use super::process::costs_so_far;
use crate::proc::costs::Costs;
use crate::proc::reading::{Image, ProcessStat};

/// The process that makes the kernel's threads: the parent of nobody that is followed.
pub(super) const KTHREADD: u32 = 2;

/// How far ancestors are followed.
pub(super) const GENERATIONS: usize = 64;

/// A row whose image is to be read.
pub(super) struct Unread {
    pub(super) pid: u32,
    /// As far as it is known otherwise.
    pub(super) image: Image,
    pub(super) is_read: bool,
    /// Parent that is not in the table.
    pub(super) parent: Option<u32>,
    pub(super) costs: Option<CostsDue>,
    pub(super) records: Vec<Record>,
    /// Processes forked with this image.
    pub(super) heirs: Vec<u32>,
}

/// What the process had used when the row began is to be read, too.
pub(super) struct CostsDue {
    /// What its threads used that are over.
    pub(super) ended: Costs,
    /// The end of the image before, of which these are the costs.
    pub(super) previous: Option<ProcessEnd>,
}

/// What is to be read for a row.
pub(super) struct Task {
    pub(super) row: Upid,
    /// Process whose image it is.
    pub(super) pid: u32,
    /// To be read with what ended threads used.
    pub(super) costs: Option<Costs>,
    /// Parent from which on ancestors are to be found.
    pub(super) parent: Option<u32>,
}

/// What was read.
pub(super) struct Reading {
    pub(super) image: Image,
    pub(super) costs: Option<Costs>,
    /// The parent first. `None`: not asked for.
    pub(super) ancestors: Option<Vec<(u32, ProcessStat)>>,
}

impl Task {
    /// The same without what is not the process itself.
    pub(super) fn of_itself(self) -> Task {
        Task {
            parent: None,
            ..self
        }
    }

    /// Reads it. Waits while the process is in an exec.
    pub(super) fn read(&self) -> Reading {
        let mut image = Image::of(self.pid);
        // Arguments are gone before the executable is; no program has none at all.
        image.argv.take_if(|argv| argv.is_empty());
        Reading {
            image,
            costs: self.costs.and_then(|ended| costs_so_far(self.pid, &ended)),
            ancestors: self.parent.map(ancestors),
        }
    }
}

fn ancestors(mut pid: u32) -> Vec<(u32, ProcessStat)> {
    let mut found = Vec::new();
    while pid > KTHREADD
        && pid != std::process::id()
        && found.len() < GENERATIONS
        && let Some(stat) = ProcessStat::of(pid)
    {
        found.push((pid, stat));
        pid = stat.parent;
    }
    found
}

impl Unread {
    pub(super) fn task(&self, row: Upid) -> Task {
        Task {
            row,
            pid: self.pid,
            costs: self.costs.as_ref().map(|due| due.ended),
            parent: self.parent,
        }
    }
}

/// The end of an image whose costs are still to be read.
pub(super) fn end_without_costs(upid: Upid, end_ns: u64) -> ProcessEnd {
    ProcessEnd {
        upid,
        end_ns: Some(end_ns),
        exit_code: None,
        exit_signal: None,
        inner_pid: None,
        usage: Usage::default(),
    }
}
