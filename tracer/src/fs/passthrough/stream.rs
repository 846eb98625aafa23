//! A position in a directory.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::unistd::{Whence, lseek};

use crate::fs::sys::directory::{self, Entry};
use nix::Result;

/// Bytes of entries fetched at once.
const BUFFER: usize = 32 * 1024;

/// An open directory that is read entry by entry. Positions are those of the real filesystem, so that
/// `seekdir` works, and changes during the reading have the same effect as there.
#[derive(Debug)]
pub(crate) struct Stream {
    fd: Arc<OwnedFd>,
    buffer: Box<[u8]>,
    /// Part of the buffer not yet consumed.
    unread: std::ops::Range<usize>,
    /// Position of the first unread entry.
    position: u64,
}

impl Stream {
    pub(super) fn new(fd: Arc<OwnedFd>) -> Stream {
        Stream {
            fd,
            buffer: Box::default(),
            unread: 0..0,
            position: 0,
        }
    }

    /// The real directory.
    pub(super) fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Calls `take` for each entry from `position` on until it returns `false`; the entry that it refused
    /// comes first next time.
    pub(super) fn read(
        &mut self,
        position: u64,
        mut take: impl FnMut(&OwnedFd, Entry<'_>) -> Result<bool>,
    ) -> Result<()> {
        // At the start the buffer is always filled anew: rewinddir must show changes.
        if position != self.position || position == 0 {
            lseek(self.fd.as_fd(), position as i64, Whence::SeekSet)?;
            self.unread = 0..0;
            self.position = position;
        }
        loop {
            if self.unread.is_empty() && !self.fill()? {
                return Ok(());
            }
            let Some(entry) = directory::first(&self.buffer[self.unread.clone()]) else {
                self.unread = 0..0;
                continue;
            };
            let (length, next) = (entry.length, entry.offset);
            if !take(&self.fd, entry)? {
                return Ok(());
            }
            self.unread.start += length;
            self.position = next;
        }
    }

    fn fill(&mut self) -> Result<bool> {
        if self.buffer.is_empty() {
            self.buffer = vec![0; BUFFER].into_boxed_slice();
        }
        let filled = directory::read(self.fd.as_fd(), &mut self.buffer)?;
        self.unread = 0..filled;
        Ok(filled > 0)
    }
}

/// True if an entry is the directory itself or its parent.
pub(super) fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
