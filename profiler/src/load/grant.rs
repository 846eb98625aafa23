//! A wait that another process ended.

/// A wait that another process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Begin, ns.
    pub(crate) from_ns: i64,
    /// End, ns: the waiter had what it waited for.
    pub(crate) to_ns: i64,
    /// Process image that gave it.
    pub(crate) by_upid: i64,
    /// The file, if the wait was for its lock.
    pub(crate) file_id: Option<i64>,
}

impl Grant {
    /// Cuts an interval where the wait begins and ends: the parts, each with true if it belongs to the wait.
    pub(crate) fn cut(self, from_ns: i64, to_ns: i64) -> impl Iterator<Item = ((i64, i64), bool)> {
        let inner = (self.from_ns.max(from_ns), self.to_ns.min(to_ns));
        let parts = [
            ((from_ns, inner.0), false),
            (inner, true),
            ((inner.1, to_ns), false),
        ];
        parts.into_iter().filter(|((from, to), _)| from < to)
    }
}
