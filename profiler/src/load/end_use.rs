//! Use of one direction of a channel by one process.

/// Use of one direction of a channel by one process.
#[derive(Clone, Copy)]
pub(super) struct EndUse {
    pub(super) at_most_bytes: Option<i64>,
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
    /// True if data is known to have moved.
    pub(super) is_used: bool,
    /// True if the bytes were counted.
    pub(super) is_counted: bool,
}

pub(super) fn both_ways(a: Option<(i64, i64)>, b: Option<(i64, i64)>) -> Option<(i64, i64)> {
    let (a, b) = (a?, b?);
    Some((a.0.saturating_add(b.0), a.1.saturating_add(b.1)))
}

pub(super) fn both(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    Some(a?.saturating_add(b?))
}
