//! Arrays that programs and we have in memory at the same time.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use super::Map;

/// The memory of an array: zeros at first.
#[derive(Debug)]
pub(crate) struct Mapped {
    start: NonNull<u8>,
    length: usize,
    map: Map,
}

// SAFETY: what others write there meanwhile is only accessed as atomic words, or by who knows that it is complete.
unsafe impl Send for Mapped {}
// SAFETY: likewise.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// An array of so many values of `value` bytes, a multiple of 8.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn new(value: usize, entries: u32) -> io::Result<Mapped> {
        let map = Map::mappable(value, entries)?;
        let length = value * entries as usize;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(place) if start != libc::MAP_FAILED => Ok(Mapped {
                start: place,
                length,
                map,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The word at this offset, a multiple of 8.
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: it is aligned, within the mapping, and both sides access it as one.
        unsafe { &*self.bytes(at, 8).cast::<AtomicU64>().as_ptr() }
    }

    /// Where so many bytes are from this offset on.
    pub(super) fn bytes(&self, at: usize, count: usize) -> NonNull<u8> {
        assert!(at.is_multiple_of(8) && at + count <= self.length);
        // SAFETY: it is within the mapping.
        unsafe { self.start.add(at) }
    }
}

impl AsFd for Mapped {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and nothing of it is borrowed any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
