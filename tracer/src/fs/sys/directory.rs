//! `getdents64`: directory entries with the positions that the kernel gives them.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use nix::Result;

/// One directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) ino: u64,
    /// Position after this entry.
    pub(crate) offset: u64,
    /// `DT_*`.
    pub(crate) kind: u8,
    pub(crate) name: &'a CStr,
    /// Bytes that the entry occupies in the buffer.
    pub(crate) length: usize,
}

/// Fills `buffer` with entries from the current position on; 0 at the end.
#[expect(unsafe_code)]
pub(crate) fn read(directory: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into `buffer`.
    let filled = unsafe {
        libc::syscall(
            libc::SYS_getdents64,
            directory.as_raw_fd(),
            buffer.as_mut_ptr(),
            buffer.len(),
        )
    };
    Errno::result(filled).map(|filled| filled as usize)
}

/// The first entry in `bytes`, which [`read`] filled; `None` if there is no whole one.
pub(crate) fn first(bytes: &[u8]) -> Option<Entry<'_>> {
    // struct linux_dirent64: u64 ino, i64 offset, u16 length, u8 kind, name with NUL
    let ino = u64::from_ne_bytes(bytes.get(0..8)?.try_into().ok()?);
    let offset = u64::from_ne_bytes(bytes.get(8..16)?.try_into().ok()?);
    let length = usize::from(u16::from_ne_bytes(bytes.get(16..18)?.try_into().ok()?));
    let kind = *bytes.get(18)?;
    let name = CStr::from_bytes_until_nul(bytes.get(19..length)?).ok()?;
    Some(Entry {
        ino,
        offset,
        kind,
        name,
        length,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some(entry) = first(&bytes) {
                prop_assert!(entry.length <= bytes.len());
                prop_assert!(entry.length > 19);
            }
        }
    }
}
