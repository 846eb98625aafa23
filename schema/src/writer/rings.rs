//! The rings through which threads pass many small rows to the writer, without a lock or an allocation.

use std::sync::Mutex;
use std::thread::{self, Thread};
use std::time::Duration;

use rtrb::{Consumer, Producer};

use crate::{Call, ChannelCall, Packet};

/// Calls that may wait in one ring before its thread waits.
pub(super) const CALLS: usize = 1 << 12;
/// Packets that may wait in one ring before its thread waits.
pub(super) const PACKETS: usize = 1 << 14;
/// Number of rows after which a ring's owner checks if the writer should be woken.
const WAKE_EVERY: u32 = 1024;

/// Passes the calls of one thread to the writer, without a lock or an allocation.
pub type CallRing = Ring<Call>;
/// Passes the calls on pipes and sockets of one thread to the writer, without a lock or an allocation.
pub type ChannelCallRing = Ring<ChannelCall>;
/// Passes the packets of one thread to the writer, without a lock or an allocation.
pub type PacketRing = Ring<Packet>;

/// The end of a ring that belongs to the thread that records.
#[derive(Debug)]
pub struct Ring<T> {
    ring: Producer<T>,
    writer: Thread,
    since_wake: u32,
}

impl<T: Copy> Ring<T> {
    /// Adds a row to the ring; waits while the ring is full.
    #[inline]
    pub fn push(&mut self, row: T) {
        if self.ring.push(row).is_err() {
            self.wait_and_push(row);
        }
        self.since_wake += 1;
        if self.since_wake >= WAKE_EVERY {
            self.since_wake = 0;
            if self.ring.slots() < self.ring.buffer().capacity() / 2 {
                self.writer.unpark();
            }
        }
    }

    #[cold]
    fn wait_and_push(&mut self, mut row: T) {
        while let Err(rtrb::PushError::Full(back)) = self.ring.push(row) {
            if self.ring.is_abandoned() {
                return;
            }
            row = back;
            self.writer.unpark();
            thread::sleep(FULL);
        }
    }
}

impl<T> Ring<T> {
    pub(super) fn new(ring: Producer<T>, writer: Thread) -> Self {
        Ring {
            ring,
            writer,
            since_wake: 0,
        }
    }
}

/// The ends of the rings that belong to the writer.
#[derive(Debug)]
pub(super) struct Rings<T>(Mutex<Vec<Consumer<T>>>);

impl<T> Default for Rings<T> {
    fn default() -> Self {
        Rings(Mutex::default())
    }
}

impl<T: Copy> Rings<T> {
    /// Adds a ring, unless the writer is about to end.
    pub(super) fn add(&self, ring: Consumer<T>, is_stopped: impl FnOnce() -> bool) {
        let mut rings = self.0.lock().expect("no panic while registering");
        if !is_stopped() {
            rings.push(ring);
        }
    }

    /// Takes the waiting rows out of the rings, so that the rings have space while these are stored.
    pub(super) fn drain(&self, rows: &mut Vec<T>) {
        let mut rings = self.0.lock().expect("no panic while registering");
        rings.retain_mut(|ring| {
            if let Ok(chunk) = ring.read_chunk(ring.slots()) {
                let (first, second) = chunk.as_slices();
                rows.extend_from_slice(first);
                rows.extend_from_slice(second);
                chunk.commit_all();
            }
            !(ring.is_abandoned() && ring.is_empty())
        });
    }

    /// Drops all rings: later rows are dropped.
    pub(super) fn clear(&self) {
        self.0.lock().expect("no panic while registering").clear();
    }
}

/// Sleep of a recorder whose ring is full.
pub(super) const FULL: Duration = Duration::from_micros(50);
