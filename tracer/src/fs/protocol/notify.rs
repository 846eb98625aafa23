//! Telling the kernel without being asked.

use nix::errno::Errno;
use zerocopy::{Immutable, IntoBytes};

use super::abi::{NotifyInvalInode, OutHeader, notify};
use super::device::Device;

/// Pages of a node are not to be kept.
///
/// # Errors
/// `ENOENT` when the kernel does not know the node any more.
pub(crate) fn drop_pages(
    device: &dyn Device,
    node: u64,
    offset: u64,
    length: u64,
) -> Result<(), Errno> {
    let signed = |value| i64::try_from(value).unwrap_or(0);
    let pages = NotifyInvalInode {
        ino: node,
        off: signed(offset),
        len: signed(length),
    };
    send(device, notify::INVAL_INODE, &pages)
}

/// Every name is to be looked up again (Linux 6.16).
///
/// # Errors
/// `EINVAL` when the kernel does not know how.
pub(crate) fn look_up_again(device: &dyn Device) -> Result<(), Errno> {
    send(device, notify::INC_EPOCH, &())
}

fn send(device: &dyn Device, code: i32, body: &(impl IntoBytes + Immutable)) -> Result<(), Errno> {
    let body = body.as_bytes();
    let header = OutHeader {
        len: (size_of::<OutHeader>() + body.len()) as u32,
        error: code,
        unique: 0,
    };
    device.send(&[header.as_bytes(), body].concat())
}
