//! Settings for seeing the files under the traced directories.

use std::time::Duration;

use super::transport::Transport;
use crate::fs::{Filter, Permission};

/// Source of file calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layer {
    /// [`Layer::Kernel`] where the kernel allows it and no option needs a mount, else [`Layer::Fuse`].
    #[default]
    Auto,
    /// eBPF programs; nothing is mounted.
    Kernel,
    /// FUSE mounts over the traced directories.
    Fuse,
}

/// The user's settings for all mounts of a session.
#[derive(Clone, Debug, Default)]
pub struct Seeing {
    /// Let the page cache answer reads: faster, but only reads that it cannot answer are seen.
    pub cached: bool,
    /// Time for which the kernel may answer stat and lookup by itself; 0: every one is seen.
    pub attribute_ttl: Duration,
    /// Transport of requests.
    pub transport: Transport,
    /// The files that are recorded.
    pub filter: Filter,
}

impl Seeing {
    /// True if these settings say something about mounts.
    pub(super) fn needs_mount(&self) -> bool {
        self.cached
            || !self.attribute_ttl.is_zero()
            || self.transport != Transport::Auto
            || !self.filter.is_empty()
    }

    /// Party that checks permissions in a mount that serves all users. While the kernel answers lookups
    /// by itself it must also check them.
    pub(super) fn permission(&self) -> Permission {
        if self.attribute_ttl.is_zero() {
            Permission::Caller
        } else {
            Permission::Kernel
        }
    }
}
