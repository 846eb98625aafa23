//! Files registered with the kernel for passthrough: one registration per inode, shared by all
//! its opens.
//!
//! While an inode is open with a registration, the kernel refuses every open with another one or
//! with none (`EIO`), and it remembers the first until the last open is gone. So the first open
//! decides for all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::BackingId;

const SHARDS: usize = 16;

/// Registrations by node id.
#[derive(Debug)]
pub(super) struct Backings {
    shards: [Mutex<HashMap<u64, Backing>>; SHARDS],
}

#[derive(Debug)]
struct Backing {
    /// `None`: registering failed, so no open of this inode passes through.
    id: Option<Arc<BackingId>>,
    opens: usize,
}

impl Default for Backings {
    fn default() -> Self {
        Backings {
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl Backings {
    /// The registration for one more open of a node; the first open registers.
    pub(super) fn acquire(
        &self,
        node: u64,
        register: impl FnOnce() -> Option<BackingId>,
    ) -> Option<Arc<BackingId>> {
        let mut shard = self.shard(node);
        let backing = shard.entry(node).or_insert_with(|| Backing {
            id: register().map(Arc::new),
            opens: 0,
        });
        backing.opens += 1;
        backing.id.clone()
    }

    /// An open of a node is gone; with the last one the registration ends.
    pub(super) fn release(&self, node: u64) {
        let mut shard = self.shard(node);
        if let Some(backing) = shard.get_mut(&node) {
            backing.opens -= 1;
            if backing.opens == 0 {
                shard.remove(&node);
            }
        }
    }

    fn shard(&self, node: u64) -> MutexGuard<'_, HashMap<u64, Backing>> {
        let shard = &self.shards[node as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
