//! Changing attributes.

use std::os::fd::{AsFd, AsRawFd};

use flowtrace_schema::Op;
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FchmodatFlags, Mode, UtimensatFlags, fchmodat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchownat, ftruncate, truncate};

use super::Passthrough;
use super::data::signed;
use crate::fs::credentials::Requester;
use crate::fs::handle::OpenFile;
use crate::fs::node::Node;
use crate::fs::sys::path_of;
use crate::stat::{Attributes, Time};
use nix::Result;

/// Attributes to change; those with `None` stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::fs) struct Changes {
    /// Permission bits.
    pub(in crate::fs) mode: Option<u32>,
    /// Owner.
    pub(in crate::fs) uid: Option<u32>,
    /// Group.
    pub(in crate::fs) gid: Option<u32>,
    /// Size.
    pub(in crate::fs) size: Option<u64>,
    /// Time of last access.
    pub(in crate::fs) accessed: Option<SetTime>,
    /// Time of last change of the data.
    pub(in crate::fs) modified: Option<SetTime>,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fs) enum SetTime {
    /// This time.
    To(Time),
    /// The time of the change.
    Now,
}

impl Changes {
    /// The operation of the application.
    pub(in crate::fs) fn op(&self) -> Op {
        let owner = self.uid.is_some() || self.gid.is_some();
        let times = self.accessed.is_some() || self.modified.is_some();
        match (self.mode.is_some(), owner, self.size.is_some(), times) {
            (true, false, false, false) => Op::Chmod,
            (false, true, false, false) => Op::Chown,
            (false, false, true, false) => Op::Truncate,
            (false, false, false, true) => Op::Utimens,
            _ => Op::Setattr,
        }
    }
}

impl Passthrough {
    /// Changes attributes, through an open file if there is one.
    pub(in crate::fs) fn setattr(
        &self,
        who: Requester,
        node: &Node,
        open: Option<&OpenFile>,
        changes: Changes,
    ) -> Result<Attributes> {
        let as_caller = self.credentials.act_as(who)?;
        if let Some(size) = changes.size {
            self.truncate(node, open, size)?;
            self.strip_privilege(who, node)?;
            self.record_size(node.file, size);
        }
        // The owner before the mode: a change of owner may clear bits of the mode.
        if changes.uid.is_some() || changes.gid.is_some() {
            fchownat(
                self.pin(node)?.as_fd(),
                "",
                changes.uid.map(Uid::from_raw),
                changes.gid.map(Gid::from_raw),
                AtFlags::AT_EMPTY_PATH,
            )?;
        }
        if let Some(mode) = changes.mode {
            self.chmod(node, mode)?;
        }
        if changes.accessed.is_some() || changes.modified.is_some() {
            utimensat(
                self.descriptors.as_fd(),
                self.pin(node)?.as_raw_fd().to_string().as_str(),
                &time_to_set(changes.accessed),
                &time_to_set(changes.modified),
                UtimensatFlags::FollowSymlink,
            )?;
        }
        drop(as_caller);
        self.getattr(node)
    }

    pub(super) fn chmod(&self, node: &Node, mode: u32) -> Result<()> {
        fchmodat(
            self.descriptors.as_fd(),
            self.pin(node)?.as_raw_fd().to_string().as_str(),
            Mode::from_bits_truncate(mode & 0o7777),
            FchmodatFlags::FollowSymlink,
        )
    }

    fn truncate(&self, node: &Node, open: Option<&OpenFile>, size: u64) -> Result<()> {
        let size = signed(size).map_err(|_| Errno::EFBIG)?;
        match open {
            Some(open) => ftruncate(open.fd.as_fd(), size),
            None => truncate(path_of(self.pin(node)?.as_fd()).as_c_str(), size),
        }
    }
}

fn time_to_set(time: Option<SetTime>) -> TimeSpec {
    match time {
        None => TimeSpec::UTIME_OMIT,
        Some(SetTime::Now) => TimeSpec::UTIME_NOW,
        Some(SetTime::To(time)) => TimeSpec::new(time.seconds, i64::from(time.nanoseconds)),
    }
}
