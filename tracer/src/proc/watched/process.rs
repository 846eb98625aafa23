//! What is kept of a process while it lives.

use std::sync::Arc;

use flowtrace_schema::{Origin, Upid, Usage};

use super::super::pidfd::PidFd;
use super::super::reading::{Image, ProcessCost, ProcessStat, ThreadCost};
use super::super::taskstats::Costs;

/// A live process of the machine, be it recorded or not.
pub(super) struct Process {
    /// Id of the process that forked it; where it was found in /proc, of the one that it is a
    /// child of now.
    pub(super) parent: u32,
    /// When it started, in ticks since boot: with the pid, who it is.
    pub(super) start_ticks: u64,
    /// How and when the image that it runs began.
    pub(super) origin: Origin,
    pub(super) start_ns: u64,
    /// Address of the program, by which an exec is noticed where none is announced.
    pub(super) start_code: u64,
    /// Whether what it forks is recorded.
    pub(super) followed: bool,
    /// What is recorded of it.
    pub(super) row: Option<Row>,
    pub(super) live_threads: u32,
    /// Threads beside the first that were there before we were: their ids are not known.
    pub(super) unlisted_threads: u32,
    /// As announced of the thread that ended last.
    pub(super) wait_status: Option<i32>,
    /// As waited for by us.
    pub(super) reaped: Option<i32>,
    /// What it had used before its row began.
    pub(super) before: Costs,
    /// What /proc said last that it used.
    pub(super) sampled: Option<ProcessCost>,
}

/// The image that a recorded process runs.
pub(super) struct Row {
    pub(super) upid: Upid,
    pub(super) parent: Option<Upid>,
    pub(super) prev: Option<Upid>,
    pub(super) image: Arc<Image>,
    /// The row whose image is this one's, too, and is still to be read: what is recorded of both
    /// is held until then.
    pub(super) awaits: Option<Upid>,
    /// Names this process when its pid is another one's.
    pub(super) pidfd: Option<PidFd>,
}

impl Process {
    pub(super) fn new(parent: u32, start_ticks: u64, origin: Origin, start_ns: u64) -> Process {
        Process {
            parent,
            start_ticks,
            origin,
            start_ns,
            start_code: 0,
            followed: false,
            row: None,
            live_threads: 1,
            unlisted_threads: 0,
            wait_status: None,
            reaped: None,
            before: Costs::default(),
            sampled: None,
        }
    }

    /// Whether a process of the same pid that started at `ticks` is this one. Announced times are
    /// taken a moment after those in /proc, and a pid does not come back within a few ticks.
    pub(super) fn started_at(&self, ticks: u64) -> bool {
        self.start_ticks.abs_diff(ticks) <= 3
    }

    /// What the present image used, from all that its process used in the end. Without a record
    /// of the kernel there is what /proc said last.
    pub(super) fn usage(&self, total: Option<&Costs>) -> Usage {
        let before = &self.before;
        if let Some(total) = total {
            let since = |now: u64, then: u64| Some(now.saturating_sub(then));
            return Usage {
                user_ns: since(total.user_ns, before.user_ns),
                sys_ns: since(total.sys_ns, before.sys_ns),
                on_cpu_ns: since(total.on_cpu_ns, before.on_cpu_ns),
                run_queue_ns: since(total.run_queue_ns, before.run_queue_ns),
                minor_faults: since(total.minor_faults, before.minor_faults),
                major_faults: since(total.major_faults, before.major_faults),
                voluntary_switches: since(total.voluntary_switches, before.voluntary_switches),
                involuntary_switches: since(
                    total.involuntary_switches,
                    before.involuntary_switches,
                ),
                max_rss_bytes: Some(total.max_rss_bytes),
                threads: Some(total.threads.saturating_sub(before.threads)),
                ..Usage::default()
            };
        }
        let since = |field: fn(&ProcessCost) -> u64, then: u64| {
            self.sampled
                .as_ref()
                .map(|now| field(now).saturating_sub(then))
        };
        Usage {
            user_ns: since(|cost| cost.user_ns, before.user_ns),
            sys_ns: since(|cost| cost.sys_ns, before.sys_ns),
            minor_faults: since(|cost| cost.minor_faults, before.minor_faults),
            major_faults: since(|cost| cost.major_faults, before.major_faults),
            ..Usage::default()
        }
    }
}

/// What process `pid` used so far, of which `ended` are its threads that are over. Exact but for
/// live threads beside the first.
pub(super) fn costs_so_far(pid: u32, ended: &Costs) -> Option<Costs> {
    let process = ProcessStat::of(pid)?.cost();
    let (thread, _) = ThreadCost::of(pid, pid)?;
    Some(Costs {
        user_ns: process.user_ns,
        sys_ns: process.sys_ns,
        minor_faults: process.minor_faults,
        major_faults: process.major_faults,
        on_cpu_ns: ended.on_cpu_ns.saturating_add(thread.on_cpu_ns),
        run_queue_ns: ended.run_queue_ns.saturating_add(thread.run_queue_ns),
        voluntary_switches: ended
            .voluntary_switches
            .saturating_add(thread.voluntary_switches),
        involuntary_switches: ended
            .involuntary_switches
            .saturating_add(thread.involuntary_switches),
        max_rss_bytes: 0,
        threads: ended.threads,
    })
}
