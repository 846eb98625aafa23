//! `statx`: the attributes of a file together with its birth time and mount, and its generation.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

mod attributes;
mod generation;
mod inode;

pub(crate) use attributes::{Attributes, Time, kind_of_entry};
pub(crate) use generation::generation;
pub(crate) use inode::Inode;

use nix::Result;

/// `STATX_MNT_ID` of include/uapi/linux/stat.h (5.8).
const MNT_ID: u32 = 0x1000;

/// Attributes of an open file, also of one opened with `O_PATH`.
pub(crate) fn of(fd: BorrowedFd<'_>) -> Result<Attributes> {
    statx(fd, c"", libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW)
}

/// Attributes of an open file as the kernel knows them, without a request to its filesystem.
pub(crate) fn as_known(fd: BorrowedFd<'_>) -> Result<Attributes> {
    statx(fd, c"", libc::AT_EMPTY_PATH | AT_STATX_DONT_SYNC)
}

/// Attributes of a name in a directory; of the link itself if it is one.
pub(crate) fn at(directory: BorrowedFd<'_>, name: &CStr) -> Result<Attributes> {
    statx(directory, name, libc::AT_SYMLINK_NOFOLLOW)
}

/// Attributes of the target of a name in a directory, as the kernel knows them: a remote filesystem, or our
/// own, gets no request for them. For a link of /proc to an open file that is always so. The lookup of a path
/// may take requests, so use [`crate::proc::near`] for paths.
pub(crate) fn known(directory: BorrowedFd<'_>, name: &CStr) -> Result<Attributes> {
    statx(directory, name, AT_STATX_DONT_SYNC)
}

/// `AT_STATX_DONT_SYNC` of include/uapi/linux/fcntl.h.
const AT_STATX_DONT_SYNC: i32 = 0x4000;

#[expect(unsafe_code)]
fn statx(fd: BorrowedFd<'_>, path: &CStr, flags: i32) -> Result<Attributes> {
    let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME | MNT_ID;
    let mut buffer = MaybeUninit::<libc::statx>::uninit();
    // SAFETY: `path` is NUL-terminated, `buffer` is writable and large enough; both outlive the
    // call.
    let result = unsafe {
        libc::statx(
            fd.as_raw_fd(),
            path.as_ptr(),
            flags,
            mask,
            buffer.as_mut_ptr(),
        )
    };
    Errno::result(result)?;
    // SAFETY: the call succeeded, so the kernel filled the whole structure.
    Ok(from_statx(&unsafe { buffer.assume_init() }))
}

fn from_statx(stat: &libc::statx) -> Attributes {
    let time = |t: &libc::statx_timestamp| Time {
        seconds: t.tv_sec,
        nanoseconds: t.tv_nsec,
    };
    Attributes {
        dev: libc::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        ino: stat.stx_ino,
        mount: if stat.stx_mask & MNT_ID != 0 {
            stat.stx_mnt_id
        } else {
            0
        },
        generation: None,
        birth: (stat.stx_mask & libc::STATX_BTIME != 0).then(|| time(&stat.stx_btime)),
        mode: u32::from(stat.stx_mode),
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        device: (stat.stx_rdev_major, stat.stx_rdev_minor),
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        block_size: stat.stx_blksize,
        accessed: time(&stat.stx_atime),
        modified: time(&stat.stx_mtime),
        changed: time(&stat.stx_ctime),
    }
}
