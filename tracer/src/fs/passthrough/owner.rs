//! Owners shown by a mount in a user namespace (see [`crate::fs::Config::owner`]).

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use super::Passthrough;
use crate::fs::node::Node;
use crate::stat;
use crate::stat::Attributes;

/// Write permission of group and others; an access list shows as that of the group.
const OTHERS_WRITE: u32 = 0o022;

impl Passthrough {
    /// Attributes that the kernel gets.
    pub(super) fn show(&self, node: &Node, mut attributes: Attributes) -> Attributes {
        if let Some((uid, gid)) = self.owner {
            if attributes.uid == uid {
                attributes.gid = gid;
            } else if node.in_own_directory.load(Ordering::Relaxed)
                || (attributes.mode & OTHERS_WRITE != 0 && self.writable(node))
            {
                (attributes.uid, attributes.gid) = (uid, gid);
            }
        }
        attributes
    }

    /// As [`Passthrough::show`], for a node found in a directory.
    ///
    /// A user who may write a directory may remove and rename entries of any owner in it, unless the directory is
    /// sticky. The kernel would refuse that for files that the user `nobody` owns.
    pub(super) fn show_in(&self, parent: &Node, node: &Node, attributes: Attributes) -> Attributes {
        if let Some((uid, _)) = self.owner {
            let foreign = attributes.uid != uid;
            let own = foreign && self.writable(parent) && !self.is_sticky(parent);
            node.in_own_directory.store(own, Ordering::Relaxed);
        }
        self.show(node, attributes)
    }

    fn writable(&self, node: &Node) -> bool {
        self.access(node, libc::W_OK).is_ok()
    }

    fn is_sticky(&self, node: &Node) -> bool {
        let attributes = self.pin(node).and_then(|pin| stat::of(pin.as_fd()));
        attributes.is_ok_and(|attributes| attributes.mode & libc::S_ISVTX != 0)
    }
}
