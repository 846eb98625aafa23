//! State of a process while it lives.

use std::sync::Arc;

use flowtrace_schema::{Origin, Upid, Usage};

use super::super::costs::{Costs, Io};
use super::super::pidfd::PidFd;
use super::super::reading::{Image, ProcessCost, ProcessStat, ThreadCost};

/// Kind of the end of an image.
#[derive(Clone, Copy)]
pub(super) enum End {
    Exec,
    /// An exit with this wait status, if that is known.
    Exit(Option<i32>),
}

/// A live process of the machine, recorded or not.
pub(super) struct Process {
    /// Id of the process that forked it; if it was found in /proc, of its present parent.
    pub(super) parent: u32,
    /// Start in ticks since boot; with the pid, the identity of the process.
    pub(super) start_ticks: u64,
    /// Kind and time of the begin of its image.
    pub(super) origin: Origin,
    pub(super) start_ns: u64,
    /// Address of the program, by which an exec is noticed where none is announced.
    pub(super) start_code: u64,
    /// True if its children are recorded.
    pub(super) followed: bool,
    /// Its image, if that was reported.
    pub(super) image: Option<Arc<Image>>,
    /// Its row in the trace.
    pub(super) row: Option<Row>,
    pub(super) live_threads: u32,
    /// Threads that its image has had.
    pub(super) threads: u32,
    /// Threads other than the first that existed before flowtrace listened: their ids are not known.
    pub(super) unlisted_threads: u32,
    /// Wait status as announced for the thread that ended last.
    pub(super) wait_status: Option<i32>,
    /// Wait status from our own wait.
    pub(super) reaped: Option<i32>,
    /// Costs before its row began.
    pub(super) before: Costs,
    /// Its pid in a pid namespace of its own.
    pub(super) inner_pid: Option<u32>,
    /// Total life in this image of those threads that are over; true if the first is one of them.
    pub(super) lived_ns: u64,
    pub(super) first_is_over: bool,
    /// Costs of the last reading of /proc.
    pub(super) sampled: Option<ProcessCost>,
}

/// The image that a recorded process runs.
pub(super) struct Row {
    pub(super) upid: Upid,
    pub(super) parent: Option<Upid>,
    pub(super) prev: Option<Upid>,
    pub(super) image: Arc<Image>,
    /// Image that stands for this one in the record of environment variables.
    pub(super) environment: Option<Upid>,
    /// The row with the same image, which is still to be read: records of both are kept until then.
    pub(super) awaits: Option<Upid>,
    /// Identifies this process even when its pid is used again.
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
            image: None,
            row: None,
            live_threads: 1,
            threads: 1,
            unlisted_threads: 0,
            wait_status: None,
            reaped: None,
            before: Costs::default(),
            inner_pid: None,
            lived_ns: 0,
            first_is_over: false,
            sampled: None,
        }
    }

    /// A thread, which began at `since` or with the process, is over, or over with the image.
    pub(super) fn lived(&mut self, since: Option<u64>, at: u64) {
        let since = since.unwrap_or(0).max(self.start_ns);
        self.lived_ns = self.lived_ns.saturating_add(at.saturating_sub(since));
    }

    /// True if a process of the same pid that started at `ticks` is this one. Announced times are taken a
    /// little after those in /proc, and a pid does not come back within a few ticks.
    pub(super) fn started_at(&self, ticks: u64) -> bool {
        self.start_ticks.abs_diff(ticks) <= 3
    }

    /// Costs of the present image, from the costs of its process at the end. Without a record of the kernel,
    /// the last reading of /proc counts.
    pub(super) fn usage(&self, total: Option<&Costs>) -> Usage {
        let before = &self.before;
        if let Some(total) = total {
            let since = |now: u64, then: u64| Some(now.saturating_sub(then));
            let io = |field: fn(&Io) -> u64| {
                let then = before.io.as_ref().map_or(0, field);
                Some(field(total.io.as_ref()?).saturating_sub(then))
            };
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
                read_calls: io(|io| io.read_calls),
                write_calls: io(|io| io.write_calls),
                read_bytes: io(|io| io.read_bytes),
                write_bytes: io(|io| io.write_bytes),
                max_rss_bytes: Some(total.max_rss_bytes).filter(|&peak| peak > 0),
                // taskstats counts only threads that have ended.
                threads: Some(match total.io {
                    Some(_) => self.threads,
                    None => total.threads.saturating_sub(before.threads),
                }),
                tracer_ns: total.io.map(|_| 0),
                // The time accounting is complete only where all is reported.
                thread_ns: total.io.map(|_| {
                    let had = total.on_cpu_ns.saturating_add(total.run_queue_ns);
                    let had = had.saturating_sub(before.on_cpu_ns + before.run_queue_ns);
                    self.lived_ns.max(had)
                }),
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

/// Costs of process `pid` so far, of which `ended` are those of its threads that are over. Exact except for
/// live threads other than the first.
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
        io: None,
        max_rss_bytes: 0,
        threads: ended.threads,
    })
}
