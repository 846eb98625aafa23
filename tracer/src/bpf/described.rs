//! The kernel's description of its types, mapped: 5 MB, of which read(2) gives a page at a time.

#![expect(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::path::Path;

use crate::mapping::Mapping;

/// A file of bytes that do not change.
#[derive(Debug)]
pub(crate) enum Described {
    Read(Vec<u8>),
    Mapped(Mapping),
}

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
        let (protection, sharing) = (libc::PROT_READ, libc::MAP_PRIVATE);
        match Mapping::new(file.as_fd(), 0, length, protection, sharing) {
            Ok(mapping) => Ok(Described::Mapped(mapping)),
            Err(_) => fs::read(path).map(Described::Read),
        }
    }
}

impl Deref for Described {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Described::Read(bytes) => bytes,
            // SAFETY: mapped for reading, as long as `self` lives; the running kernel's description does not
            // change.
            Described::Mapped(mapping) => unsafe {
                std::slice::from_raw_parts(mapping.start().as_ptr(), mapping.length())
            },
        }
    }
}
