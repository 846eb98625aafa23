//! The inodes that the kernel knows, by node id.
//!
//! Ids count up and are never reused, so a late message about an old id cannot reach a new inode.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;

use super::node::{InodeKey, Node};
use crate::stat::Attributes;
use nix::Result;

/// Node id of the root directory.
pub(crate) const ROOT: u64 = 1;
/// Inode numbers from this one on are derived.
const DERIVED: u64 = 0xffff << 48;
const SHARDS: u64 = 64;

/// Nodes that the kernel knows, by id and by inode.
#[derive(Debug)]
pub(crate) struct NodeTable {
    root: Arc<Node>,
    /// Nodes in shards. The shard of a node is that of its inode, and is part of its id.
    shards: [Mutex<Shard>; SHARDS as usize],
}

#[derive(Debug, Default)]
struct Shard {
    by_id: HashMap<u64, Slot>,
    by_inode: HashMap<InodeKey, u64>,
    made: u64,
}

#[derive(Debug)]
struct Slot {
    node: Arc<Node>,
    /// Number of times that the kernel got this id and has not yet forgotten it.
    lookups: u64,
}

impl Shard {
    /// Counts a lookup of an inode, if it is known.
    ///
    /// The birth time distinguishes the inode from a later one with the same number: the attributes may have
    /// been read by name, and a node that gave its descriptor up does not keep its number.
    fn count(&mut self, attributes: &Attributes) -> Option<Arc<Node>> {
        let id = self.by_inode.get(&InodeKey::from(attributes))?;
        let slot = self.by_id.get_mut(id)?;
        if slot.node.birth != attributes.birth {
            return None;
        }
        slot.lookups += 1;
        Some(Arc::clone(&slot.node))
    }
}

impl NodeTable {
    /// A table with the root, which is never forgotten.
    pub(crate) fn new(root: Node) -> NodeTable {
        NodeTable {
            root: Arc::new(root),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// The node that the kernel calls `id`.
    pub(crate) fn get(&self, id: u64) -> Result<Arc<Node>> {
        if id == ROOT {
            return Ok(Arc::clone(&self.root));
        }
        let shard = lock(&self.shards[shard_of_id(id)]);
        let slot = shard.by_id.get(&id).ok_or(Errno::ESTALE)?;
        Ok(Arc::clone(&slot.node))
    }

    /// Counts a lookup of an inode that is already known.
    pub(crate) fn find(&self, attributes: &Attributes) -> Option<Arc<Node>> {
        let key = InodeKey::from(attributes);
        lock(&self.shards[shard_of(&key)]).count(attributes)
    }

    /// The node of an inode, if it is known. Counts nothing.
    pub(crate) fn peek(&self, attributes: &Attributes) -> Option<Arc<Node>> {
        let key = InodeKey::from(attributes);
        let shard = lock(&self.shards[shard_of(&key)]);
        let slot = shard.by_id.get(shard.by_inode.get(&key)?)?;
        (slot.node.birth == attributes.birth).then(|| Arc::clone(&slot.node))
    }

    /// Counts a lookup of an inode that the caller has open. `make` is called with the new id if the inode is
    /// not known; it must not use this table.
    pub(crate) fn enter(
        &self,
        attributes: &Attributes,
        make: impl FnOnce(u64) -> Node,
    ) -> Arc<Node> {
        let key = InodeKey::from(attributes);
        let place = shard_of(&key);
        let mut shard = lock(&self.shards[place]);
        if let Some(node) = shard.count(attributes) {
            return node;
        }
        shard.made += 1;
        let id = shard.made * SHARDS + place as u64;
        let node = Arc::new(make(id));
        let slot = Slot {
            node: Arc::clone(&node),
            lookups: 1,
        };
        shard.by_id.insert(id, slot);
        shard.by_inode.insert(key, id);
        node
    }

    /// Subtracts `lookups`; returns the node if those were the last.
    pub(crate) fn forget(&self, id: u64, lookups: u64) -> Option<Arc<Node>> {
        let mut shard = lock(&self.shards[shard_of_id(id)]);
        let slot = shard.by_id.get_mut(&id)?;
        slot.lookups = slot.lookups.saturating_sub(lookups);
        if slot.lookups > 0 {
            return None;
        }
        let node = shard.by_id.remove(&id)?.node;
        if shard.by_inode.get(&node.key) == Some(&id) {
            shard.by_inode.remove(&node.key);
        }
        Some(node)
    }

    /// At most `count` nodes for which `suit` returns true.
    #[cfg(test)]
    pub(crate) fn some(&self, count: usize, suit: impl Fn(&Node) -> bool) -> Vec<Arc<Node>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let nodes = shard.by_id.values().map(|slot| &slot.node);
            let suiting = nodes.filter(|node| suit(node));
            found.extend(suiting.take(count - found.len()).map(Arc::clone));
        }
        found
    }

    /// The number under which the inode with `key` is shown: its own, except for inodes of mounts inside the
    /// directory. All inodes appear on one device, where two with the same number would be taken for hard
    /// links of one file.
    pub(crate) fn number_of(&self, key: &InodeKey) -> u64 {
        let root = &self.root.key;
        if (key.mount, key.dev) == (root.mount, root.dev) && key.ino < DERIVED {
            key.ino
        } else {
            DERIVED | hash_of(key) >> 16
        }
    }
}

fn hash_of(key: &InodeKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

fn shard_of(key: &InodeKey) -> usize {
    ((key.ino ^ key.dev ^ key.mount) % SHARDS) as usize
}

fn shard_of_id(id: u64) -> usize {
    (id % SHARDS) as usize
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
