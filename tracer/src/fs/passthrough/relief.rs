//! Giving up nodes before descriptors run out.
//!
//! Every node holds a descriptor until the kernel forgets it, which the kernel does only when it
//! wants the memory. A walk through more files than this process may hold open would end in
//! `EMFILE`; so when most descriptors are taken, the kernel is asked to drop names of files that
//! nobody has open. Directories stay: dropping one would cut off those who work in it.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use flowtrace_schema::FileKind;
use nix::fcntl::readlink;
use nix::sys::resource::{Resource, getrlimit};

use super::{View, path_of};
use crate::fs::inode::Node;

/// Shares of the descriptors that nodes may take: before some are given up, before new ones are
/// also slowed down, and after.
const CROWDED: (usize, usize) = (5, 8);
const PRESSED: (usize, usize) = (3, 4);
const RELIEVED: (usize, usize) = (1, 2);

/// Nodes that may be held; descriptors are a matter of the whole process.
#[derive(Debug)]
pub(super) struct Room {
    crowded: usize,
    pressed: usize,
    relieved: usize,
}

/// Nodes held by all mounts of this process.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// A node counts as held for as long as this lives.
#[derive(Debug)]
pub(crate) struct Place(());

impl Place {
    pub(super) fn take() -> Place {
        HELD.fetch_add(1, Ordering::Relaxed);
        Place(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Room {
    pub(super) fn of_this_process() -> Room {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let share = |(part, of): (usize, usize)| limit / of * part;
        Room {
            crowded: share(CROWDED),
            pressed: share(PRESSED),
            relieved: share(RELIEVED),
        }
    }
}

impl View {
    /// Whether nodes should be given up.
    pub(in crate::fs) fn is_crowded(&self) -> bool {
        HELD.load(Ordering::Relaxed) > self.room.crowded
    }

    /// Whether there should be no more nodes before some are given up.
    pub(in crate::fs) fn is_pressed(&self) -> bool {
        HELD.load(Ordering::Relaxed) > self.room.pressed
    }

    /// Names to drop so that enough nodes are given up: node id of the directory, and name.
    pub(in crate::fs) fn superfluous(&self) -> Vec<(u64, OsString)> {
        let surplus = HELD
            .load(Ordering::Relaxed)
            .saturating_sub(self.room.relieved);
        let idle = |node: &Node| {
            node.kind != FileKind::Directory && node.opens.load(Ordering::Relaxed) == 0
        };
        let name = |node: &Node| {
            let path = readlink(path_of(node.fd.as_fd()).as_c_str()).ok()?;
            let name = Path::new(&path).file_name()?.to_owned();
            Some((node.parent.load(Ordering::Relaxed), name))
        };
        self.nodes
            .some(surplus, idle)
            .iter()
            .filter_map(|node| name(node))
            .collect()
    }
}
