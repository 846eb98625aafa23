//! Extended attributes.

use std::ffi::OsStr;
use std::os::fd::AsFd;

use super::Passthrough;
use crate::fs::node::Node;
use crate::fs::sys::{c_string, path_of, xattr};
use nix::Result;

impl Passthrough {
    /// Reads an attribute into `value`; returns its size if `value` is empty.
    pub(in crate::fs) fn getxattr(
        &self,
        node: &Node,
        name: &OsStr,
        value: &mut [u8],
    ) -> Result<usize> {
        xattr::get(&path_of(self.pin(node)?.as_fd()), &c_string(name)?, value)
    }

    /// Sets an attribute.
    pub(in crate::fs) fn setxattr(
        &self,
        node: &Node,
        name: &OsStr,
        value: &[u8],
        flags: i32,
    ) -> Result<()> {
        xattr::set(
            &path_of(self.pin(node)?.as_fd()),
            &c_string(name)?,
            value,
            flags,
        )
    }

    /// Reads the names of all attributes into `list`; returns their size if `list` is empty.
    pub(in crate::fs) fn listxattr(&self, node: &Node, list: &mut [u8]) -> Result<usize> {
        xattr::list(&path_of(self.pin(node)?.as_fd()), list)
    }

    /// Removes an attribute.
    pub(in crate::fs) fn removexattr(&self, node: &Node, name: &OsStr) -> Result<()> {
        xattr::remove(&path_of(self.pin(node)?.as_fd()), &c_string(name)?)
    }
}
