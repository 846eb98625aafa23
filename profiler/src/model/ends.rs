//! Processes at the ends of channels.

use std::collections::HashMap;

use flowtrace_schema::ChannelEndRow;

use super::ProcessId;

/// The ends of pipes and sockets.
#[derive(Clone, Debug, Default)]
pub struct ChannelEnds {
    /// Ends through which data may have gone, in the order of channels.
    pub active: Vec<ChannelEndRow>,
    /// Ends of pipes and FIFOs through which nothing went, in the order of channels. A reader gets the end of
    /// the data only when the last writing end is closed, including these, and a writer waits as long as
    /// there is a reading one.
    pub idle: Vec<ChannelEndRow>,
    /// Pipes and FIFOs that carry tokens for free places to run, and no data, in order; their ends are none
    /// of the above.
    pub tokens: Vec<i64>,
    /// Pipes, FIFOs and pairs of sockets that only one process had open, in order: by these it wakes itself,
    /// or one of its threads another.
    pub own: Vec<i64>,
    /// Bytes that a process sent through a socket and received from it, where they were counted or captured.
    pub moved: HashMap<(i64, ProcessId), (i64, i64)>,
    /// True if a process sent through a socket, and true if it received, where there is evidence
    /// ([`super::Way`]).
    pub moves: HashMap<(i64, ProcessId), (bool, bool)>,
}

impl ChannelEnds {
    /// Returns true if a channel carries tokens for free places to run.
    pub fn is_token(&self, channel_id: i64) -> bool {
        self.tokens.binary_search(&channel_id).is_ok()
    }

    /// Returns true if a channel leads from a process to itself.
    pub fn is_own(&self, channel_id: i64) -> bool {
        self.own.binary_search(&channel_id).is_ok()
    }
}
