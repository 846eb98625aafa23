//! Packets: where they come from, what is in them, and which flow they belong to.
//!
//! `packet` reads the headers of a frame, `flows` finds the flow, `files` reads captures of
//! other programs, and [`import`] makes a trace of them. Nothing of a packet's payload is kept.

mod files;
pub mod filter;
mod flows;
pub(crate) mod follow;
mod fragments;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
pub mod import;
pub mod interfaces;
pub mod live;
mod packet;
mod ring;
pub(crate) mod senders;
mod sink;
mod sockets;
