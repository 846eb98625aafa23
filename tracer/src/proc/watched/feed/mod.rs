//! The kernel's reports of processes on their way to the table, in the order of the events.

use std::io;
use std::os::fd::OwnedFd;

use flowtrace_schema::ProcessLayer;

use super::table::Table;
use crate::bpf::tail_call::TailCall;
use crate::bpf::traced_pids::TracedPids;
use crate::proc::tracepoints::{Guard, Reported, Tracepoints};

mod announced;
mod clocks;
mod tracepoints;

use announced::Announced;
use tracepoints::TracepointFeed;

/// Reports that were not handled yet.
pub(crate) enum Feed {
    /// From eBPF programs, with all that can be known.
    Tracepoints(Box<TracepointFeed>),
    /// From the proc connector, and from taskstats where that can be had.
    Announced(Announced),
}

/// eBPF programs that are loaded and do not report yet.
pub(crate) struct Ready(Tracepoints);

impl Ready {
    /// Loads the programs, where that is possible, that report these processes and all that they fork, or all
    /// of the machine; more than lifetimes where that is possible ([`Feed::reports_files`]).
    pub(crate) fn load(processes: Option<TracedPids>, reported: Reported) -> Option<Ready> {
        let all = (reported > Reported::Lifetimes)
            .then(|| Tracepoints::load(processes.clone(), reported).ok());
        let lifetimes = || Tracepoints::load(processes, Reported::Lifetimes).ok();
        all.flatten().or_else(lifetimes).map(Ready)
    }

    /// Begins to report; the program for returns of calls becomes a tail call of `returns`.
    pub(crate) fn begin(self, returns: Option<&TailCall>) -> Option<Feed> {
        let Ready(mut tracepoints) = self;
        tracepoints.begin(returns).ok()?;
        Some(Feed::Tracepoints(Box::new(TracepointFeed::new(
            tracepoints,
        ))))
    }
}

impl Feed {
    /// Starts a guard: if flowtrace is killed, the processes of a command are ended, and the mounts with
    /// these devices. `None`: there are no eBPF programs.
    pub(crate) fn guard(&self, views: &[u64]) -> Option<Guard> {
        match self {
            Feed::Tracepoints(tracepoints) => tracepoints.guard(views),
            Feed::Announced(_) => None,
        }
    }

    /// True if open files are reported, and the calls that open them.
    pub(crate) fn reports_files(&self) -> bool {
        matches!(self, Feed::Tracepoints(tracepoints) if tracepoints.reports_files())
    }

    /// Begins to listen to the kernel's announcements.
    ///
    /// # Errors
    /// When the kernel makes none here.
    pub(super) fn announced() -> io::Result<Feed> {
        Announced::open().map(Feed::Announced)
    }

    pub(super) fn layer(&self) -> ProcessLayer {
        match self {
            Feed::Tracepoints(_) => ProcessLayer::Tracepoints,
            Feed::Announced(_) => ProcessLayer::Connector,
        }
    }

    /// True if the kernel reports the costs of each process.
    pub(super) fn has_costs(&self) -> bool {
        match self {
            Feed::Tracepoints(_) => true,
            Feed::Announced(announced) => announced.has_costs(),
        }
    }

    /// A descriptor that is readable when something was reported, or when there is much of it.
    pub(super) fn signal(&self) -> io::Result<OwnedFd> {
        match self {
            Feed::Tracepoints(tracepoints) => tracepoints.signal(),
            Feed::Announced(announced) => announced.signal(),
        }
    }

    /// Enters all reports until now into `table`.
    pub(super) fn pump(&mut self, table: &mut Table) {
        match self {
            Feed::Tracepoints(tracepoints) => tracepoints.pump(table),
            Feed::Announced(announced) => announced.pump(table),
        }
    }

    /// Counts dropped reports. Returns true if there were some, so that the table may be wrong.
    pub(super) fn count_losses(&mut self, table: &Table) -> bool {
        match self {
            Feed::Tracepoints(tracepoints) => tracepoints.count_losses(table),
            Feed::Announced(announced) => announced.count_losses(table),
        }
    }

    /// Finds processes that only one of several sources knows. To be called after [`Feed::pump`], now and
    /// then.
    pub(super) fn sweep(&mut self, table: &mut Table) {
        if let Feed::Announced(announced) = self {
            announced.sweep(table);
        }
    }
}
