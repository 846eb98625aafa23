//! Mappings of a file or of kernel memory (mmap(2)).
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A mapping, which ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it gives away addresses only; the user of an address is responsible for the accesses.
unsafe impl Send for Mapping {}
// SAFETY: likewise.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// A shared mapping, for reading and writing, of `length` bytes of a file from `offset` on.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn shared(of: BorrowedFd<'_>, offset: usize, length: usize) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        Self::new(of, offset, length, protection, libc::MAP_SHARED)
    }

    /// A mapping with any protection, shared or private (mmap(2)).
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn new(
        of: BorrowedFd<'_>,
        offset: usize,
        length: usize,
        protection: libc::c_int,
        sharing: libc::c_int,
    ) -> io::Result<Mapping> {
        let (none, fd) = (std::ptr::null_mut(), of.as_raw_fd());
        // SAFETY: a new mapping at a place that the kernel chooses.
        let start =
            unsafe { libc::mmap(none, length, protection, sharing, fd, offset as libc::off_t) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(Mapping { start, length })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length of the mapping in bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
