//! Making names: files, directories, links, special files.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd};

use flowtrace_schema::FileId;
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{Mode, SFlag, mkdirat, mknodat};
use nix::unistd::{linkat, symlinkat};

use super::{Entry, Passthrough};
use crate::fs::credentials::{Requester, set_mask};
use crate::fs::node::Node;
use nix::Result;

/// Kind of node to make.
#[derive(Clone, Copy, Debug)]
pub(in crate::fs) enum NewNode<'a> {
    /// A directory.
    Directory {
        /// Permission bits.
        mode: u32,
        /// The caller's file creation mask.
        mask: u32,
    },
    /// A regular file, FIFO, socket or device.
    Special {
        /// Type and permission bits.
        mode: u32,
        /// The caller's file creation mask.
        mask: u32,
        /// Major and minor number of a device.
        device: (u32, u32),
    },
    /// A symbolic link.
    Symlink {
        /// Its target.
        target: &'a OsStr,
    },
}

impl Passthrough {
    /// Makes a file that is not opened. Counts a lookup. The second value is the file of the call, also on
    /// failure.
    pub(in crate::fs) fn make(
        &self,
        who: Requester,
        parent: &Node,
        name: &OsStr,
        new: NewNode<'_>,
    ) -> (Result<Entry>, Option<FileId>) {
        let _names = parent.change_names();
        let result = self
            .make_real(who, parent, name, new)
            .and_then(|()| self.find_shown(parent, name));
        let file = match &result {
            Ok(entry) => entry.node.recorded(),
            Err(_) => self.known_as(parent, name),
        };
        (result, file)
    }

    fn make_real(
        &self,
        who: Requester,
        parent: &Node,
        name: &OsStr,
        new: NewNode<'_>,
    ) -> Result<()> {
        if !parent.shows(name) {
            return Err(Errno::EACCES);
        }
        self.spare(1)?;
        let unmasked = match new {
            NewNode::Directory { mask, .. } | NewNode::Special { mask, .. } => set_mask(mask),
            NewNode::Symlink { .. } => 0,
        };
        let _as_caller = self.credentials.make_as(who)?;
        let parent = self.pin(parent)?;
        let directory = parent.as_fd();
        match new {
            NewNode::Directory { mode, .. } => {
                mkdirat(directory, name, permissions(mode, unmasked))
            }
            NewNode::Special { mode, device, .. } => mknodat(
                directory,
                name,
                SFlag::from_bits_truncate(mode & libc::S_IFMT),
                permissions(mode, unmasked),
                libc::makedev(device.0, device.1),
            ),
            NewNode::Symlink { target } => symlinkat(target, directory, name),
        }
    }

    /// Gives a file another name. Counts a lookup.
    pub(in crate::fs) fn link(
        &self,
        who: Requester,
        node: &Node,
        parent: &Node,
        name: &OsStr,
    ) -> Result<Entry> {
        if !parent.shows(name) {
            return Err(Errno::EACCES);
        }
        let _names = parent.change_names();
        let _as_caller = self.credentials.act_as(who)?;
        linkat(
            self.descriptors.as_fd(),
            self.pin(node)?.as_raw_fd().to_string().as_str(),
            self.pin(parent)?.as_fd(),
            name,
            AtFlags::AT_SYMLINK_FOLLOW,
        )?;
        self.find_shown(parent, name)
    }
}

/// Permission bits without those of `unmasked`, a mask that could not be set.
pub(super) fn permissions(mode: u32, unmasked: u32) -> Mode {
    Mode::from_bits_truncate(mode & 0o7777 & !unmasked)
}
