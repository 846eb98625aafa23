//! Packets to rows: reads the headers of frames, finds the flow of each packet and the sockets behind the flows,
//! and makes a trace of capture files that other programs wrote.
//!
//! Entry points: [`import::import`] makes a whole trace of pcap and pcapng files. [`sink::Sink`] takes frames
//! from anywhere, such as a live capture, and records packets and flows; its [`flows::FlowTable`] finds the
//! flow of a socket. [`filter::Filter`] selects packets.
//!
//! Promise: nothing of a packet's payload is kept, memory does not grow with the length of a capture, and each frame
//! that is not recorded is counted.
//!
//! The crate knows record types and the writer of [`flowtrace_schema`]. It may not know processes, network
//! namespaces or the kernel's rings: sockets and their owners are given to it.

mod files;
pub mod filter;
pub mod flows;
mod fragments;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod import;
mod packet;
pub mod sink;

pub use packet::Link;
