//! What the kernel tells of processes, on its way to the table, in the order in which it happened.

use std::io;
use std::os::fd::OwnedFd;

use flowtrace_schema::ProcessLayer;

use super::table::Table;
use crate::bpf::tail_call::TailCall;
use crate::bpf::traced_pids::TracedPids;
use crate::proc::tracepoints::{Guard, Tracepoints};

mod announced;
mod clocks;
mod tracepoints;

use announced::Announced;
use tracepoints::TracepointFeed;

/// Environment variable: set, programs are not asked though they could tell.
const BY_CONNECTOR: &str = "FLOWTRACE_PROCESSES_BY_CONNECTOR";

/// What was told and not handled yet.
pub(crate) enum Feed {
    /// By programs of ours, with all that can be known.
    Tracepoints(Box<TracepointFeed>),
    /// By the proc connector, and taskstats where that may be had.
    Announced(Announced),
}

/// Programs of ours that are to tell.
pub(crate) struct Ready(Tracepoints);

impl Ready {
    /// Those, where they may be had, that tell of these processes and all that they fork, or of all of the machine; `with_tables`: also
    /// of what processes have open, where that can be told ([`Feed::contents`] says so).
    pub(crate) fn load(processes: Option<TracedPids>, with_tables: bool) -> Option<Ready> {
        if std::env::var_os(BY_CONNECTOR).is_some() {
            return None;
        }
        let all = with_tables.then(|| Tracepoints::load(processes.clone(), true).ok());
        let lifetimes = || Tracepoints::load(processes, false).ok();
        all.flatten().or_else(lifetimes).map(Ready)
    }

    /// Listens to them from now on; what is run when a call returns is the successor of that.
    pub(crate) fn begin(self, returns: Option<&TailCall>) -> Option<Feed> {
        let Ready(mut tracepoints) = self;
        tracepoints.begin(returns).ok()?;
        Some(Feed::Tracepoints(Box::new(TracepointFeed::new(
            tracepoints,
        ))))
    }
}

impl Feed {
    /// Has the processes of a command, and the views with these devices, end with us, should we be killed, where processes are
    /// told of.
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

    /// The same to the kernel's announcements.
    ///
    /// # Errors
    /// When it makes none here.
    pub(super) fn announced() -> io::Result<Feed> {
        Announced::open().map(Feed::Announced)
    }

    pub(super) fn layer(&self) -> ProcessLayer {
        match self {
            Feed::Tracepoints(_) => ProcessLayer::Tracepoints,
            Feed::Announced(_) => ProcessLayer::Connector,
        }
    }

    /// Whether the kernel tells what each process used.
    pub(super) fn has_costs(&self) -> bool {
        match self {
            Feed::Tracepoints(_) => true,
            Feed::Announced(announced) => announced.has_costs(),
        }
    }

    /// A descriptor that is readable when something was told, or when there is much of it.
    pub(super) fn signal(&self) -> io::Result<OwnedFd> {
        match self {
            Feed::Tracepoints(tracepoints) => tracepoints.signal(),
            Feed::Announced(announced) => announced.signal(),
        }
    }

    /// Tells `table` all that was told until now.
    pub(super) fn pump(&mut self, table: &mut Table) {
        match self {
            Feed::Tracepoints(tracepoints) => tracepoints.pump(table),
            Feed::Announced(announced) => announced.pump(table),
        }
    }

    /// Counts what was dropped. True: there was something, and the table may be wrong.
    pub(super) fn count_losses(&mut self, table: &Table) -> bool {
        match self {
            Feed::Tracepoints(tracepoints) => tracepoints.count_losses(table),
            Feed::Announced(announced) => announced.count_losses(table),
        }
    }

    /// Looks for what only one of several sources knows. To be called after [`Feed::pump`], now and then.
    pub(super) fn sweep(&mut self, table: &mut Table) {
        if let Feed::Announced(announced) = self {
            announced.sweep(table);
        }
    }
}
