//! Live capture of packets, and the sockets and processes behind their flows.
//!
//! Door: [`live`] captures; [`interfaces`] lists what can be captured. Headers, flows and rows are in
//! [`flowtrace_net`], to which this module gives frames and sockets. It knows process events, and not `fs`.

pub(crate) mod follow;
pub mod interfaces;
pub mod live;
mod ring;
pub(crate) mod senders;
mod sockets;
