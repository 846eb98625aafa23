//! The kernel layer: eBPF programs record the calls on open files, pipes and sockets, with no stop, and the states of
//! threads. Nothing is mounted. Calls on names are recorded with the processes ([`crate::proc::unmounted`]).
//!
//! ```text
//! rings, one for each CPU ----decode--> samples --+--by time--+-> calls: rows of files, sums of channels
//! processes, files (feed) ------------- changes --+           +-> waits: running, runnable, blocked
//! ```
//!
//! [`programs`] talks to the kernel. [`crate::merge`] puts the samples of all CPUs in the order of time. [`calls`] joins
//! entries and returns; an entry names the file that the call uses. [`waits`] derives the state of each thread at
//! any time from the records of the scheduler.

mod by_id;
mod calls;
mod channel_rows;
mod feed;
mod priority_boost;
mod programs;
mod reader;
mod ring_size;
mod sample;
mod sizes;
mod state;
mod syscalls;
mod traffic;
mod waits;

pub(crate) use feed::FoundFiles;
pub(crate) use programs::{CallSource, Scheduler};
pub(crate) use reader::{KernelLayer, Selection};

use std::io;

use crate::bpf::traced_pids::TracedPids;

/// Tries on this process to record calls by eBPF programs.
///
/// # Errors
/// The reason why they cannot be recorded.
pub(crate) fn try_calls() -> io::Result<()> {
    CallSource::open(&TracedPids::below(std::process::id())?, Some(0)).map(drop)
}
