//! Reads of /proc that are due for a row, and their results.

use flowtrace_schema::{ProcessEnd, Record, Upid, Usage};

use super::process::costs_so_far;
use crate::proc::costs::Costs;
use crate::proc::reading::{Image, ProcessStat};

/// The process that makes the kernel's threads: no parent of a recorded process.
pub(super) const KTHREADD: u32 = 2;

/// Most ancestors that are read.
pub(super) const GENERATIONS: usize = 64;

/// A row whose image is to be read.
pub(super) struct Unread {
    pub(super) pid: u32,
    /// The image as far as it is known from other sources.
    pub(super) image: Image,
    pub(super) is_read: bool,
    /// Parent that is not in the table.
    pub(super) parent: Option<u32>,
    pub(super) costs: Option<CostsDue>,
    pub(super) records: Vec<Record>,
    /// Processes forked with this image.
    pub(super) heirs: Vec<u32>,
}

/// Costs of the process at the begin of its row, which are to be read, too.
pub(super) struct CostsDue {
    /// Costs of its threads that are over.
    pub(super) ended: Costs,
    /// The end of the former image, which has these costs.
    pub(super) previous: Option<ProcessEnd>,
}

/// Reads that are due for a row.
pub(super) struct Task {
    pub(super) row: Upid,
    /// Process whose image it is.
    pub(super) pid: u32,
    /// Costs of ended threads; `Some`: those of the process are to be read, too.
    pub(super) costs: Option<Costs>,
    /// Parent from which on ancestors are to be found.
    pub(super) parent: Option<u32>,
}

/// Result of reads.
pub(super) struct Reading {
    pub(super) image: Image,
    pub(super) costs: Option<Costs>,
    /// Ancestors, the parent first. `None`: not asked for.
    pub(super) ancestors: Option<Vec<(u32, ProcessStat)>>,
}

impl Task {
    /// The reads that concern the process itself.
    pub(super) fn of_itself(self) -> Task {
        Task {
            parent: None,
            ..self
        }
    }

    /// Makes the reads. Waits while the process is in an exec.
    pub(super) fn read(&self) -> Reading {
        let mut image = Image::of(self.pid);
        // The arguments of a process vanish before its executable; no program has none at all.
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
