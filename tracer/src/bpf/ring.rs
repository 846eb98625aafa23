//! A ring of records that eBPF programs write (Documentation/bpf/ringbuf.rst).
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Map;
use crate::mapping::Mapping;

/// Bits in the first word of a record: still being written, and discarded.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER: usize = 8;
const PAGE: usize = 4096;

/// One ring.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Page with the position up to which flowtrace has read.
    consumer: Mapping,
    /// Page with the position up to which there are records, followed by the records, mapped twice in a row
    /// so that none is cut.
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

    /// Calls `record` with all records that were begun before this call.
    pub(crate) fn drain_all(&mut self, mut record: impl FnMut(&[u8])) {
        // A record takes less than a microsecond to write, unless a virtual machine loses its CPU meanwhile.
        const PATIENCE: u32 = 10_000;
        for _ in 0..PATIENCE {
            if !self.drain(&mut record) {
                break;
            }
            std::thread::yield_now();
        }
    }

    /// Calls `record` with the waiting records, up to one that is still being written. Returns true if there
    /// is such a one, after which others may be complete.
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
                // This kernel does not write such a record: nothing after it can be trusted.
                at = end;
                break;
            }
            if first & DISCARDED == 0 {
                // SAFETY: the kernel has marked the record complete, and does not write there until it is
                // reported as read; it lies within the two mappings of the data.
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

/// Readable when a program has woken the reader.
impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}
