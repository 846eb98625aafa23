//! A send with the messages that it waited for.

use crate::run::Node;

/// One send with what it waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The message.
    pub message: usize,
    /// The process.
    pub process: Node,
    /// When it was sent, ns.
    pub t_ns: i64,
    /// The send of the same process before it.
    pub before: Option<usize>,
    /// Where its messages begin in the schedule's list.
    pub(super) first: usize,
    /// Numbers of those that it needs, may need, and may be held by.
    pub(super) counts: [u32; 3],
}
