//! Processes: who ran, when, and at what cost.
//!
//! Two ways of knowing: [`lifetimes`] follows a tree of processes by ptrace events and misses
//! none; [`requests`] learns of processes from the file requests they make.

pub(crate) mod environment;
pub(crate) mod lifetimes;
mod living;
pub(crate) mod observer;
mod ptrace;
pub(crate) mod reading;
pub(crate) mod requests;

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use flowtrace_schema::Upid;

pub(crate) use living::Living;
pub(crate) use ptrace::seize;
pub(crate) use reading::{numbers_agree, tracer_of};

/// Hands out process ids of our own, never one twice.
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

/// A descriptor of process `pid` that becomes readable when it ends. `None`: it is gone, or the
/// kernel is older than 5.3.
pub(crate) fn open_pidfd(pid: u32) -> Option<OwnedFd> {
    // SAFETY: the call touches no memory; what it returns is a descriptor of our own.
    #[expect(unsafe_code)]
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
    }
}
