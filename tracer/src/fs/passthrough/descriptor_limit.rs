//! Limit of the descriptors of a mount's nodes.

use nix::sys::resource::{Resource, getrlimit};

use crate::fs::descriptor;

/// Limit of the descriptors of this process, over all its mounts.
#[derive(Debug)]
pub(super) struct DescriptorLimit {
    pub(super) limit: usize,
}

impl DescriptorLimit {
    pub(super) fn of_this_process() -> DescriptorLimit {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        DescriptorLimit { limit }
    }

    /// Number of descriptors that nodes may have now: seven eighths of the limit minus the open files and a
    /// few to work with, but at most five eighths.
    pub(super) fn for_nodes(&self) -> usize {
        let eighth = self.limit / 8;
        let left = (7 * eighth).saturating_sub(descriptor::open());
        left.clamp(eighth / 4, 5 * eighth)
    }
}
