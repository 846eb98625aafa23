//! Extended attributes of any inode, named by the path `/proc/self/fd/N` of its descriptor: the
//! kernel follows that link to the inode itself, so that symbolic links and special files work
//! and nothing is opened.

use std::ffi::{CStr, c_void};

use nix::errno::Errno;

use nix::Result;

/// Reads an attribute into `value`; returns its size if `value` is empty.
#[expect(unsafe_code)]
pub(crate) fn get(path: &CStr, name: &CStr, value: &mut [u8]) -> Result<usize> {
    // SAFETY: both strings are NUL-terminated; at most `value.len()` bytes are written.
    let size = unsafe {
        libc::getxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_mut_ptr().cast::<c_void>(),
            value.len(),
        )
    };
    Errno::result(size).map(|size| size as usize)
}

/// Sets an attribute.
#[expect(unsafe_code)]
pub(crate) fn set(path: &CStr, name: &CStr, value: &[u8], flags: i32) -> Result<()> {
    // SAFETY: both strings are NUL-terminated; `value.len()` bytes are read from `value`.
    let result = unsafe {
        libc::setxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast::<c_void>(),
            value.len(),
            flags,
        )
    };
    Errno::result(result).map(drop)
}

/// Reads the list of names into `list`; returns its size if `list` is empty.
#[expect(unsafe_code)]
pub(crate) fn list(path: &CStr, list: &mut [u8]) -> Result<usize> {
    // SAFETY: the path is NUL-terminated; at most `list.len()` bytes are written.
    let size = unsafe {
        libc::listxattr(
            path.as_ptr(),
            list.as_mut_ptr().cast::<libc::c_char>(),
            list.len(),
        )
    };
    Errno::result(size).map(|size| size as usize)
}

/// Removes an attribute.
#[expect(unsafe_code)]
pub(crate) fn remove(path: &CStr, name: &CStr) -> Result<()> {
    // SAFETY: both strings are NUL-terminated.
    let result = unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) };
    Errno::result(result).map(drop)
}
