//! The inodes that the kernel knows, by node id.
//!
//! A node holds one `O_PATH` descriptor. It pins the inode, so its number cannot be reused while
//! the id is known, and renames and removals do not disturb it.
//!
//! fuser 0.18 sends one number both as node id and as `st_ino`. The id is therefore the real
//! inode number wherever that is unique, and a number derived from mount, device and inode where
//! it is not.

use std::collections::HashMap;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use flowtrace_schema::{FileId, FileKind};
use nix::errno::Errno;

use super::Result;
use super::attributes::{Attributes, Time};
use super::passthrough::relief::Place;

/// Node id of the root directory.
pub(crate) const ROOT: u64 = 1;
/// Ids from here on are derived.
const DERIVED: u64 = 0xffff << 48;
const SHARDS: usize = 64;

/// What tells one inode from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InodeKey {
    /// Id of the mount: the same directory reached through two mounts is two nodes, because the
    /// kernel allows a directory one place only.
    pub(crate) mount: u64,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

impl From<&Attributes> for InodeKey {
    fn from(attributes: &Attributes) -> InodeKey {
        InodeKey {
            mount: attributes.mount,
            dev: attributes.dev,
            ino: attributes.ino,
        }
    }
}

/// An inode that the kernel knows.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: u64,
    /// `O_PATH` descriptor of the inode.
    pub(crate) fd: OwnedFd,
    pub(crate) key: InodeKey,
    pub(crate) birth: Option<Time>,
    pub(crate) kind: FileKind,
    /// Its id in the trace; `None` when nothing is recorded.
    pub(crate) file: Option<FileId>,
    /// Names in this directory that the view does not show.
    pub(crate) hides: Option<Box<[OsString]>>,
    /// Held while names in this directory are looked at or changed, and recorded.
    pub(crate) names: RwLock<()>,
    /// The name under which it was last recorded, hashed.
    pub(crate) last_name: AtomicU64,
    /// A name of it was removed: it may be gone when the kernel forgets it.
    pub(crate) unlinked: AtomicBool,
    /// It lies in a directory that the user may change (see [`crate::fs::Config::owner`]).
    pub(crate) in_own_directory: AtomicBool,
    /// Open files and directories of it.
    pub(crate) opens: AtomicU32,
    /// Node id of the directory in which it was last found.
    pub(crate) parent: AtomicU64,
    pub(crate) _place: Place,
}

/// Node ids in use.
#[derive(Debug)]
pub(crate) struct NodeTable {
    root: Arc<Node>,
    shards: [Mutex<HashMap<u64, Slot>>; SHARDS],
}

#[derive(Debug)]
struct Slot {
    node: Arc<Node>,
    /// How often the kernel was told this id and has not yet forgotten it.
    lookups: u64,
}

impl NodeTable {
    /// A table that holds the root, which is never forgotten.
    pub(crate) fn new(root: Node) -> NodeTable {
        NodeTable {
            root: Arc::new(root),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// The root directory.
    pub(crate) fn root(&self) -> &Arc<Node> {
        &self.root
    }

    /// The node that the kernel calls `id`.
    pub(crate) fn get(&self, id: u64) -> Result<Arc<Node>> {
        if id == ROOT {
            return Ok(Arc::clone(&self.root));
        }
        let found = self.shard(id).get(&id).map(|slot| Arc::clone(&slot.node));
        found.ok_or(Errno::ESTALE)
    }

    /// Counts a lookup of an inode known already.
    ///
    /// The attributes were read by name, so they may be of an inode that has meanwhile been
    /// replaced by another with the same number; the birth time tells.
    pub(crate) fn find(&self, attributes: &Attributes) -> Option<Arc<Node>> {
        let key = InodeKey::from(attributes);
        for id in self.ids(&key) {
            let mut shard = self.shard(id);
            match shard.get_mut(&id) {
                Some(slot) if slot.node.key == key => {
                    if slot.node.birth != attributes.birth {
                        return None;
                    }
                    slot.lookups += 1;
                    return Some(Arc::clone(&slot.node));
                }
                Some(_) => {}
                None => return None,
            }
        }
        None
    }

    /// The node of an inode, if it is known. Counts nothing.
    pub(crate) fn peek(&self, attributes: &Attributes) -> Option<Arc<Node>> {
        let key = InodeKey::from(attributes);
        self.ids(&key).find_map(|id| {
            let shard = self.shard(id);
            let slot = shard.get(&id).filter(|slot| slot.node.key == key)?;
            Some(Arc::clone(&slot.node))
        })
    }

    /// Counts a lookup of the inode with `key`, which the caller holds open. `make` is called
    /// with the id to use if it is not known; it must not come back to this table.
    pub(crate) fn enter(
        &self,
        key: &InodeKey,
        make: impl FnOnce(u64) -> Node,
    ) -> Result<Arc<Node>> {
        for id in self.ids(key) {
            let mut shard = self.shard(id);
            match shard.get_mut(&id) {
                Some(slot) if slot.node.key == *key => {
                    slot.lookups += 1;
                    return Ok(Arc::clone(&slot.node));
                }
                Some(_) => {}
                None => {
                    let node = Arc::new(make(id));
                    let slot = Slot {
                        node: Arc::clone(&node),
                        lookups: 1,
                    };
                    shard.insert(id, slot);
                    return Ok(node);
                }
            }
        }
        Err(Errno::EIO)
    }

    /// Takes `lookups` back; returns the node if those were the last.
    pub(crate) fn forget(&self, id: u64, lookups: u64) -> Option<Arc<Node>> {
        let mut shard = self.shard(id);
        let slot = shard.get_mut(&id)?;
        slot.lookups = slot.lookups.saturating_sub(lookups);
        if slot.lookups > 0 {
            return None;
        }
        shard.remove(&id).map(|slot| slot.node)
    }

    /// At most `count` nodes that `suit`.
    pub(crate) fn some(&self, count: usize, suit: impl Fn(&Node) -> bool) -> Vec<Arc<Node>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let nodes = shard.values().map(|slot| &slot.node);
            let suiting = nodes.filter(|node| suit(node));
            found.extend(suiting.take(count - found.len()).map(Arc::clone));
        }
        found
    }

    /// The number under which the inode with `key` is shown, known or not.
    pub(crate) fn id_of(&self, key: &InodeKey) -> u64 {
        self.ids(key).next().unwrap_or(key.ino)
    }

    /// Candidates for the id of an inode, the usual one first.
    fn ids(&self, key: &InodeKey) -> impl Iterator<Item = u64> + use<> {
        let root = &self.root.key;
        let plain =
            key.mount == root.mount && key.dev == root.dev && key.ino > ROOT && key.ino < DERIVED;
        let key = *key;
        let derived = move |attempt: u32| {
            let mut hasher = DefaultHasher::new();
            (key, attempt).hash(&mut hasher);
            DERIVED | hasher.finish() >> 16
        };
        let attempts = if plain { 0..0 } else { 0..8 };
        plain
            .then_some(key.ino)
            .into_iter()
            .chain(attempts.map(derived))
    }

    fn shard(&self, id: u64) -> MutexGuard<'_, HashMap<u64, Slot>> {
        lock(&self.shards[id as usize % SHARDS])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
