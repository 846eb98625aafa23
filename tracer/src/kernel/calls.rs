//! Who tells of calls.

use std::io;
use std::os::fd::BorrowedFd;

use super::dropped::Dropped;
use super::perf::{self, Ring, Rings};
use super::programs::{Options, Programs};
use crate::bpf::tail_call::TailCall;
use crate::bpf::traced_pids::TracedPids;

/// Environment variable: set, calls are told by perf's rings though programs could.
const BY_PERF: &str = "FLOWTRACE_CALLS_BY_PERF";
/// Environment variable: set, nobody is held back when rings fill up.
const MAY_DROP: &str = "FLOWTRACE_CALLS_MAY_DROP";

/// See the module.
pub(crate) enum CallSource {
    Perf(Box<Rings>),
    Programs(Programs),
}

impl CallSource {
    /// Of process `pid`, which has not run its program yet, and of all that it will fork, of whom is told while they are held; `blocking`:
    /// also of those that may block. By programs in the kernel; by perf's rings where they are refused, or that is asked for.
    ///
    /// # Errors
    /// When neither is to be had.
    pub(crate) fn of_ptraced(pid: u32, blocking: bool) -> io::Result<CallSource> {
        let size = perf::size_of_rings()?;
        let options = Options {
            size,
            blocking,
            throttles: !is_set(MAY_DROP),
            are_named: false,
        };
        let programs = || Programs::open(TracedPids::below(pid)?, options);
        if !are_by_perf()
            && let Ok(programs) = programs()
        {
            return Ok(CallSource::Programs(programs));
        }
        let rings = Rings::open(pid, size, blocking)?;
        Ok(CallSource::Perf(Box::new(rings)))
    }

    /// Of those that other programs follow. What these tell of a call must come after what is told here, so they are to be attached later.
    ///
    /// # Errors
    /// When programs are refused, or not wanted.
    pub(crate) fn of_traced(traced: TracedPids, blocking: bool) -> io::Result<CallSource> {
        if are_by_perf() {
            return Err(io::Error::other("perf's rings are to tell of calls"));
        }
        let options = Options {
            size: perf::size_of_rings()?,
            blocking,
            throttles: false,
            are_named: true,
        };
        Programs::open(traced, options).map(CallSource::Programs)
    }

    /// What is run after each return of a call.
    pub(crate) fn tail_call(&self) -> Option<&TailCall> {
        match self {
            CallSource::Perf(_) => None,
            CallSource::Programs(programs) => Some(programs.tail_call()),
        }
    }

    /// Others tell of calls that do nothing but perhaps block.
    pub(super) fn leave_out_blocking(&self) {
        if let CallSource::Programs(programs) = self {
            programs.leave_out_blocking();
        }
    }

    /// True if it reports the descriptors in messages.
    pub(super) fn reports_messages(&self) -> bool {
        matches!(self, CallSource::Programs(_))
    }

    /// Who is to be told of processes; `None`: nobody needs to.
    pub(super) fn processes(&self) -> Option<TracedPids> {
        match self {
            CallSource::Perf(_) => None,
            CallSource::Programs(programs) => programs.processes(),
        }
    }

    /// Whether whoever changes is held until that was told.
    pub(super) fn are_of_ptraced(&self) -> bool {
        match self {
            CallSource::Perf(_) => true,
            CallSource::Programs(programs) => programs.processes().is_some(),
        }
    }

    /// Whether whoever fills the rings is to be held back by who empties them.
    pub(super) fn needs_throttle(&self) -> bool {
        !self.are_of_ptraced() && !is_set(MAY_DROP)
    }

    pub(super) fn rings(&self) -> &[Ring] {
        match self {
            CallSource::Perf(rings) => &rings.rings,
            CallSource::Programs(_) => &[],
        }
    }

    /// Whether the rings fill so fast that they are to be emptied at once again; perf's say so themselves.
    pub(super) fn fill_fast(&self) -> bool {
        /// Of a ring, at a look.
        const MUCH: f64 = 0.375;
        matches!(self, CallSource::Programs(programs) if programs.used() > MUCH)
    }

    /// All that holds the tracepoints open.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            CallSource::Perf(rings) => rings.descriptors().collect(),
            CallSource::Programs(programs) => programs.descriptors().collect(),
        }
    }

    pub(super) fn lost_entries(&self) -> Dropped {
        match self {
            CallSource::Perf(rings) => rings.lost_entries(),
            CallSource::Programs(programs) => programs.lost_entries(),
        }
    }
}

/// Whether perf's rings are asked for.
pub(super) fn are_by_perf() -> bool {
    is_set(BY_PERF)
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}
