//! Notifications to the kernel, which answer no request.

use nix::errno::Errno;
use zerocopy::{Immutable, IntoBytes};

use super::abi::{NotifyInvalInode, NotifyRetrieve, OutHeader, notify};
use super::device::Device;

/// Makes the kernel drop pages of a node.
///
/// # Errors
/// `ENOENT` if the kernel does not know the node any more.
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

/// Makes the kernel request the attributes of a node again; its pages are kept.
///
/// # Errors
/// `ENOENT` if the kernel does not know the node any more.
pub(crate) fn forget_attributes(device: &dyn Device, node: u64) -> Result<(), Errno> {
    let no_pages = NotifyInvalInode {
        ino: node,
        off: -1,
        len: 0,
    };
    send(device, notify::INVAL_INODE, &no_pages)
}

/// Makes the kernel look up every name again (Linux 6.16).
///
/// # Errors
/// `EINVAL` if the kernel does not have this notification.
pub(crate) fn look_up_again(device: &dyn Device) -> Result<(), Errno> {
    send(device, notify::INC_EPOCH, &())
}

/// Makes the kernel send a request, numbered `unique`, on the CPU of this thread. The request has none of the
/// data of a regular file.
///
/// # Errors
/// `EINVAL` if the node is no regular file, `ENOTCONN` if the mount is gone.
pub(crate) fn make_request(device: &dyn Device, node: u64, unique: u64) -> Result<(), Errno> {
    let nothing = NotifyRetrieve {
        notify_unique: unique,
        nodeid: node,
        offset: 0,
        size: 0,
        padding: 0,
    };
    send(device, notify::RETRIEVE, &nothing)
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
