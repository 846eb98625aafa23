//! Use of one direction of a channel by one process.

/// What one process had to do with one direction of a channel.
#[derive(Clone, Copy)]
pub(super) struct EndUse {
    pub(super) at_most_bytes: Option<i64>,
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
    /// Data is known to have moved.
    pub(super) is_used: bool,
    /// How much was counted.
    pub(super) is_counted: bool,
}

pub(super) fn both_ways(a: Option<(i64, i64)>, b: Option<(i64, i64)>) -> Option<(i64, i64)> {
    let (a, b) = (a?, b?);
    Some((a.0.saturating_add(b.0), a.1.saturating_add(b.1)))
}

pub(super) fn both(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    Some(a?.saturating_add(b?))
}
