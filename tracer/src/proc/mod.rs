//! Processes: who ran, when, and at what cost.
//!
//! Processes are seen in two ways: [`lifetimes`] traces a tree of processes by ptrace events and misses none;
//! [`watched`] combines what is known without ptrace: from eBPF programs ([`tracepoints`]) or the kernel's
//! announcements ([`connector`], [`taskstats`]), from /proc, and from the file requests of processes.

pub(crate) mod channels;
pub(crate) mod children;
pub(crate) mod confined;
mod connector;
mod costs;
pub(crate) mod descriptors;
pub(crate) mod environment;
mod exec_reads;
pub(crate) mod fd_tracker;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod inherited;
pub(crate) mod lifetimes;
pub(crate) mod links;
mod living;
pub(crate) mod near;
pub(crate) mod netlink;
pub(crate) mod observer;
mod pidfd;
mod pipe_content;
mod ptrace;
pub(crate) mod reading;
pub(crate) mod rings;
pub(crate) mod sampler;
pub(crate) mod snapshot;
mod taskstats;
pub(crate) mod topology;
pub(crate) mod tracepoints;
pub(crate) mod unmounted;
pub(crate) mod views;
pub(crate) mod watched;

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use flowtrace_schema::Upid;

use crate::bpf::traced_pids::TracedPids;

pub(crate) use living::Living;
pub(crate) use pidfd::PidFd;
pub(crate) use ptrace::seize;
pub(crate) use reading::{numbers_agree, tracer_of};

/// Checks that eBPF programs can report processes here.
///
/// # Errors
/// The reason why they cannot.
pub(crate) fn try_tracepoints() -> io::Result<()> {
    let own = TracedPids::below(std::process::id())?;
    tracepoints::Tracepoints::open(Some(own), tracepoints::Reported::Files).map(drop)
}

/// Checks that the kernel announces processes here.
///
/// # Errors
/// The reason why it does not.
pub(crate) fn try_connector() -> io::Result<()> {
    connector::Connector::open().map(drop)
}

/// Checks that the kernel reports here what processes used.
///
/// # Errors
/// The reason why it does not.
pub(crate) fn try_taskstats() -> io::Result<()> {
    taskstats::Taskstats::open().map(drop)
}

/// Generates upids; each is given once.
#[derive(Debug)]
pub(crate) struct Upids(AtomicU32);

impl Upids {
    pub(crate) fn new() -> Self {
        Upids(AtomicU32::new(1))
    }

    pub(crate) fn next(&self) -> Upid {
        Upid(self.0.fetch_add(1, Ordering::Relaxed))
    }
}
