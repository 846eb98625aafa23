//! Eviction of descriptors before they run out.
//!
//! The kernel forgets a node only when it needs the memory, so a walk through many files leaves many nodes
//! behind. When their descriptors take a large part of the limit of this process, the oldest are closed. A
//! call that needs one opens it again: through an open file of the same inode if there is one, so that an
//! open file takes one descriptor; otherwise by directory and name. The inode found there must be the same
//! one. If it is not, which takes a rename outside of the mount, the call fails with `ESTALE` and the kernel
//! looks the name up anew.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use flowtrace_schema::FileKind;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlink};
use nix::sys::stat::Mode;
use nix::unistd::dup;

use super::Passthrough;
use crate::fs::descriptor::{self, Pin};
use crate::fs::node::{Hold, Node, Place};
use crate::fs::sys::{c_string, path_of};
use crate::stat;
use crate::stat::Attributes;
use nix::Result;

impl Passthrough {
    /// The descriptor of a node.
    pub(in crate::fs) fn pin(&self, node: &Node) -> Result<Arc<Pin>> {
        let hold = node.descriptor.hold();
        if !matches!(hold, Hold::Pinned(_)) {
            // Before the search, so that the descriptor found is not evicted at once.
            self.evict();
        }
        self.find(node, hold)
    }

    /// The descriptor of a node, opened again if it was given up, and those of the directories above it as
    /// far as necessary. It is a loop, because directories may be thousands deep.
    fn find(&self, node: &Node, hold: Hold) -> Result<Arc<Pin>> {
        let mut below = Vec::new();
        let mut hold = hold;
        let mut pin = loop {
            let node = below
                .last()
                .map_or(node, |(directory, _): &(Arc<Node>, _)| directory);
            match hold {
                Hold::Pinned(pin) => break pin,
                Hold::Open(fd) => break self.open_through(&fd, node)?,
                Hold::GivenUp(place) => {
                    hold = place.directory.descriptor.hold();
                    below.push((place.directory, place.name));
                }
            }
        };
        while let Some((_, name)) = below.pop() {
            let node = below.last().map_or(node, |(directory, _)| directory);
            pin = self.open_again(&pin, &name, node)?;
        }
        Ok(pin)
    }

    /// Opens the inode of a node again through an open file of it.
    fn open_through(&self, fd: &OwnedFd, node: &Node) -> Result<Arc<Pin>> {
        self.reopen_fd(fd.as_fd(), OFlag::O_PATH)
            .map(|fd| self.found_again(node, fd))
    }

    fn open_again(&self, above: &Pin, name: &OsStr, node: &Node) -> Result<Arc<Pin>> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = self.or_evict(|| openat(above.as_fd(), name, flags, Mode::empty()));
        let fd = fd.map_err(|errno| match errno {
            Errno::ENOENT | Errno::ENOTDIR => Errno::ESTALE,
            errno => errno,
        })?;
        if !is(node, &stat::of(fd.as_fd())?) {
            return Err(Errno::ESTALE);
        }
        Ok(self.found_again(node, fd))
    }

    fn found_again(&self, node: &Node, fd: OwnedFd) -> Arc<Pin> {
        let pin = node.descriptor.found(Pin::new(fd));
        self.holders().push_back(node.id);
        pin
    }

    /// A file or directory of a node was opened.
    pub(super) fn is_opened(&self, node: &Node, fd: &Arc<OwnedFd>) {
        node.opens.fetch_add(1, Ordering::Relaxed);
        node.descriptor.opened(fd);
        descriptor::opened();
    }

    /// A file or directory of a node is about to be closed.
    pub(super) fn is_closing(&self, node: &Node, fd: &Arc<OwnedFd>) {
        if node.descriptor.closes(fd) {
            // If this fails, the file stays open for the node.
            let _ = self.open_through(fd, node);
        }
        node.opens.fetch_sub(1, Ordering::Relaxed);
        descriptor::closed();
    }

    /// Opens a file; if descriptors have run out, evicts some and tries once more.
    pub(super) fn or_evict(&self, open: impl Fn() -> Result<OwnedFd>) -> Result<OwnedFd> {
        match open() {
            Err(Errno::EMFILE | Errno::ENFILE) => {
                self.give_up(descriptor::pinned() / 2);
                open()
            }
            result => result,
        }
    }

    /// Fails unless `count` descriptors are free. A new file could not be removed again if descriptors ran
    /// out after its creation.
    pub(super) fn spare(&self, count: usize) -> Result<()> {
        if descriptor::pinned() + descriptor::open() <= self.limit.limit / 2 {
            return Ok(());
        }
        let taken = (0..count).map(|_| self.or_evict(|| dup(self.descriptors.as_fd())));
        taken.collect::<Result<Vec<_>>>().map(drop)
    }

    /// A node has got a descriptor.
    pub(super) fn holds(&self, node: &Node) {
        self.holders().push_back(node.id);
        self.evict();
    }

    /// Gives up descriptors if nodes have too many. The descriptors that this takes itself, to find
    /// directories again, do not start another eviction.
    fn evict(&self) {
        let most = self.limit.for_nodes();
        if descriptor::pinned() > most && !self.is_evicting.swap(true, Ordering::Acquire) {
            self.give_up(most / 5 * 4);
            self.is_evicting.store(false, Ordering::Release);
        }
    }

    /// Gives up descriptors until nodes have no more than `goal`: the oldest first, directories last, because
    /// the files below are found through them.
    fn give_up(&self, goal: usize) {
        for with_directories in [false, true] {
            let turns = self.holders().len();
            for _ in 0..turns {
                if descriptor::pinned() <= goal {
                    return;
                }
                let Some(id) = self.holders().pop_front() else {
                    return;
                };
                let Ok(node) = self.nodes.get(id) else {
                    continue;
                };
                if node.descriptor.pin().is_none() {
                    continue;
                }
                let suits = with_directories || node.kind != FileKind::Directory;
                if !(suits && self.give_up_one(&node)) {
                    self.holders().push_back(id);
                }
            }
        }
    }

    /// Closes the descriptor of a node, unless it is needed.
    fn give_up_one(&self, node: &Node) -> bool {
        if node.descriptor.give_up_to_open() {
            return true;
        }
        let is_needed =
            node.opens.load(Ordering::Relaxed) > 0 || node.unlinked.load(Ordering::Relaxed);
        if is_needed {
            return false;
        }
        let Some(place) = self.place(node) else {
            return false;
        };
        self.has_given_up.store(true, Ordering::Relaxed);
        node.descriptor.give_up(place);
        true
    }

    fn holders(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place at which a node can be found again; `None` if it has no name any more, or a name elsewhere.
    fn place(&self, node: &Node) -> Option<Place> {
        let pin = node.descriptor.pin()?;
        let path = readlink(path_of(pin.as_fd()).as_c_str()).ok()?;
        let name = Path::new(&path).file_name()?.to_owned();
        let directory = self.nodes.get(node.parent.load(Ordering::Relaxed)).ok()?;
        let above = self.pin(&directory).ok()?;
        let there = stat::at(above.as_fd(), &c_string(&name).ok()?).ok()?;
        is(node, &there).then_some(Place { directory, name })
    }

    /// A node was found under a name: if its descriptor was given up, it will be found there again.
    pub(super) fn is_here(&self, node: &Node, directory: &Node, name: &OsStr) {
        if node.descriptor.pin().is_none()
            && let Ok(directory) = self.nodes.get(directory.id)
        {
            let name = name.to_owned();
            node.descriptor.is_at(Place { directory, name });
        }
    }

    /// A name is about to be removed or moved. Its node needs a descriptor, because it will not be found
    /// under that name again.
    pub(super) fn pin_named(&self, directory: &Pin, name: &OsStr) -> Option<Arc<Node>> {
        let attributes = stat::at(directory.as_fd(), &c_string(name).ok()?).ok()?;
        let node = self.nodes.peek(&attributes)?;
        // If this fails, the node is stale already.
        let _ = self.pin(&node);
        Some(node)
    }

    /// True if a node may have given its descriptor up.
    pub(super) fn has_given_up(&self) -> bool {
        self.has_given_up.load(Ordering::Relaxed)
    }
}

/// True if attributes are those of a node.
fn is(node: &Node, attributes: &Attributes) -> bool {
    node.key == attributes.into() && node.birth == attributes.birth
}
