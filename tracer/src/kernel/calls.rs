//! Sources of records of calls.

use std::io;
use std::os::fd::BorrowedFd;

use super::dropped::Dropped;
use super::perf::{self, Ring, Rings};
use super::programs::{Options, Programs};
use crate::bpf::tail_call::TailCall;
use crate::bpf::traced_pids::TracedPids;

/// Environment variable: if set, calls are recorded by perf's rings though eBPF programs could.
const BY_PERF: &str = "FLOWTRACE_CALLS_BY_PERF";
/// Environment variable: if set, threads are not throttled when rings fill up.
const MAY_DROP: &str = "FLOWTRACE_CALLS_MAY_DROP";

/// A source of records of calls.
pub(crate) enum CallSource {
    Perf(Box<Rings>),
    Programs(Programs),
}

impl CallSource {
    /// Records the calls of process `pid`, which has not run its program yet, and of all that it will fork,
    /// where each process is stopped by ptrace when it is reported; `blocking`: also calls that may block.
    /// Uses eBPF programs, or perf's rings where programs are refused, or perf is asked for.
    ///
    /// # Errors
    /// When neither is possible.
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

    /// Records the calls of processes that other eBPF programs trace. Their reports of a call must come after
    /// the records made here, so they are to be attached later.
    ///
    /// # Errors
    /// When programs are refused, or perf is asked for.
    pub(crate) fn of_traced(traced: TracedPids, blocking: bool) -> io::Result<CallSource> {
        if are_by_perf() {
            return Err(io::Error::other("calls are to be recorded by perf's rings"));
        }
        let options = Options {
            size: perf::size_of_rings()?,
            blocking,
            throttles: false,
            are_named: true,
        };
        Programs::open(traced, options).map(CallSource::Programs)
    }

    /// The tail call after each return of a call.
    pub(crate) fn tail_call(&self) -> Option<&TailCall> {
        match self {
            CallSource::Perf(_) => None,
            CallSource::Programs(programs) => Some(programs.tail_call()),
        }
    }

    /// Other records have the calls that only may block.
    pub(super) fn leave_out_blocking(&self) {
        if let CallSource::Programs(programs) = self {
            programs.leave_out_blocking();
        }
    }

    /// True if it reports the descriptors in messages.
    pub(super) fn reports_messages(&self) -> bool {
        matches!(self, CallSource::Programs(_))
    }

    /// The map that processes are to be entered into; `None`: that is not needed.
    pub(super) fn processes(&self) -> Option<TracedPids> {
        match self {
            CallSource::Perf(_) => None,
            CallSource::Programs(programs) => programs.processes(),
        }
    }

    /// True if each process is stopped by ptrace until its changes are reported.
    pub(super) fn are_of_ptraced(&self) -> bool {
        match self {
            CallSource::Perf(_) => true,
            CallSource::Programs(programs) => programs.processes().is_some(),
        }
    }

    /// True if threads that fill the rings are to be throttled by the reader.
    pub(super) fn needs_throttle(&self) -> bool {
        !self.are_of_ptraced() && !is_set(MAY_DROP)
    }

    pub(super) fn rings(&self) -> &[Ring] {
        match self {
            CallSource::Perf(rings) => &rings.rings,
            CallSource::Programs(_) => &[],
        }
    }

    /// True if the rings fill so fast that they are to be emptied at once again; perf's rings signal that
    /// themselves.
    pub(super) fn fill_fast(&self) -> bool {
        /// Used fraction of a ring at a read.
        const MUCH: f64 = 0.375;
        matches!(self, CallSource::Programs(programs) if programs.used() > MUCH)
    }

    /// All descriptors that keep the tracepoints open.
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

/// True if perf's rings are asked for.
pub(super) fn are_by_perf() -> bool {
    is_set(BY_PERF)
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}
