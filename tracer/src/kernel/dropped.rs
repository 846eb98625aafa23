//! Records of calls that were dropped because a ring was full.

/// Entries of calls that the kernel dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dropped {
    /// Entries of calls that move data.
    pub(super) data: u64,
    /// Entries of other calls.
    pub(super) others: u64,
}

impl Dropped {
    pub(super) fn any(self) -> bool {
        self != Dropped::default()
    }
}
