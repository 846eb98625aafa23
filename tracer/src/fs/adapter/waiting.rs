//! Requests that wait for a lock.

use crate::fs::log::{Event, Started};
use crate::fs::protocol::Deferred;

/// A request that waits for a lock, and the call to record when the wait ends.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) started: Started,
    pub(super) event: Event,
    pub(super) reply: Deferred,
}
