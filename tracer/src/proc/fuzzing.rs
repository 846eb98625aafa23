//! The decoders of netlink messages, for [`crate::fuzzing`].

use super::costs::Costs;
use super::{connector, taskstats};

/// A datagram of the proc connector, and one of taskstats.
pub fn announcements(bytes: &[u8]) {
    // A message is at least its header: no more events than that.
    assert!(connector::events(bytes).count() <= bytes.len() / 16);
    let mut sum = Costs::default();
    for record in taskstats::records(bytes) {
        assert!(record.name.len() <= 32);
        sum += record.costs;
    }
    assert!(sum.threads as usize <= bytes.len() / 16);
}
