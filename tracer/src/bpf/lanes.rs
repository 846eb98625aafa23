//! Rings of records of one size, one ring for each processor, that programs write without a helper's help and without a lock.
//!
//! A record is a slot of an array that both sides have mapped. Who writes takes the next slot of its processor, and writes last which
//! round of the ring it is in: whoever reads knows by that alone that a slot is complete. So it matters not if somebody else runs in
//! between, on the same processor as well. The kernel's own ring ([`super::ring`]) takes a lock and two helpers for a record, which is
//! most of what telling of a call costs, but takes records of all sizes and can wake who reads.
//!
//! Of x86-64, where stores are seen in the order in which they are made.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use super::code::{
    ADD, AND_NUMBER, ATOMIC_64, Code, FETCH_ADD, IF_EQUAL, IF_GREATER, LOAD_32, LOAD_64, LOOK_UP,
    MAP, MEMORY_OF_MAP, OR, R0, R1, R2, R3, SHIFT_LEFT, SHIFT_RIGHT, STACK, STORE_32, SUBTRACT,
};
use super::mapped::Mapped;

/// Bytes of a slot, as a power of 2: a line of memory of the processor.
const SLOT_BITS: u32 = 6;
pub(crate) const SLOT: usize = 1 << SLOT_BITS;
/// In a slot, the word with what the writer marks it with, and in its upper half the round.
const MARK: usize = 12;
/// Bits that the writer may mark a slot with.
pub(crate) const MARK_BITS: i32 = 16;

/// What there is of each processor in [`Lanes::places`]: how many slots were taken, and how many were read, in lines of their own.
const PLACES_BITS: i32 = 7;
const PLACES: usize = 1 << PLACES_BITS;
const TAKEN: i16 = 0;
const READ: i16 = 64;
/// Slots that stay free: whoever looks whether one is left takes it a moment later, and others of its processor may come in between.
const SPARE: usize = 64;

/// All rings.
#[derive(Debug)]
pub(crate) struct Lanes {
    slots: Mapped,
    places: Mapped,
    /// Slots of a ring, as a power of 2.
    bits: u32,
    processors: u32,
    /// Slots that were read of each.
    read: Vec<u64>,
}

/// What programs need to know of [`Lanes`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing<'a> {
    slots: BorrowedFd<'a>,
    places: BorrowedFd<'a>,
    bits: i32,
}

impl Lanes {
    /// A ring of `size` bytes, a power of 2 of at least 16 KiB, for each of so many processors.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn new(processors: u32, size: usize) -> io::Result<Lanes> {
        let bits = (size >> SLOT_BITS).ilog2();
        Ok(Lanes {
            slots: Mapped::new(SLOT, processors << bits)?,
            places: Mapped::new(PLACES * processors as usize, 1)?,
            bits,
            processors,
            read: vec![0; processors as usize],
        })
    }

    pub(crate) fn writing(&self) -> Writing<'_> {
        Writing {
            slots: self.slots.as_fd(),
            places: self.places.as_fd(),
            bits: self.bits.cast_signed(),
        }
    }

    /// Hands over what waits, with its mark, processor by processor; returns how much of a ring was in use at most, from 0 to 1. Behind
    /// a record that is being written others may be complete: they come the next time.
    pub(crate) fn drain(&mut self, mut record: impl FnMut(u16, &[u8; SLOT])) -> f64 {
        let mut most = 0;
        for processor in 0..self.processors as usize {
            let mut at = self.read[processor];
            loop {
                let index = (processor << self.bits) + (at as usize & ((1 << self.bits) - 1));
                let slot = self.slots.bytes(index << SLOT_BITS, SLOT);
                // SAFETY: an aligned word of the slot, which both sides access as one.
                let mark = unsafe { &*slot.add(MARK).cast::<AtomicU32>().as_ptr() };
                let mark = mark.load(Ordering::Acquire);
                if mark >> MARK_BITS != round(at, self.bits) {
                    break;
                }
                // SAFETY: whoever wrote it has said that it is complete, and does not write there until we have told that it is read.
                record(mark as u16, unsafe { slot.cast().as_ref() });
                at += 1;
            }
            let before = std::mem::replace(&mut self.read[processor], at);
            if at != before {
                let read = self.places.word(PLACES * processor + READ as usize);
                read.store(at, Ordering::Release);
                most = most.max(at - before);
            }
        }
        most as f64 / (1u64 << self.bits) as f64
    }
}

/// What the upper half of a mark has in slot `at`: never that of the round before, nor 0 in the first.
fn round(at: u64, bits: u32) -> u32 {
    ((at >> bits) as u32).wrapping_add(1) & 0xffff
}

impl Code {
    /// Points R1 at what is kept of the ring of the processor whose number is in a register, below that which [`Lanes::new`] was
    /// told.
    pub(crate) fn lane(&mut self, processor: u8, writing: Writing<'_>) {
        self.map(R1, MEMORY_OF_MAP, writing.places);
        self.copy(R2, processor);
        self.put(SHIFT_LEFT, R2, 0, 0, PLACES_BITS);
        self.put(ADD, R1, R2, 0, 0);
    }

    /// Puts into R3 how many slots wait to be read of the ring that R1 points at.
    pub(crate) fn waiting(&mut self) {
        self.put(LOAD_64, R2, R1, READ, 0);
        self.put(LOAD_64, R3, R1, TAKEN, 0);
        self.put(SUBTRACT, R3, R2, 0, 0);
    }

    /// Takes a slot of the ring that R1 points at, of the processor whose number is in a register, and puts its address into `slot`, which may
    /// be the same register. Its round is at [`Places::round`] on the stack until [`Code::complete`]. Returns the jumps for when there is no room.
    pub(crate) fn take_slot(
        &mut self,
        slot: u8,
        processor: u8,
        places: Places,
        writing: Writing<'_>,
    ) -> [usize; 2] {
        let slots = 1 << writing.bits;
        self.waiting();
        let full = self.jump(IF_GREATER, R3, 0, slots - SPARE as i32);
        self.set(R2, 1);
        self.put(ATOMIC_64, R1, R2, TAKEN, FETCH_ADD);
        self.copy(R3, R2);
        self.put(SHIFT_RIGHT, R3, 0, 0, writing.bits);
        self.add(R3, 1);
        self.put(SHIFT_LEFT, R3, 0, 0, MARK_BITS);
        self.put(STORE_32, STACK, R3, places.round, 0);
        self.put(AND_NUMBER, R2, 0, 0, slots - 1);
        self.copy(R1, processor);
        self.put(SHIFT_LEFT, R1, 0, 0, writing.bits);
        self.put(OR, R2, R1, 0, 0);
        self.put(STORE_32, STACK, R2, places.index, 0);
        self.map(R1, MAP, writing.slots);
        self.stack(R2, places.index);
        self.call(LOOK_UP);
        let none = self.jump(IF_EQUAL, R0, 0, 0);
        self.copy(slot, R0);
        [full, none]
    }

    /// The record in a slot is complete: it is marked with what is in a register, of [`MARK_BITS`] bits.
    pub(crate) fn complete(&mut self, slot: u8, mark: u8, places: Places) {
        self.put(LOAD_32, R1, STACK, places.round, 0);
        self.put(OR, R1, mark, 0, 0);
        self.put(STORE_32, slot, R1, MARK as i16, 0);
    }
}

/// Places of four bytes on the stack that are used while a record is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) index: i16,
    pub(crate) round: i16,
}

#[cfg(test)]
mod tests {
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;

    use super::super::code::{LOAD_64, PROCESSOR, STORE_64};
    use super::super::{load, run};
    use super::*;

    const CPU: u8 = 9;
    const SMALL: usize = 16 << 10;
    const SLOTS: u64 = (SMALL / SLOT) as u64;

    /// A program that writes the number that is its context, with mark 5, and if there is no room does nothing.
    fn writer(lanes: &Lanes, processors: u32) -> io::Result<std::os::fd::OwnedFd> {
        let places = Places {
            index: -4,
            round: -8,
        };
        let mut code = Code::default();
        code.put(LOAD_64, 6, R1, 0, 0);
        code.call(PROCESSOR);
        code.copy(CPU, R0);
        code.leave_if(IF_GREATER, CPU, processors.cast_signed() - 1);
        code.lane(CPU, lanes.writing());
        let full = code.take_slot(CPU, CPU, places, lanes.writing());
        code.put(STORE_64, CPU, 6, 16, 0);
        code.set(R2, 5);
        code.complete(CPU, R2, places);
        full.into_iter().for_each(|full| code.land(full));
        code.leave();
        load(&code.all)
    }

    fn drained(lanes: &mut Lanes) -> Vec<u64> {
        let mut all = Vec::new();
        lanes.drain(|mark, record| {
            assert_eq!(mark, 5);
            all.push(u64::from_ne_bytes(record[16..24].try_into().unwrap()));
        });
        all
    }

    #[test]
    fn records_come_in_order_round_after_round_and_what_finds_no_room_does_not() {
        let processors = crate::cpus::array_length().unwrap();
        let mut lanes = match Lanes::new(processors, SMALL) {
            Ok(lanes) => lanes,
            Err(error) => return eprintln!("skipped: programs in the kernel: {error}"),
        };
        let program = writer(&lanes, processors).unwrap();
        let this = Pid::from_raw(0);
        let anywhere = sched_getaffinity(this).unwrap();
        let last = (0..CpuSet::count()).rfind(|&cpu| anywhere.is_set(cpu).unwrap());
        let mut here = CpuSet::new();
        here.set(last.unwrap()).unwrap();
        sched_setaffinity(this, &here).unwrap();
        let write = |numbers: std::ops::Range<u64>| numbers.for_each(|n| run(&program, n).unwrap());

        assert_eq!(drained(&mut lanes), []);
        for round in 0..20 {
            let numbers = 100 * round..100 * (round + 1);
            write(numbers.clone());
            assert_eq!(drained(&mut lanes), numbers.collect::<Vec<_>>());
        }
        write(0..2 * SLOTS);
        let most = SLOTS - SPARE as u64 + 1;
        assert_eq!(drained(&mut lanes), (0..most).collect::<Vec<_>>());
        write(7..8);
        assert_eq!(drained(&mut lanes), [7]);
        sched_setaffinity(this, &anywhere).unwrap();
    }
}
