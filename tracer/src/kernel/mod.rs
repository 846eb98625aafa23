//! The kernel layer: the kernel serves the data of traced files itself (FUSE passthrough), and tracepoints
//! report the calls that moved it, with no stop and no copy through this process.
//!
//! ```text
//! rings, one for each CPU ----decode--> samples --+
//! processes (feed) -------------------- changes --+--by time--+-> follow: descriptor tables --> calls
//! FUSE opens (opens) -------------------- notes --+           +-> waits: running, runnable, blocked
//! ```
//!
//! [`programs`] talks to the kernel. [`merge`] puts the samples of all CPUs in the order of time. [`follow`]
//! joins calls to files by the descriptors of each process ([`table`]). [`waits`] derives the state of each
//! thread at any time from the records of the scheduler. Opens, closes and names are still recorded by FUSE.

mod backpressure;
mod by_id;
mod channel_rows;
mod dropped;
mod feed;
mod follow;
mod merge;
mod open_file;
mod priority_boost;
mod programs;
mod reader;
mod ring_size;
mod sample;
mod state;
mod strangers;
mod syscalls;
mod table;
mod throttle;
mod traffic;
mod waits;

pub(crate) use feed::{Descriptions, Inherited};
pub(crate) use programs::{CallSource, Scheduler};
pub(crate) use reader::{KernelLayer, Watched};

use std::io;

use crate::bpf::traced_pids::TracedPids;

/// The way in which this process can record calls by tracepoints here, found by trying it on itself.
///
/// # Errors
/// The reason why it cannot.
pub(crate) fn try_tracepoints() -> io::Result<&'static str> {
    let own = std::process::id();
    let options = programs::Options {
        size: ring_size::SMALLEST,
        blocking: false,
        throttles: false,
        are_named: false,
    };
    CallSource::open(TracedPids::below(own)?, options)?;
    Ok("tracepoints, read by eBPF programs")
}
