//! State of each thread and process while it lives, and its costs at the end.

use std::sync::Arc;

use flowtrace_schema::{Upid, Usage};

use super::super::reading::{Account, CostFiles, Image, ProcessCost, Status, ThreadCost};
use super::time_accounting::{Life, TimeAccounting};

/// A thread.
pub(super) struct Task {
    pub(super) process: u32,
    pub(super) start_ns: u64,
    /// Its costs when the present image began; it may be older than that.
    pub(super) before: ThreadCost,
    /// True if it has announced its exit, and its costs are in those of its process.
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
    /// Image that stands for this one in the record of environment variables.
    pub(super) environment: Option<Upid>,
    /// Costs of the process when the present image began.
    pub(super) before: ProcessCost,
    /// Costs of the threads of this image that are over.
    pub(super) cost: ThreadCost,
    /// Costs of the process in all its images.
    pub(super) total: Option<ProcessCost>,
    /// True if no child was ever forked in any image. The kernel's account of the process is then its own
    /// alone, to the µs, and complete where it is reaped.
    pub(super) childless: bool,
    /// True if there was never a second thread in any image either.
    pub(super) lone: bool,
    /// True if its pid in its own namespace is known to be the one that we see.
    pub(super) numbered_as_here: bool,
    /// True if it may have chosen another pid namespace for its children.
    pub(super) numbers_children: bool,
    /// Most resident memory of the images before this one.
    pub(super) max_rss_before: u64,
    pub(super) status: Status,
    pub(super) live_threads: usize,
    pub(super) threads: u32,
    pub(super) tracer_ns: u64,
    pub(super) time: TimeAccounting,
    pub(super) readable: bool,
    /// Files of its costs, open since its exec while few processes live. They are closed with it, when nobody
    /// waits for that.
    pub(super) files: Option<CostFiles>,
    /// File mode creation mask that it or an ancestor set; `None`: that of the first program.
    pub(super) umask: Option<u32>,
    /// True if it runs a program that traces others.
    pub(super) traces: bool,
    /// True for our own child before it runs the command: no process of the workflow yet.
    pub(super) launcher: bool,
}

impl Process {
    pub(super) fn new(upid: Upid, parent: Option<Upid>, image: Arc<Image>) -> Self {
        Process {
            upid,
            parent,
            image,
            environment: None,
            before: ProcessCost::default(),
            cost: ThreadCost::default(),
            total: None,
            childless: true,
            lone: true,
            numbered_as_here: false,
            numbers_children: false,
            max_rss_before: 0,
            status: Status::default(),
            live_threads: 1,
            threads: 1,
            tracer_ns: 0,
            time: TimeAccounting::default(),
            readable: true,
            files: None,
            umask: None,
            traces: false,
            launcher: false,
        }
    }

    /// Costs of thread `tid` so far, and the rest of the costs of its process `pid`, of which the kernel has
    /// just reported `used`. Opens as few files as possible.
    pub(super) fn read_cost(
        &mut self,
        pid: u32,
        tid: u32,
        used: &Account,
    ) -> Option<(ThreadCost, Status)> {
        if !(self.lone && self.childless && tid == pid) {
            return ThreadCost::of(pid, tid);
        }
        let files = match self.files.take() {
            Some(files) => files,
            None => CostFiles::open(pid)?,
        };
        let cost = self.files.insert(files).cost(used)?;
        // A peak above that of all former images is this image's.
        let status = if self.numbered_as_here && used.max_rss_bytes > self.max_rss_before {
            Status {
                max_rss_bytes: Some(used.max_rss_bytes),
                inner_pid: None,
            }
        } else {
            Status::of(pid)?
        };
        Some((cost, status))
    }

    pub(super) fn usage(&self) -> Usage {
        let total = self.total.map(|total| total - self.before);
        let cost = self.readable.then_some(self.cost);
        // The costs of a thread after its last stop (it gives back its memory) are only in the total.
        let exact = total.filter(|_| self.childless);
        let exact = exact.map(|t| t.user_ns.saturating_add(t.sys_ns));
        let on_cpu_ns = cost.map(|c| c.on_cpu_ns).max(exact);
        // A task waits for a CPU before its maker's event is reported, so its waits may exceed the time
        // since: its life began at least so much earlier.
        let had = on_cpu_ns.unwrap_or(0)
            + cost.map_or(0, |c| c.run_queue_ns)
            + on_cpu_ns.map_or(0, |_| self.tracer_ns);
        Usage {
            user_ns: total.map(|t| t.user_ns),
            sys_ns: total.map(|t| t.sys_ns),
            minor_faults: total.map(|t| t.minor_faults),
            major_faults: total.map(|t| t.major_faults),
            on_cpu_ns,
            run_queue_ns: cost.map(|c| c.run_queue_ns),
            read_calls: cost.map(|c| c.read_calls),
            write_calls: cost.map(|c| c.write_calls),
            read_bytes: cost.map(|c| c.read_bytes),
            write_bytes: cost.map(|c| c.write_bytes),
            voluntary_switches: cost.map(|c| c.voluntary_switches),
            involuntary_switches: cost.map(|c| c.involuntary_switches),
            tracer_ns: Some(self.tracer_ns),
            max_rss_bytes: self.status.max_rss_bytes,
            threads: Some(self.threads),
            thread_ns: Some(self.time.thread_ns.max(had)),
            block_io_ns: cost.and(self.time.block_io_ns()),
        }
    }
}
