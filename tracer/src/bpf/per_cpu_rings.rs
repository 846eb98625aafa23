//! Rings of records of one size, one for each CPU, that programs write without a helper and without a lock.
//!
//! A record is a slot of an array that both sides have mapped. The writer takes the next slot of its CPU
//! (`take_slot` of tracer/bpf/calls.bpf.c), and writes the number of its round of the ring last: by this
//! number the reader knows that the slot is complete, whatever else runs on that CPU in between. The kernel's
//! own ring ([`super::ring`]) takes a lock and two helpers for a record, which is most of the cost of
//! recording a call, but takes records of all sizes and can wake the reader.
//!
//! For x86-64, where stores are seen in the order in which they are made.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

use super::mapped::Mapped;
use super::object::Use;

/// Bytes of a slot (`struct slot` of tracer/bpf/events.h), as a power of 2: a cache line.
const SLOT_BITS: u32 = 6;
pub(crate) const SLOT: usize = 1 << SLOT_BITS;
/// In a slot, the word with the writer's mark in its lower half and the round in its upper half.
const MARK: usize = 12;
/// Bits of the writer's mark.
const MARK_BITS: i32 = 16;

/// Most CPUs that the programs support (`MAX_CPUS`).
const CPUS: usize = 1024;
/// Bytes of the state of a ring (`struct ring_state`), and the offset of the number of slots that were read.
const STATE: usize = 128;
const READ: usize = 64;

/// All rings.
#[derive(Debug)]
pub(crate) struct PerCpuRings {
    slots: Mapped,
    states: Mapped,
    /// Slots of a ring, as a power of 2.
    bits: u32,
    cpus: u32,
    /// Slots that were read of each ring.
    read: Vec<u64>,
}

impl PerCpuRings {
    /// A ring of `size` bytes, a power of 2 of at least 16 KiB, for each of `cpus` CPUs.
    ///
    /// # Errors
    /// When the kernel refuses, or there are more CPUs than the programs support.
    pub(crate) fn new(cpus: u32, size: usize) -> io::Result<PerCpuRings> {
        if cpus as usize > CPUS {
            return Err(io::Error::other(format!(
                "{cpus} CPUs are more than {CPUS}"
            )));
        }
        let bits = (size >> SLOT_BITS).ilog2();
        Ok(PerCpuRings {
            slots: Mapped::new(SLOT, cpus << bits)?,
            states: Mapped::new(STATE * CPUS, 1)?,
            bits,
            cpus,
            read: vec![0; cpus as usize],
        })
    }

    /// Slots of a ring, as a power of 2.
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }

    /// The maps of the rings in an object, by their names there.
    pub(crate) fn uses(&self) -> [(&'static str, Use<'_>); 2] {
        [
            ("slots", Use::Shared(self.slots.as_fd())),
            (".bss.rings", Use::Shared(self.states.as_fd())),
        ]
    }

    /// Calls `record` with each waiting record and its mark, CPU by CPU. Returns the largest used fraction of
    /// a ring, from 0 to 1. Complete records after one that is still being written come the next time.
    pub(crate) fn drain(&mut self, mut record: impl FnMut(u16, &[u8; SLOT])) -> f64 {
        let mut most = 0;
        for cpu in 0..self.cpus as usize {
            let mut at = self.read[cpu];
            loop {
                let index = (cpu << self.bits) + (at as usize & ((1 << self.bits) - 1));
                let slot = self.slots.bytes(index << SLOT_BITS, SLOT);
                // SAFETY: an aligned word of the slot, which both sides access as one.
                let mark = unsafe { &*slot.add(MARK).cast::<AtomicU32>().as_ptr() };
                let mark = mark.load(Ordering::Acquire);
                if mark >> MARK_BITS != round(at, self.bits) {
                    break;
                }
                // SAFETY: its writer has marked it complete, and does not write there until it is reported as
                // read.
                record(mark as u16, unsafe { slot.cast().as_ref() });
                at += 1;
            }
            let before = std::mem::replace(&mut self.read[cpu], at);
            if at != before {
                let read = self.states.word(STATE * cpu + READ);
                read.store(at, Ordering::Release);
                most = most.max(at - before);
            }
        }
        most as f64 / (1u64 << self.bits) as f64
    }
}

/// The upper half of the mark in slot `at`: never that of the round before, nor 0 in the first round.
fn round(at: u64, bits: u32) -> u32 {
    ((at >> bits) as u32).wrapping_add(1) & 0xffff
}
