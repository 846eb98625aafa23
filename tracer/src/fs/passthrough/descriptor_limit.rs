//! How many descriptors the nodes of a mount may have.

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

    /// How many descriptors nodes may hold now: what open files leave of seven eighths of the limit, but for a few to work
    /// with, and never more than five eighths.
    pub(super) fn for_nodes(&self) -> usize {
        let eighth = self.limit / 8;
        let left = (7 * eighth).saturating_sub(descriptor::open());
        left.clamp(eighth / 4, 5 * eighth)
    }
}
