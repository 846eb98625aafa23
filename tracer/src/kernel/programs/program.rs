//! The two programs, in the machine language of the kernel (Documentation/bpf/standardization).

use std::os::fd::BorrowedFd;

use super::carried::Layout;
use crate::bpf::code::{
    ADD, AND_NUMBER, ATOMIC_64, Code, IF_EQUAL, IF_GREATER, IF_LESS, IF_NOT_EQUAL, IF_SAME,
    Instruction, JUMP, LOAD_8, LOAD_32, LOAD_64, LOOK_UP, MAP, MEMORY_OF_MAP, NO_WAKEUP, OR,
    PROCESSOR, QUERY, R0, R1, R2, R3, RESERVE, SHIFT_LEFT, SHIFT_RIGHT, SIGNAL_THREAD, STACK,
    STORE_32, STORE_64, SUBMIT, TIME, WHO,
};
pub(super) use crate::bpf::registers::{FEW, FOREIGN_ORDER, ORDER};
use crate::bpf::{followed, registers};

/// What the programs use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maps<'a> {
    /// One byte for each number of a call: [`ENTERS`], [`RETURNS`]; first those of this architecture, then
    /// those of the other.
    pub(super) wanted: BorrowedFd<'a>,
    /// The processes that are followed ([`crate::bpf::followed`]).
    pub(super) processes: BorrowedFd<'a>,
    /// One word of [`STRIDE`] bytes for each processor: the followed process that made the last call there. `None`: whoever
    /// follows others, and what they run, cannot have it forgotten in time.
    pub(super) recent: Option<BorrowedFd<'a>>,
    /// How many processors there are.
    pub(super) processors: u32,
    pub(super) rings: Rings<'a>,
    /// Words at [`LOST_DATA`], [`LOST_RETURNS`] and [`LOST_OTHERS`].
    pub(super) lost: BorrowedFd<'a>,
    /// Where the kernel has a caller's open files. `None`: it is not told which of them messages carry.
    pub(super) layout: Option<Layout>,
    /// For each processor [`super::carried::MEMORY`] bytes.
    pub(super) memory: BorrowedFd<'a>,
    /// Bytes of records in a ring above which whoever makes a call there is stopped; `None`: nobody is.
    pub(super) hold_above: Option<u32>,
}

/// A ring for each processor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rings<'a> {
    /// Each by itself, of which a program may name but a few: no look-up for a record, and no wait for
    /// all processors when they are made known, some 10 ms for each.
    Each(&'a [BorrowedFd<'a>]),
    /// In an array of maps.
    Array(BorrowedFd<'a>),
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Entries,
    Returns,
}

/// Numbers of calls are below; those of the other architecture are told as so many more.
pub(super) const NUMBERS: usize = 512;
/// Bits of [`Maps::wanted`].
pub(super) const ENTERS: u8 = 1;
pub(super) const RETURNS: u8 = 2;
/// Beside [`ENTERS`]: its first three arguments are all that matters.
pub(super) const SHORT: u8 = 4;
/// Its second argument is the address of lengths, as many as the third says; or of a message with such.
pub(super) const VECTOR: u8 = 8;
pub(super) const MESSAGE: u8 = 16;
/// The second and fourth arguments, or the third, are addresses of offsets.
pub(super) const OFFSETS: u8 = 32;
pub(super) const OFFSET: u8 = 64;
/// It moves data.
pub(super) const DATA: u8 = 128;
/// Bytes between the words of [`Maps::recent`]: no processor writes to the lines of another.
pub(super) const STRIDE: usize = 64;
const STRIDE_BITS: i32 = 6;

/// Places in [`Maps::lost`]: of entries of calls that move data, of returns and what messages carry, and of other entries that found no
/// room.
const LOST_DATA: i16 = 0;
pub(super) const LOST_RETURNS: i16 = 8;
const LOST_OTHERS: i16 = 16;

/// A record: time, id of the thread, number of the call, and either registers or the result, or what is carried by a message:
/// the descriptor, the address of its open file, and number and mode of the inode.
pub(super) const AT: usize = 0;
pub(super) const TID: usize = 8;
pub(super) const NUMBER: usize = 12;
pub(super) const REST: usize = 16;
/// Bytes of the registers that hold the arguments, and of a record with them.
pub(super) const REGISTERS: usize = 64;
pub(super) const ENTRY: usize = REST + REGISTERS;
/// The same with the registers of the first three alone.
const FEW_REGISTERS: usize = 24;
pub(super) const SHORT_ENTRY: usize = REST + FEW_REGISTERS;
pub(super) const RETURN: usize = REST + 8;
pub(super) const CARRIED: usize = REST + 32;
/// A call of the other architecture, with all registers that may hold its arguments.
const FOREIGN_REGISTERS: usize = 88;
pub(super) const FOREIGN_ENTRY: usize = REST + FOREIGN_REGISTERS;

/// Registers that calls of helpers keep.
pub(super) const CONTEXT: u8 = 6;
pub(super) const NUMBER_OF_CALL: u8 = 7;
const CALLER: u8 = 8;
/// Until there is a record.
pub(super) const CPU: u8 = 9;
pub(super) const RECORD: u8 = 9;
/// Places on the stack.
const KEY: i16 = -4;
pub(super) const WORD: i16 = -16;
pub(super) const WANTED: i16 = -24;
/// The caller's registers, where some hold addresses of what is told in their place.
pub(super) const COPIES: i16 = FOREIGN - REGISTERS as i16;
/// [`NUMBERS`] if the caller's calls have the numbers of the other architecture, else 0.
const FOREIGN: i16 = WANTED - 8;
/// The ring, where there are no copies or they are of no use any more.
pub(super) const RING: i16 = COPIES;

impl Code {
    /// Looks up the 32-bit number at [`KEY`]; what is found is in R0. Leaves if there is nothing.
    fn look_up(&mut self, map: BorrowedFd<'_>) {
        self.map(R1, MAP, map);
        self.copy(R2, STACK);
        self.add(R2, i32::from(KEY));
        self.call(LOOK_UP);
        self.leave_if(IF_EQUAL, R0, 0);
    }

    /// Puts the address of this processor's word in [`Maps::recent`] into R1.
    fn recent(&mut self, recent: BorrowedFd<'_>) {
        self.map(R1, MEMORY_OF_MAP, recent);
        self.copy(R2, CPU);
        self.put(SHIFT_LEFT, R2, 0, 0, STRIDE_BITS);
        self.put(ADD, R1, R2, 0, 0);
    }

    /// Leaves unless the caller's process is followed. Mostly it is the one that made the last call on
    /// its processor, which takes no look-up; those of the other architecture are always looked up.
    fn only_followed(&mut self, maps: &Maps<'_>) {
        self.set(R1, 0);
        self.put(STORE_64, STACK, R1, FOREIGN, 0);
        self.call(WHO);
        self.copy(CALLER, R0);
        self.put(SHIFT_RIGHT, R0, 0, 0, 32);
        self.put(STORE_32, STACK, R0, KEY, 0);
        self.call(PROCESSOR);
        self.copy(CPU, R0);
        self.leave_if(IF_GREATER, CPU, maps.processors.cast_signed() - 1);
        let known = maps.recent.map(|recent| {
            self.recent(recent);
            self.put(LOAD_32, R2, R1, 0, 0);
            self.put(LOAD_32, R3, STACK, KEY, 0);
            self.jump(IF_SAME, R2, R3, 0)
        });
        self.look_up(maps.processes);
        self.put(LOAD_32, R2, R0, 0, 0);
        self.leave_if(IF_EQUAL, R2, followed::OVER as i32);
        let native = self.jump(IF_NOT_EQUAL, R2, 0, followed::FOREIGN as i32);
        self.set(R1, NUMBERS as i32);
        self.put(STORE_64, STACK, R1, FOREIGN, 0);
        let foreign = self.jump(JUMP, 0, 0, 0);
        self.land(native);
        if let Some(recent) = maps.recent {
            self.recent(recent);
            self.put(LOAD_32, R3, STACK, KEY, 0);
            self.put(STORE_32, R1, R3, 0, 0);
        }
        known.into_iter().for_each(|known| self.land(known));
        self.land(foreign);
    }

    /// Puts this processor's ring into R1.
    pub(super) fn ring(&mut self, rings: Rings<'_>) {
        match rings {
            Rings::Each(rings) => {
                let mut found = Vec::new();
                for (cpu, ring) in (0..).zip(rings) {
                    self.map(R1, MAP, *ring);
                    found.push(self.jump(IF_EQUAL, CPU, 0, cpu));
                }
                self.leaves.push(self.all.len());
                self.put(JUMP, 0, 0, 0, 0);
                for jump in found {
                    self.land(jump);
                }
            }
            Rings::Array(rings) => {
                self.put(STORE_32, STACK, CPU, KEY, 0);
                self.look_up(rings);
                self.copy(R1, R0);
            }
        }
    }

    /// Writes a record to the ring in R1: `rest`, which finds it in [`RECORD`], adds what is not common
    /// to all. Returns the jump for those that find no room.
    pub(super) fn record(&mut self, size: usize, rest: impl FnOnce(&mut Code)) -> usize {
        self.set(R2, size as i32);
        self.set(R3, 0);
        self.call(RESERVE);
        let full = self.jump(IF_EQUAL, R0, 0, 0);
        self.copy(RECORD, R0);
        self.call(TIME);
        self.put(STORE_64, RECORD, R0, AT as i16, 0);
        self.put(STORE_32, RECORD, CALLER, TID as i16, 0);
        self.put(STORE_32, RECORD, NUMBER_OF_CALL, NUMBER as i16, 0);
        rest(self);
        self.copy(R1, RECORD);
        self.set(R2, NO_WAKEUP);
        self.call(SUBMIT);
        full
    }

    /// Copies registers of the caller into the record, from that at offset `from` on.
    fn registers(&mut self, from: i32, size: usize) {
        self.load(R3, CONTEXT, 0);
        self.read_kernel(RECORD, REST as i16, size, R3, from);
    }

    /// Stops the caller, whose call is done, if there is more in the ring than this. Its tracer takes the signal
    /// away again, when there is room: the caller never sees it.
    fn hold(&mut self, above: u32) {
        const AVAILABLE: i32 = 0;
        self.put(LOAD_64, R1, STACK, RING, 0);
        self.set(R2, AVAILABLE);
        self.call(QUERY);
        let room = self.jump(IF_LESS, R0, 0, above.cast_signed());
        self.set(R1, libc::SIGSTOP);
        self.call(SIGNAL_THREAD);
        self.land(room);
    }

    /// Jumps unless the call has one of these bits.
    pub(super) fn unless(&mut self, bits: u8) -> usize {
        self.put(LOAD_64, R2, STACK, WANTED, 0);
        self.put(AND_NUMBER, R2, 0, 0, i32::from(bits));
        self.jump(IF_EQUAL, R2, 0, 0)
    }

    /// Adds one to a counter.
    pub(super) fn count(&mut self, counters: BorrowedFd<'_>, at: i16) {
        self.map(R1, MEMORY_OF_MAP, counters);
        self.set(R2, 1);
        self.put(ATOMIC_64, R1, R2, at, 0);
    }

    /// Leaves unless entries of calls with this number are wanted of either architecture.
    fn only_wanted_of_any(&mut self, maps: &Maps<'_>) {
        self.leave_if(IF_GREATER, NUMBER_OF_CALL, NUMBERS as i32 - 1);
        self.map(R1, MEMORY_OF_MAP, maps.wanted);
        self.put(ADD, R1, NUMBER_OF_CALL, 0, 0);
        self.put(LOAD_8, R0, R1, 0, 0);
        self.put(LOAD_8, R2, R1, NUMBERS as i16, 0);
        self.put(OR, R0, R2, 0, 0);
        self.put(AND_NUMBER, R0, 0, 0, i32::from(ENTERS));
        self.leave_if(IF_EQUAL, R0, 0);
    }

    /// Leaves unless entries of the caller's call are wanted. Its number is told of its architecture from here on.
    fn only_wanted(&mut self, maps: &Maps<'_>) {
        self.leave_if(IF_GREATER, NUMBER_OF_CALL, NUMBERS as i32 - 1);
        self.put(LOAD_64, R1, STACK, FOREIGN, 0);
        self.put(ADD, NUMBER_OF_CALL, R1, 0, 0);
        self.leave_if(IF_GREATER, NUMBER_OF_CALL, 2 * NUMBERS as i32 - 1);
        self.map(R1, MEMORY_OF_MAP, maps.wanted);
        self.put(ADD, R1, NUMBER_OF_CALL, 0, 0);
        self.put(LOAD_8, R0, R1, 0, 0);
        self.put(STORE_64, STACK, R0, WANTED, 0);
        self.put(AND_NUMBER, R0, 0, 0, i32::from(ENTERS));
        self.leave_if(IF_EQUAL, R0, 0);
    }
}

/// Makes one of the programs.
///
/// The context is that of a raw tracepoint: an array of two words, which are the registers and
/// the number of the call, or the registers and its result.
pub(super) fn assemble(which: Which, maps: &Maps<'_>) -> Vec<Instruction> {
    let mut code = Code::default();
    code.copy(CONTEXT, R1);
    match which {
        Which::Entries => entry(&mut code, maps),
        Which::Returns => returning(&mut code, maps),
    }
    code.all
}

fn entry(code: &mut Code, maps: &Maps<'_>) {
    code.load(NUMBER_OF_CALL, CONTEXT, 8);
    code.only_wanted_of_any(maps);
    code.only_followed(maps);
    code.only_wanted(maps);
    code.put(LOAD_64, R1, STACK, FOREIGN, 0);
    let foreign = code.jump(IF_NOT_EQUAL, R1, 0, 0);
    let plain = code.unless(VECTOR | MESSAGE | OFFSETS | OFFSET);
    code.copy_told();
    code.ring(maps.rings);
    let told = code.record(ENTRY, |code| {
        for at in (0..REGISTERS as i16).step_by(8) {
            code.put(LOAD_64, R1, STACK, COPIES + at, 0);
            code.put(STORE_64, RECORD, R1, REST as i16 + at, 0);
        }
    });
    let sends = code.jump(IF_EQUAL, NUMBER_OF_CALL, 0, libc::SYS_sendmsg as i32);
    code.leave();
    code.land(plain);
    code.ring(maps.rings);
    let long = code.unless(SHORT);
    let few = registers::ARGUMENTS + 8 * FEW as i32;
    let short = code.record(SHORT_ENTRY, |code| code.registers(few, FEW_REGISTERS));
    code.leave();
    code.land(long);
    let long = code.record(ENTRY, |code| {
        code.registers(registers::ARGUMENTS, REGISTERS);
    });
    let sends_several = code.jump(IF_EQUAL, NUMBER_OF_CALL, 0, libc::SYS_sendmmsg as i32);
    code.leave();
    code.land(sends);
    code.land(sends_several);
    if let Some(layout) = maps.layout {
        code.sends(layout, maps);
    }
    code.leave();
    code.land(foreign);
    code.ring(maps.rings);
    let foreign = code.record(FOREIGN_ENTRY, |code| {
        code.registers(registers::FOREIGN_ARGUMENTS, FOREIGN_REGISTERS);
    });
    code.leave();
    // No room: it is counted.
    for jump in [told, short, long, foreign] {
        code.land(jump);
    }
    let others = code.unless(DATA);
    code.count(maps.lost, LOST_DATA);
    code.leave();
    code.land(others);
    code.count(maps.lost, LOST_OTHERS);
    code.leave();
}

/// A call returned: of some that is told, and of all whether the ring is filling up.
fn returning(code: &mut Code, maps: &Maps<'_>) {
    code.only_followed(maps);
    let (at, size) = registers::NUMBER;
    code.set(R1, 0);
    code.put(STORE_64, STACK, R1, WORD, 0);
    code.load(R3, CONTEXT, 0);
    code.read_kernel(STACK, WORD, size, R3, at);
    code.put(LOAD_64, NUMBER_OF_CALL, STACK, WORD, 0);
    code.only_wanted(maps);
    code.ring(maps.rings);
    code.put(STORE_64, STACK, R1, RING, 0);
    let untold = code.unless(RETURNS);
    if let Some(layout) = maps.layout {
        code.receives(layout, maps);
        code.put(LOAD_64, R1, STACK, RING, 0);
    }
    let full = code.record(RETURN, |code| {
        code.load(R1, CONTEXT, 8);
        code.put(STORE_64, RECORD, R1, REST as i16, 0);
    });
    let told = code.jump(JUMP, 0, 0, 0);
    // No room: it is counted.
    code.land(full);
    code.count(maps.lost, LOST_RETURNS);
    code.land(told);
    code.land(untold);
    if let Some(above) = maps.hold_above {
        code.hold(above);
    }
    code.leave();
}
