//! Removing and renaming.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};
use rustix::fs::{RenameFlags, renameat_with};

use super::Passthrough;
use super::names::change_both;
use crate::file_table::NameIn;
use crate::fs::credentials::Requester;
use crate::fs::descriptor::Pin;
use crate::fs::node::Node;
use nix::Result;

impl Passthrough {
    /// Removes a name: that of a directory if `directory` is set, of any other file if not.
    pub(in crate::fs) fn remove(
        &self,
        who: Requester,
        parent: &Node,
        name: &OsStr,
        directory: bool,
    ) -> Result<()> {
        if !parent.shows(name) {
            return Err(Errno::ENOENT);
        }
        let pin = self.pin(parent)?;
        let _names = parent.change_names();
        self.mark_unlinked(&pin, name);
        let flags = if directory {
            UnlinkatFlags::RemoveDir
        } else {
            UnlinkatFlags::NoRemoveDir
        };
        {
            let _as_caller = self.credentials.act_as(who)?;
            unlinkat(pin.as_fd(), name, flags)?;
        }
        if let (Some(trace), Some(directory)) = (&self.trace, parent.file) {
            let name = NameIn { directory, name };
            trace.files.removed(name, trace.clock.now());
        }
        Ok(())
    }

    /// Renames, with the flags of `renameat2`. Returns the directories that move, if known.
    pub(in crate::fs) fn rename(
        &self,
        who: Requester,
        from: (&Node, &OsStr),
        to: (&Node, &OsStr),
        flags: u32,
    ) -> Result<[Option<Arc<Node>>; 2]> {
        if !from.0.shows(from.1) {
            return Err(Errno::ENOENT);
        }
        if !to.0.shows(to.1) {
            return Err(Errno::EACCES);
        }
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let (from_pin, to_pin) = (self.pin(from.0)?, self.pin(to.0)?);
        let _names = change_both(from.0, to.0);
        if !exchange {
            self.mark_unlinked(&to_pin, to.1);
        }
        let moved =
            [(&from_pin, from.1), (&to_pin, to.1)].map(|(pin, name)| self.pin_named(pin, name));
        {
            let _as_caller = self.credentials.act_as(who)?;
            renameat_with(from_pin.as_fd(), from.1, to_pin.as_fd(), to.1, flags)
                .map_err(|error| Errno::from_raw(error.raw_os_error()))?;
        }
        if let (Some(trace), Some(from_in), Some(to_in)) = (&self.trace, from.0.file, to.0.file) {
            let from = NameIn {
                directory: from_in,
                name: from.1,
            };
            let to = NameIn {
                directory: to_in,
                name: to.1,
            };
            let now = trace.clock.now();
            trace.files.renamed(from, to, exchange, now);
        }
        Ok(moved)
    }

    /// Marks the node of a name that is about to be removed, so that its identity can be given up with the
    /// inode.
    fn mark_unlinked(&self, directory: &Pin, name: &OsStr) {
        if self.trace.is_none() && !self.has_given_up() {
            return;
        }
        if let Some(node) = self.pin_named(directory, name) {
            node.unlinked.store(true, Ordering::Relaxed);
        }
    }
}
