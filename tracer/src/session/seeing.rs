//! How the files under the traced directories are seen.

use std::time::Duration;

use super::transport::Transport;
use crate::fs::{Filter, Permission};

/// Source of reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layer {
    /// The cheapest that is exact and proven.
    #[default]
    Auto,
    /// Tracepoints; the kernel serves the data by itself.
    Kernel,
    /// FUSE, which every read and write goes through.
    Fuse,
}

/// The user's choice for all views of a session.
#[derive(Clone, Debug, Default)]
pub struct Seeing {
    /// Let the page cache answer reads: faster, and only what it lacks is seen.
    pub cached: bool,
    /// How long the kernel may answer stat and lookup by itself; 0: every one is seen.
    pub attribute_ttl: Duration,
    /// The way of requests.
    pub transport: Transport,
    /// Which files are recorded.
    pub filter: Filter,
}

impl Seeing {
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
