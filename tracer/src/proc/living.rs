//! The living processes of the tree, for sending signals to them.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Updated by the tracer at the begin and end of each process, which it sees before the pid can be used
/// again.
#[derive(Debug, Default)]
pub(crate) struct Living {
    pids: Mutex<BTreeSet<u32>>,
}

impl Living {
    pub(super) fn begins(&self, pid: u32) {
        self.pids().insert(pid);
    }

    pub(super) fn ends(&self, pid: u32) {
        self.pids().remove(&pid);
    }

    /// True if process `pid` lives.
    pub(crate) fn contains(&self, pid: u32) -> bool {
        self.pids().contains(&pid)
    }

    /// All living processes.
    pub(crate) fn all(&self) -> Vec<u32> {
        self.pids().iter().copied().collect()
    }

    /// Sends `signal` to every process.
    pub(crate) fn signal(&self, signal: Signal) {
        for &pid in &*self.pids() {
            // A process that is about to end needs no signal.
            let _ = kill(Pid::from_raw(pid as i32), signal);
        }
    }

    fn pids(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.pids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
