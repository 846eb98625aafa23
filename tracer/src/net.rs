//! Live capture of packets, and the sockets and processes behind their flows.
//!
//! Entry points: [`live`] captures; [`interfaces`] lists the interfaces that can be captured. Headers, flows
//! and rows are in [`flowtrace_net`], which gets frames and sockets from this module. This module uses
//! process events, and not `fs`.

pub(crate) mod follow;
pub mod interfaces;
pub mod live;
mod ring;
pub(crate) mod senders;
mod sockets;
