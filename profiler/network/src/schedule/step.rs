//! A send and the messages for which it waited.

use crate::run::Node;

/// One send and the messages for which it waited.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The message.
    pub message: usize,
    /// The process.
    pub process: Node,
    /// Time of the send, ns.
    pub t_ns: i64,
    /// The send of the same process before it.
    pub before: Option<usize>,
    /// Place of its first message in the schedule's list.
    pub(super) first: usize,
    /// Numbers of the messages that it needs, may need, and for which it may wait once others are
    /// faster.
    pub(super) counts: [u32; 3],
}
