//! The kernel's description of its types as it lies in its memory: 5 MB, of which read(2) gives a page at a time.

#![expect(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{self, NonNull};

/// A file of bytes that do not change.
#[derive(Debug)]
pub(crate) enum Described {
    Read(Vec<u8>),
    /// Its mapping, and how long it is.
    Mapped(NonNull<u8>, usize),
}

// SAFETY: nobody writes to what is mapped.
unsafe impl Send for Described {}
// SAFETY: likewise.
unsafe impl Sync for Described {}

impl Described {
    /// The file at `path`, mapped where the kernel has that (Linux 6.16) for files whose contents never change.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn open(path: &Path) -> io::Result<Described> {
        let file = File::open(path)?;
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        if length == 0 {
            return fs::read(path).map(Described::Read);
        }
        // SAFETY: a new mapping at a place that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(start.cast()) {
            Some(place) if start != libc::MAP_FAILED => Ok(Described::Mapped(place, length)),
            _ => fs::read(path).map(Described::Read),
        }
    }
}

impl Deref for Described {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Described::Read(bytes) => bytes,
            // SAFETY: mapped as long as `self` lives, to be read, and so long; the running kernel's description of itself stays as it is.
            Described::Mapped(start, length) => unsafe {
                std::slice::from_raw_parts(start.as_ptr(), *length)
            },
        }
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        if let Described::Mapped(start, length) = self {
            // SAFETY: mapped by `open`, and nothing of it is borrowed any more.
            unsafe { libc::munmap(start.as_ptr().cast(), *length) };
        }
    }
}
