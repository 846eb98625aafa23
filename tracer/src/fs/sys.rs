//! System calls that nix does not wrap, or not per thread. The only unsafe code of the
//! filesystem is in here.

pub(crate) mod device;
pub(crate) mod directory;
pub(crate) mod file;
pub(crate) mod thread;
pub(crate) mod xattr;

use std::ffi::CString;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;

use nix::Result;

/// A NUL-terminated copy. Names from the kernel contain no NUL; others with one are refused.
pub(crate) fn c_string(name: &OsStr) -> Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| Errno::EINVAL)
}

/// Path of the inode of a descriptor, for calls that only take paths.
pub(crate) fn path_of(fd: BorrowedFd<'_>) -> CString {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    CString::new(path).unwrap_or_default()
}
