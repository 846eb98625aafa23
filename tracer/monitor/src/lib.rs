//! Watches the machines of a cluster while they work: an agent on each machine sends its counters in small
//! datagrams, and a collector puts them on one clock and into one trace.
//!
//! Entry points: [`service::agent`] and [`service::collect`] run either side with sockets, threads and a
//! trace. Below them:
//!
//! - [`wire`]: the messages, each below 512 bytes and authenticated by a shared [`Key`];
//! - [`agent`] and [`collector`]: the logic of either side, without a socket or a clock of its own, so that
//!   tests can lose, double and delay messages between them;
//! - [`exchange`]: offset and drift of a clock from round trips.
//!
//! Promise: a lost datagram costs resolution and never a total. Every value is a total since boot, and the last ones
//! go over TCP.
//!
//! The crate takes counters, clock and recording from [`flowtrace_tracer`] and record types from
//! [`flowtrace_schema`]. It may not know processes, files, packets, graphs or the terminal.

pub mod agent;
pub mod collector;
pub mod exchange;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod key;
pub mod service;
mod timeline;
pub mod wire;

#[cfg(test)]
mod tests;

pub use key::{Key, KeyError};
