//! Control calls on `/dev/fuse` (`include/uapi/linux/fuse.h`).

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

/// `FUSE_DEV_IOC_CLONE`.
const CLONE: libc::Ioctl = 0x8004_e500_u32 as libc::Ioctl;
/// `FUSE_DEV_IOC_BACKING_CLOSE`.
const BACKING_CLOSE: libc::Ioctl = 0x4004_e502;

/// Another descriptor for the mount of `device`.
pub(crate) fn another(device: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let new = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")?;
    with_number(new.as_raw_fd(), CLONE, device.as_raw_fd() as u32)?;
    Ok(new.into())
}

/// Ends the registration `id` of a file for passthrough.
pub(crate) fn close_backing(device: BorrowedFd<'_>, id: u32) -> io::Result<()> {
    with_number(device.as_raw_fd(), BACKING_CLOSE, id)
}

#[expect(unsafe_code)]
fn with_number(device: i32, command: libc::Ioctl, mut number: u32) -> io::Result<()> {
    // SAFETY: both commands above read one `u32` at the pointer.
    let result = unsafe { libc::ioctl(device, command, &raw mut number) };
    Ok(Errno::result(result).map(drop)?)
}
