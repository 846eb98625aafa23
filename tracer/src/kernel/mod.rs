//! The kernel layer: the kernel serves the data of traced files itself (FUSE passthrough), and tracepoints
//! report the calls that moved it, with no stop and no copy through this process.
//!
//! ```text
//! rings, one for each CPU ----decode--> samples --+
//! processes, files (feed) ------------- changes --+--by time--+-> calls: rows of files, sums of channels
//! FUSE opens (opens) -------------------- notes --+           +-> waits: running, runnable, blocked
//! ```
//!
//! [`programs`] talks to the kernel. [`merge`] puts the samples of all CPUs in the order of time. [`calls`] joins
//! entries and returns; an entry names the file that the call uses. [`waits`] derives the state of each thread at
//! any time from the records of the scheduler. Opens, closes and names are still recorded by FUSE.

mod by_id;
mod calls;
mod channel_rows;
mod feed;
mod merge;
mod priority_boost;
mod programs;
mod reader;
mod ring_size;
mod sample;
mod state;
mod syscalls;
mod traffic;
mod waits;

pub(crate) use feed::FoundFiles;
pub(crate) use programs::{CallSource, Scheduler};
pub(crate) use reader::{KernelLayer, Selection};

use std::io;

use crate::bpf::traced_pids::TracedPids;

/// The way in which this process can record calls by tracepoints here, found by trying it on itself.
///
/// # Errors
/// The reason why it cannot.
pub(crate) fn try_tracepoints() -> io::Result<&'static str> {
    CallSource::open(&TracedPids::below(std::process::id())?, Some(0))?;
    Ok("tracepoints, read by eBPF programs")
}
