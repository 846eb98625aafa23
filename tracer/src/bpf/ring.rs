//! A ring of records that programs in the kernel write (Documentation/bpf/ringbuf.rst).
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Map;
use crate::mapping::Mapping;

/// Bits in the first word of a record: still being written, and given up.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER: usize = 8;
const PAGE: usize = 4096;

/// One ring.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Page with the place up to which we have read.
    consumer: Mapping,
    /// Page with the place up to which there are records, and behind it the records, mapped twice in a row so
    /// that none is cut.
    producer: Mapping,
    size: usize,
    map: Map,
}

impl Ring {
    /// Maps a ring of `size` bytes.
    pub(crate) fn map(map: Map, size: usize) -> io::Result<Ring> {
        let to_read = PAGE + 2 * size;
        let consumer = Mapping::shared(map.as_fd(), 0, PAGE)?;
        let producer = Mapping::new(
            map.as_fd(),
            PAGE,
            to_read,
            libc::PROT_READ,
            libc::MAP_SHARED,
        )?;
        Ok(Ring {
            consumer,
            producer,
            size,
            map,
        })
    }

    /// Hands over all records that were begun before this.
    pub(crate) fn drain_all(&mut self, mut record: impl FnMut(&[u8])) {
        // One takes less than a microsecond to write, unless its processor was taken away from a virtual machine.
        const PATIENCE: u32 = 10_000;
        for _ in 0..PATIENCE {
            if !self.drain(&mut record) {
                break;
            }
            std::thread::yield_now();
        }
    }

    /// Hands over the records that wait, up to one that is still being written. Whether there is such a one, behind which
    /// others may be complete.
    pub(crate) fn drain(&mut self, mut record: impl FnMut(&[u8])) -> bool {
        // SAFETY: both are aligned words at the begin of pages that are mapped as long as `self`
        // lives, and that both sides only access so.
        let (consumed, produced) = unsafe {
            (
                &*self.consumer.start().as_ptr().cast::<AtomicU64>(),
                &*self.producer.start().as_ptr().cast::<AtomicU64>(),
            )
        };
        let end = produced.load(Ordering::Acquire);
        let mut at = consumed.load(Ordering::Relaxed);
        let mut is_busy = false;
        while at < end {
            let place = PAGE + (at as usize & (self.size - 1));
            // SAFETY: records begin at multiples of 8 within the data.
            let first = unsafe {
                &*self
                    .producer
                    .start()
                    .as_ptr()
                    .add(place)
                    .cast::<AtomicU32>()
            };
            let first = first.load(Ordering::Acquire);
            if first & BUSY != 0 {
                is_busy = true;
                break;
            }
            let length = (first & !DISCARDED) as usize;
            if length > self.size {
                // Not from this kernel's hand: nothing that follows can be trusted.
                at = end;
                break;
            }
            if first & DISCARDED == 0 {
                // SAFETY: the kernel has said that the record is complete, and does not write there until
                // we have told that it is read; it lies within the two mappings of the data.
                let bytes = unsafe {
                    std::slice::from_raw_parts(
                        self.producer.start().as_ptr().add(place + HEADER),
                        length,
                    )
                };
                record(bytes);
            }
            at += (HEADER + length).next_multiple_of(8) as u64;
        }
        consumed.store(at, Ordering::Release);
        is_busy
    }
}

/// Readable when a program woke whoever waits.
impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}
