//! Lookups, attributes, and other operations that only read.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use flowtrace_schema::FileId;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::Mode;
use nix::sys::statvfs::{Statvfs, fstatvfs};
use nix::unistd::{AccessFlags, faccessat};

use super::{Entry, Passthrough};
use crate::fs::credentials::Requester;
use crate::fs::node::Node;
use crate::fs::sys::{c_string, path_of, xattr};
use crate::stat;
use crate::stat::Attributes;
use nix::Result;

impl Passthrough {
    /// Finds a name in a directory. On success the kernel must get the node: it will forget the node once for
    /// each time. The second value is the file of the call, also on failure.
    pub(in crate::fs) fn lookup(
        &self,
        who: Requester,
        parent: &Node,
        name: &OsStr,
    ) -> (Result<Entry>, Option<FileId>) {
        let _names = parent.read_names();
        let result = if parent.shows(name) {
            self.credentials
                .act_as(who)
                .and_then(|_as_caller| self.find_shown(parent, name))
        } else {
            Err(Errno::ENOENT)
        };
        let file = match &result {
            Ok(entry) => entry.node.recorded(),
            Err(Errno::ENOENT) if parent.shows(name) => self.record_missing(parent, name),
            Err(_) => None,
        };
        (result, file)
    }

    /// As [`Passthrough::lookup`] without hidden names and absence. The caller has the lock on the names of the
    /// directory.
    pub(super) fn find_shown(&self, parent: &Node, name: &OsStr) -> Result<Entry> {
        let parent_pin = self.pin(parent)?;
        let attributes = stat::at(parent_pin.as_fd(), &c_string(name)?)?;
        let (node, attributes) = match self.nodes.find(&attributes) {
            Some(node) => {
                self.found(parent, name, &node);
                if self.has_given_up() {
                    self.is_here(&node, parent, name);
                }
                (node, attributes)
            }
            None => {
                let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                let open = || openat(parent_pin.as_fd(), name, flags, Mode::empty());
                let fd = self.or_evict(open)?;
                let attributes = stat::of(fd.as_fd())?;
                (self.enter(parent, Some(name), fd, &attributes), attributes)
            }
        };
        let attributes = self.show_in(parent, &node, attributes);
        Ok(Entry { node, attributes })
    }

    /// The kernel forgets `lookups` lookups of a node.
    pub(in crate::fs) fn forget(&self, id: u64, lookups: u64) {
        let Some(node) = self.nodes.forget(id, lookups) else {
            return;
        };
        if let Some(trace) = &self.trace
            && node.unlinked.load(Ordering::Relaxed)
            && let Some(pin) = node.descriptor.pin()
            && let Ok(attributes) = stat::of(pin.as_fd())
            && attributes.links == 0
        {
            trace.files.gone(&attributes);
        }
    }

    /// Attributes of a node.
    pub(in crate::fs) fn getattr(&self, node: &Node) -> Result<Attributes> {
        Ok(self.show(node, stat::of(self.pin(node)?.as_fd())?))
    }

    /// Target of a symbolic link.
    pub(in crate::fs) fn readlink(&self, node: &Node) -> Result<OsString> {
        readlinkat(self.pin(node)?.as_fd(), "")
    }

    /// Fails unless this process may use a node as `mask` (`R_OK`, `W_OK`, `X_OK`) asks.
    pub(in crate::fs) fn access(&self, node: &Node, mask: i32) -> Result<()> {
        let mode = AccessFlags::from_bits_truncate(mask);
        let pin = self.pin(node)?;
        let path = path_of(pin.as_fd());
        faccessat(
            self.descriptors.as_fd(),
            path.as_c_str(),
            mode,
            AtFlags::AT_EACCESS,
        )
    }

    /// Forces the whole filesystem of a node to storage.
    pub(in crate::fs) fn syncfs(&self, node: &Node) -> Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
        nix::unistd::syncfs(self.reopen(node, flags)?)
    }

    /// True if every user may search a directory.
    pub(in crate::fs) fn is_open_to_all(&self, directory: &Node) -> bool {
        const ALL: u32 = 0o111;
        let open = || -> Result<bool> {
            let pin = self.pin(directory)?;
            // The mode bits do not show which users an access list excludes.
            let list = c"system.posix_acl_access";
            let has_list = xattr::get(&path_of(pin.as_fd()), list, &mut []).is_ok();
            Ok(stat::of(pin.as_fd())?.mode & ALL == ALL && !has_list)
        };
        open().unwrap_or(false)
    }

    /// Figures of the filesystem of a node.
    pub(in crate::fs) fn statfs(&self, node: &Node) -> Result<Statvfs> {
        fstatvfs(self.pin(node)?.as_fd())
    }
}
