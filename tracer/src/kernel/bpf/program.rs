//! The two programs, in the machine language of the kernel (Documentation/bpf/standardization).

use std::os::fd::{AsRawFd, BorrowedFd};

/// An instruction (`struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    code: u8,
    /// The destination in the low half, the source in the high one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// What the programs use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maps<'a> {
    /// One byte for each number of a call: [`ENTERS`], [`RETURNS`].
    pub(super) wanted: BorrowedFd<'a>,
    /// Ids of the processes that are followed.
    pub(super) processes: BorrowedFd<'a>,
    /// One word of [`STRIDE`] bytes for each processor: the followed process that made the last call there.
    pub(super) recent: BorrowedFd<'a>,
    /// How many processors there are.
    pub(super) processors: u32,
    pub(super) rings: Rings<'a>,
    /// Entries and returns that found no room.
    pub(super) lost: BorrowedFd<'a>,
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

/// Numbers of calls are below.
pub(super) const NUMBERS: usize = 512;
/// Bits of [`Maps::wanted`].
pub(super) const ENTERS: u8 = 1;
pub(super) const RETURNS: u8 = 2;
/// Beside [`ENTERS`]: its first three arguments are all that matters.
pub(super) const SHORT: u8 = 4;
/// Bytes between the words of [`Maps::recent`]: no processor writes to the lines of another.
pub(super) const STRIDE: usize = 64;
const STRIDE_BITS: i32 = 6;

/// A record: time, id of the thread, number of the call, and either registers or the result.
pub(super) const AT: usize = 0;
pub(super) const TID: usize = 8;
pub(super) const NUMBER: usize = 12;
pub(super) const REST: usize = 16;
/// Bytes of the registers that hold the arguments, and of a record with them.
const REGISTERS: usize = 64;
pub(super) const ENTRY: usize = REST + REGISTERS;
/// The same with the registers of the first three alone.
const FEW_REGISTERS: usize = 24;
pub(super) const SHORT_ENTRY: usize = REST + FEW_REGISTERS;
pub(super) const RETURN: usize = REST + 8;

/// Where the kernel keeps the registers of the calling thread (`struct pt_regs`, which begins as what ptrace
/// tells of them): those with the arguments, and the number of the call with its size.
#[cfg(target_arch = "x86_64")]
mod registers {
    use std::mem::offset_of;

    use libc::user_regs_struct as Registers;

    /// r10, r9, r8, rax, rcx, rdx, rsi and rdi are there, in this order.
    pub(super) const ARGUMENTS: i32 = offset_of!(Registers, r10) as i32;
    pub(super) const NUMBER: (i32, i32) = (offset_of!(Registers, orig_rax) as i32, 8);
    pub(in super::super) const ORDER: [usize; 6] = [7, 6, 5, 0, 2, 1];
    /// Of the first three arguments, the one that comes first.
    pub(in super::super) const FEW: usize = 5;
}
#[cfg(not(target_arch = "x86_64"))]
mod registers {
    // Those of aarch64, where nobody has tried them yet, so that `Programs::open` refuses.
    pub(super) const ARGUMENTS: i32 = 0;
    pub(super) const NUMBER: (i32, i32) = (280, 4);
    pub(in super::super) const ORDER: [usize; 6] = [0, 1, 2, 3, 4, 5];
    pub(in super::super) const FEW: usize = 0;
}
pub(super) use registers::FEW;
pub(super) use registers::ORDER;

// Opcodes: class, operation and source in one.
const LOAD_64: u8 = 0x79;
const LOAD_8: u8 = 0x71;
const STORE_64: u8 = 0x7b;
const STORE_32: u8 = 0x63;
const ATOMIC_64: u8 = 0xdb;
const LOAD_WIDE: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_NUMBER: u8 = 0xb7;
const ADD: u8 = 0x0f;
const ADD_NUMBER: u8 = 0x07;
const AND_NUMBER: u8 = 0x57;
const SHIFT_RIGHT: u8 = 0x77;
const SHIFT_LEFT: u8 = 0x67;
const JUMP: u8 = 0x05;
const IF_SAME: u8 = 0x1d;
const LOAD_32: u8 = 0x61;
const IF_EQUAL: u8 = 0x15;
const IF_NOT_EQUAL: u8 = 0x55;
const IF_GREATER: u8 = 0x25;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// `src_reg` of a wide load: a map, and the memory of an array.
const MAP: u8 = 1;
const MEMORY_OF_MAP: u8 = 2;

/// Helpers by their number (include/uapi/linux/bpf.h).
const LOOK_UP: i32 = 1;
const TIME: i32 = 5;
const PROCESSOR: i32 = 8;
const WHO: i32 = 14;
const READ_KERNEL: i32 = 113;
const RESERVE: i32 = 131;
const SUBMIT: i32 = 132;
/// Whoever reads looks by itself.
const NO_WAKEUP: i32 = 1;

/// Registers: results, arguments, and those that calls keep.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const CONTEXT: u8 = 6;
const NUMBER_OF_CALL: u8 = 7;
const CALLER: u8 = 8;
/// Until there is a record.
const CPU: u8 = 9;
const RECORD: u8 = 9;
const STACK: u8 = 10;
/// Places on the stack.
const KEY: i16 = -4;
const WORD: i16 = -16;
const WANTED: i16 = -24;

#[derive(Default)]
struct Code {
    all: Vec<Instruction>,
    /// Jumps to the end.
    leaves: Vec<usize>,
}

impl Code {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.all.push(Instruction {
            code,
            registers: to | from << 4,
            offset,
            immediate,
        });
    }

    fn copy(&mut self, to: u8, from: u8) {
        self.put(MOVE, to, from, 0, 0);
    }

    fn set(&mut self, to: u8, number: i32) {
        self.put(MOVE_NUMBER, to, 0, 0, number);
    }

    fn add(&mut self, to: u8, number: i32) {
        self.put(ADD_NUMBER, to, 0, 0, number);
    }

    fn load(&mut self, to: u8, from: u8, at: usize) {
        self.put(LOAD_64, to, from, at as i16, 0);
    }

    fn call(&mut self, helper: i32) {
        self.put(CALL, 0, 0, 0, helper);
    }

    fn map(&mut self, to: u8, kind: u8, map: BorrowedFd<'_>) {
        self.put(LOAD_WIDE, to, kind, 0, map.as_raw_fd());
        self.put(0, 0, 0, 0, 0);
    }

    fn leave_if(&mut self, code: u8, register: u8, number: i32) {
        self.leaves.push(self.all.len());
        self.put(code, register, 0, 0, number);
    }

    /// `jump` leads here.
    fn land(&mut self, jump: usize) {
        self.all[jump].offset = (self.all.len() - jump - 1) as i16;
    }

    /// A jump, to where [`Code::land`] will say.
    fn jump(&mut self, code: u8, register: u8, other: u8, number: i32) -> usize {
        self.put(code, register, other, 0, number);
        self.all.len() - 1
    }

    /// Looks up the 32-bit number at [`KEY`]; what is found is in R0. Leaves if there is nothing.
    fn look_up(&mut self, map: BorrowedFd<'_>) {
        self.map(R1, MAP, map);
        self.copy(R2, STACK);
        self.add(R2, i32::from(KEY));
        self.call(LOOK_UP);
        self.leave_if(IF_EQUAL, R0, 0);
    }

    /// Puts the address of this processor's word in [`Maps::recent`] into R1.
    fn recent(&mut self, maps: &Maps<'_>) {
        self.map(R1, MEMORY_OF_MAP, maps.recent);
        self.copy(R2, CPU);
        self.put(SHIFT_LEFT, R2, 0, 0, STRIDE_BITS);
        self.put(ADD, R1, R2, 0, 0);
    }

    /// Leaves unless the caller's process is followed. Mostly it is the one that made the last call on
    /// its processor, which takes no look-up.
    fn only_followed(&mut self, maps: &Maps<'_>) {
        self.call(WHO);
        self.copy(CALLER, R0);
        self.put(SHIFT_RIGHT, R0, 0, 0, 32);
        self.put(STORE_32, STACK, R0, KEY, 0);
        self.call(PROCESSOR);
        self.copy(CPU, R0);
        self.leave_if(IF_GREATER, CPU, maps.processors.cast_signed() - 1);
        self.recent(maps);
        self.put(LOAD_32, R2, R1, 0, 0);
        self.put(LOAD_32, R3, STACK, KEY, 0);
        let known = self.jump(IF_SAME, R2, R3, 0);
        self.look_up(maps.processes);
        self.recent(maps);
        self.put(LOAD_32, R3, STACK, KEY, 0);
        self.put(STORE_32, R1, R3, 0, 0);
        self.land(known);
    }

    /// Puts this processor's ring into R1.
    fn ring(&mut self, rings: Rings<'_>) {
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
    fn record(&mut self, size: usize, rest: impl FnOnce(&mut Code)) -> usize {
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
        self.leave();
        full
    }

    /// Copies registers of the caller into the record.
    fn registers(&mut self, from: usize, size: usize) {
        self.copy(R1, RECORD);
        self.add(R1, REST as i32);
        self.set(R2, size as i32);
        self.load(R3, CONTEXT, 0);
        self.add(R3, registers::ARGUMENTS + 8 * from as i32);
        self.call(READ_KERNEL);
    }

    /// Leaves unless the call is wanted.
    fn only_wanted(&mut self, maps: &Maps<'_>, bit: u8) {
        self.leave_if(IF_GREATER, NUMBER_OF_CALL, NUMBERS as i32 - 1);
        self.map(R1, MEMORY_OF_MAP, maps.wanted);
        self.put(ADD, R1, NUMBER_OF_CALL, 0, 0);
        self.put(LOAD_8, R0, R1, 0, 0);
        self.put(STORE_64, STACK, R0, WANTED, 0);
        self.put(AND_NUMBER, R0, 0, 0, i32::from(bit));
        self.leave_if(IF_EQUAL, R0, 0);
    }

    /// Jumps of `leaves` end here.
    fn leave(&mut self) {
        let end = self.all.len();
        for place in std::mem::take(&mut self.leaves) {
            self.all[place].offset = (end - place - 1) as i16;
        }
        self.set(R0, 0);
        self.put(EXIT, 0, 0, 0, 0);
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
        Which::Entries => {
            code.load(NUMBER_OF_CALL, CONTEXT, 8);
            code.only_wanted(maps, ENTERS);
            code.only_followed(maps);
        }
        Which::Returns => {
            code.only_followed(maps);
            let (at, size) = registers::NUMBER;
            code.set(R1, 0);
            code.put(STORE_64, STACK, R1, WORD, 0);
            code.copy(R1, STACK);
            code.add(R1, i32::from(WORD));
            code.set(R2, size);
            code.load(R3, CONTEXT, 0);
            code.add(R3, at);
            code.call(READ_KERNEL);
            code.put(LOAD_64, NUMBER_OF_CALL, STACK, WORD, 0);
            code.only_wanted(maps, RETURNS);
        }
    }
    code.ring(maps.rings);
    let (full, counter) = match which {
        Which::Entries => {
            code.put(LOAD_64, R2, STACK, WANTED, 0);
            code.put(AND_NUMBER, R2, 0, 0, i32::from(SHORT));
            let short = code.jump(IF_NOT_EQUAL, R2, 0, 0);
            let full = code.record(ENTRY, |code| code.registers(0, REGISTERS));
            code.land(short);
            let registers = |code: &mut Code| code.registers(FEW, FEW_REGISTERS);
            (vec![full, code.record(SHORT_ENTRY, registers)], 0)
        }
        Which::Returns => {
            let full = code.record(RETURN, |code| {
                code.load(R1, CONTEXT, 8);
                code.put(STORE_64, RECORD, R1, REST as i16, 0);
            });
            (vec![full], 8)
        }
    };
    // No room: it is counted.
    for jump in full {
        code.land(jump);
    }
    code.map(R1, MEMORY_OF_MAP, maps.lost);
    code.set(R2, 1);
    code.put(ATOMIC_64, R1, R2, counter, 0);
    code.leave();
    code.all
}
