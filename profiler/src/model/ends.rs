//! Who held which end of a channel.

use std::collections::HashMap;

use flowtrace_schema::ChannelEndRow;

use super::ProcessId;

/// The ends of pipes and sockets.
#[derive(Clone, Debug, Default)]
pub struct ChannelEnds {
    /// Those through which data may have gone, in the order of channels.
    pub held: Vec<ChannelEndRow>,
    /// Those of pipes and FIFOs through which nothing went, in the order of channels. A reader learns that there is no more when
    /// the last of the writing ones is closed, too, and a writer waits as long as there is a reading one.
    pub idle: Vec<ChannelEndRow>,
    /// Pipes and FIFOs that hand out places to run and carry no data, in order; their ends are none of the above.
    pub tokens: Vec<i64>,
    /// Pipes, FIFOs and pairs of sockets that one process alone held, in order: by these it wakes itself, or one of its threads
    /// another.
    pub own: Vec<i64>,
    /// Bytes that a process sent through a socket and received from it, where they were counted or captured.
    pub moved: HashMap<(i64, ProcessId), (i64, i64)>,
    /// Whether a process sent through a socket, and whether it received, where anything tells ([`super::Way`]).
    pub moves: HashMap<(i64, ProcessId), (bool, bool)>,
}

impl ChannelEnds {
    /// Whether a channel hands out places to run.
    pub fn is_token(&self, channel_id: i64) -> bool {
        self.tokens.binary_search(&channel_id).is_ok()
    }

    /// Whether it leads from a process to itself.
    pub fn is_own(&self, channel_id: i64) -> bool {
        self.own.binary_search(&channel_id).is_ok()
    }
}
