//! The ways of small rows to the writer, without an allocation.

use std::marker::PhantomData;
use std::sync::Arc;

use super::ends::Sender;
use super::ring::Plain;
use crate::{Call, ChannelCall, Packet};

/// Passes calls to the writer, without an allocation.
pub type CallRing = Rows<Call>;
/// Passes calls on pipes and sockets to the writer, without an allocation.
pub type ChannelCallRing = Rows<ChannelCall>;
/// Passes packets to the writer, without an allocation.
pub type PacketRing = Rows<Packet>;

/// The end of a ring that belongs to a thread that records.
#[derive(Debug)]
pub struct Rows<T> {
    sender: Option<Arc<Sender>>,
    rows: PhantomData<T>,
}

impl<T: Plain> Rows<T> {
    /// Adds a row to the ring; waits while the ring is full.
    #[inline]
    pub fn push(&mut self, row: T) {
        if let Some(sender) = &self.sender {
            sender.row(&row);
        }
    }
}

impl<T> Rows<T> {
    pub(super) fn new(sender: Option<Arc<Sender>>) -> Self {
        let rows = PhantomData;
        Rows { sender, rows }
    }
}
