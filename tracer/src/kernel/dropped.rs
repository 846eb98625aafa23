//! Records of calls that found no room in a ring.

/// Entries of calls that the kernel dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dropped {
    /// Of calls that move data; of perf's rings, which do not tell them apart, all.
    pub(super) data: u64,
    /// Of others.
    pub(super) others: u64,
}

impl Dropped {
    pub(super) fn any(self) -> bool {
        self != Dropped::default()
    }
}
