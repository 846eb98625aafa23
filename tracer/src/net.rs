//! Packets: where they come from, what is in them, and which flow they belong to.
//!
//! `packet` reads the headers of a frame, `flows` finds the flow, `files` reads captures of
//! other programs, and [`import`] makes a trace of them. Nothing of a packet's payload is kept.

pub(crate) mod follow;
pub mod interfaces;
pub mod live;
mod ring;
pub(crate) mod senders;
mod sockets;
