//! Records the actions of a workflow: file calls through a FUSE passthrough filesystem ([`fs`]) and process
//! lifetimes through ptrace events or eBPF programs. Records go to the writer of [`flowtrace_schema`].
//!
//! Invariants:
//! - it records and never computes: no graphs, no statistics, no terminal;
//! - no traced call waits for the database, unless its queue is full;
//! - everything that is dropped or could not be seen is counted as a [`flowtrace_schema::Loss`];
//! - the real directory is reached through a descriptor opened before the mount covered it, never by path.

mod bpf;
pub mod callers;
mod cgroups;
pub mod clock;
mod cpus;
mod descriptor_table;
pub mod doctor;
mod file_calls;
mod file_table;
pub mod fs;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hashed;
mod helper_process;
pub mod host;
mod kernel;
mod linux;
mod mapping;
mod memory;
mod merge;
pub mod mounting;
pub mod net;
mod priority;
mod proc;
mod remedies;
mod rings;
pub mod session;
mod side_by_side;
pub mod stacks;
mod stat;
