//! Arrays in memory that eBPF programs and flowtrace share.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use super::Map;
use crate::mapping::Mapping;

/// The memory of an array: zeros at first.
#[derive(Debug)]
pub(crate) struct Mapped {
    memory: Mapping,
    map: Map,
}

impl Mapped {
    /// An array of `entries` values of `value` bytes, a multiple of 8.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn new(value: usize, entries: u32) -> io::Result<Mapped> {
        let map = Map::mappable(value, entries)?;
        let memory = Mapping::shared(map.as_fd(), 0, value * entries as usize)?;
        Ok(Mapped { memory, map })
    }

    /// The word at this offset, a multiple of 8.
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: it is aligned, within the mapping, and both sides access it as one word.
        unsafe { &*self.bytes(at, 8).cast::<AtomicU64>().as_ptr() }
    }

    /// Pointer to `count` bytes from this offset on.
    pub(super) fn bytes(&self, at: usize, count: usize) -> NonNull<u8> {
        assert!(at.is_multiple_of(8) && at + count <= self.memory.length());
        // SAFETY: it is within the mapping.
        unsafe { self.memory.start().add(at) }
    }
}

impl AsFd for Mapped {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}
