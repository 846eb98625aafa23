//! The source of records of calls.

use std::io;
use std::os::fd::BorrowedFd;

use super::dropped::Dropped;
use super::perf;
use super::programs::{Options, Programs};
use super::sample::Sample;
use crate::bpf::tail_call::TailCall;
use crate::bpf::traced_pids::TracedPids;

/// Environment variable: if set, threads are not throttled when rings fill up.
const MAY_DROP: &str = "FLOWTRACE_CALLS_MAY_DROP";

/// Records of calls by eBPF programs.
pub(crate) struct CallSource(Programs);

impl CallSource {
    /// Records the calls of process `pid`, which has not run its program yet, and of all that it will fork,
    /// where each process is stopped by ptrace when it is reported; `blocking`: also calls that may block.
    ///
    /// # Errors
    /// When the kernel refuses the programs.
    pub(crate) fn of_ptraced(pid: u32, blocking: bool) -> io::Result<CallSource> {
        let options = Options {
            size: perf::size_of_rings()?,
            blocking,
            throttles: !may_drop(),
            are_named: false,
        };
        Programs::open(TracedPids::below(pid)?, options).map(CallSource)
    }

    /// Records the calls of processes that other eBPF programs trace. Their reports of a call must come after
    /// the records made here, so they are to be attached later.
    ///
    /// # Errors
    /// When the kernel refuses the programs.
    pub(crate) fn of_traced(traced: TracedPids, blocking: bool) -> io::Result<CallSource> {
        let options = Options {
            size: perf::size_of_rings()?,
            blocking,
            throttles: false,
            are_named: true,
        };
        Programs::open(traced, options).map(CallSource)
    }

    /// The tail call after each return of a call.
    pub(crate) fn tail_call(&self) -> &TailCall {
        self.0.tail_call()
    }

    /// Other records have the calls that only may block.
    pub(super) fn leave_out_blocking(&self) {
        self.0.leave_out_blocking();
    }

    /// The map that processes are to be entered into; `None`: that is not needed.
    pub(super) fn processes(&self) -> Option<TracedPids> {
        self.0.processes()
    }

    /// True if each process is stopped by ptrace until its changes are reported.
    pub(super) fn are_of_ptraced(&self) -> bool {
        self.0.processes().is_some()
    }

    /// True if threads that fill the rings are to be throttled by the reader.
    pub(super) fn needs_throttle(&self) -> bool {
        !self.are_of_ptraced() && !may_drop()
    }

    /// Calls `take` with the waiting records. Returns how many were dropped since the last time.
    pub(super) fn drain(&mut self, take: impl FnMut(Sample)) -> u64 {
        self.0.drain(take)
    }

    /// True if the rings fill so fast that they are to be emptied at once again.
    pub(super) fn fill_fast(&self) -> bool {
        /// Used fraction of a ring at a read.
        const MUCH: f64 = 0.375;
        self.0.used() > MUCH
    }

    /// All descriptors that keep the tracepoints open.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.0.descriptors().collect()
    }

    pub(super) fn lost_entries(&self) -> Dropped {
        self.0.lost_entries()
    }
}

fn may_drop() -> bool {
    std::env::var_os(MAY_DROP).is_some_and(|value| !value.is_empty())
}
