//! What is kept of each thread and process while it lives, and what it used in the end.

use std::sync::Arc;

use flowtrace_schema::{Upid, Usage};

use super::super::reading::{Image, ProcessCost, ThreadCost};
use super::books::{Books, Life};

/// A thread.
pub(super) struct Task {
    pub(super) process: u32,
    pub(super) start_ns: u64,
    /// Its costs when the present image began; it may be older than that.
    pub(super) before: ThreadCost,
    /// It has announced its exit, and its costs are in its process's.
    pub(super) counted: bool,
    pub(super) life: Life,
    /// Job control stopped it.
    pub(super) stopped: bool,
}

/// A process and the image it runs.
pub(super) struct Process {
    pub(super) upid: Upid,
    pub(super) parent: Option<Upid>,
    pub(super) image: Arc<Image>,
    /// Costs of the process when the present image began.
    pub(super) before: ProcessCost,
    /// Costs of the threads of this image that are over.
    pub(super) cost: ThreadCost,
    pub(super) total: Option<ProcessCost>,
    pub(super) max_rss_bytes: Option<u64>,
    pub(super) live_threads: usize,
    pub(super) threads: u32,
    pub(super) tracer_ns: u64,
    pub(super) books: Books,
    pub(super) readable: bool,
    /// Our own child before it runs the command: no process of the workflow yet.
    pub(super) launcher: bool,
}

impl Process {
    pub(super) fn new(upid: Upid, parent: Option<Upid>, image: Arc<Image>) -> Self {
        Process {
            upid,
            parent,
            image,
            before: ProcessCost::default(),
            cost: ThreadCost::default(),
            total: None,
            max_rss_bytes: None,
            live_threads: 1,
            threads: 1,
            tracer_ns: 0,
            books: Books::default(),
            readable: true,
            launcher: false,
        }
    }

    pub(super) fn usage(&self) -> Usage {
        let total = self.total.map(|total| total - self.before);
        let cost = self.readable.then_some(self.cost);
        // A task waits for a processor before its maker's event has told of it, so that what it
        // had may be more than the time since: then its life began at least so much earlier.
        let had = cost.map_or(0, |c| c.on_cpu_ns + c.run_queue_ns + self.tracer_ns);
        Usage {
            user_ns: total.map(|t| t.user_ns),
            sys_ns: total.map(|t| t.sys_ns),
            minor_faults: total.map(|t| t.minor_faults),
            major_faults: total.map(|t| t.major_faults),
            on_cpu_ns: cost.map(|c| c.on_cpu_ns),
            run_queue_ns: cost.map(|c| c.run_queue_ns),
            read_calls: cost.map(|c| c.read_calls),
            write_calls: cost.map(|c| c.write_calls),
            read_bytes: cost.map(|c| c.read_bytes),
            write_bytes: cost.map(|c| c.write_bytes),
            voluntary_switches: cost.map(|c| c.voluntary_switches),
            involuntary_switches: cost.map(|c| c.involuntary_switches),
            tracer_ns: Some(self.tracer_ns),
            max_rss_bytes: self.max_rss_bytes,
            threads: Some(self.threads),
            thread_ns: Some(self.books.thread_ns.max(had)),
            block_io_ns: cost.and(self.books.block_io_ns()),
        }
    }
}
