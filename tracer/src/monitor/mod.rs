//! Watching many machines while they work: an agent on each sends small datagrams of absolute
//! totals, a collector puts them on one clock and into one trace.
//!
//! - [`wire`]: the messages, each below 512 bytes and authenticated by a shared key;
//! - [`agent`] and [`collector`]: what either side does, without a socket or a clock of its own, so
//!   that tests can lose, double and delay what passes between them;
//! - [`exchange`]: offset and drift of a clock from round trips;
//! - [`service`]: both with sockets, threads and a trace.
//!
//! Lost datagrams cost resolution and never a total: every value is a total since boot, and the
//! last ones go over TCP.

pub mod agent;
pub mod collector;
pub mod exchange;
mod key;
pub mod service;
mod timeline;
pub mod wire;

#[cfg(test)]
mod tests;

pub use key::{Key, KeyError};
