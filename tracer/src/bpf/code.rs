//! Instructions of the kernel's own machine (Documentation/bpf/standardization), put one after the other.

use std::os::fd::{AsRawFd, BorrowedFd};

/// An instruction (`struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    code: u8,
    /// The destination in the low half, the source in the high one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

// Opcodes: class, operation and source in one.
pub(crate) const LOAD_64: u8 = 0x79;
pub(crate) const LOAD_8: u8 = 0x71;
pub(crate) const LOAD_16: u8 = 0x69;
pub(crate) const STORE_64: u8 = 0x7b;
pub(crate) const STORE_32: u8 = 0x63;
pub(crate) const STORE_16: u8 = 0x6b;
pub(crate) const STORE_8: u8 = 0x73;
pub(crate) const ATOMIC_64: u8 = 0xdb;
/// As the immediate value of [`ATOMIC_64`], which else adds: what was there is put into the source (Linux 5.12).
pub(crate) const FETCH_ADD: i32 = 1;
pub(crate) const LOAD_WIDE: u8 = 0x18;
pub(crate) const MOVE: u8 = 0xbf;
pub(crate) const MOVE_NUMBER: u8 = 0xb7;
pub(crate) const ADD: u8 = 0x0f;
pub(crate) const SUBTRACT: u8 = 0x1f;
pub(crate) const MULTIPLY_NUMBER: u8 = 0x27;
pub(crate) const AND: u8 = 0x5f;
pub(crate) const OR: u8 = 0x4f;
pub(crate) const OR_NUMBER: u8 = 0x47;
pub(crate) const ADD_NUMBER: u8 = 0x07;
pub(crate) const AND_NUMBER: u8 = 0x57;
pub(crate) const SHIFT_RIGHT: u8 = 0x77;
pub(crate) const SHIFT_RIGHT_BY: u8 = 0x7f;
pub(crate) const SHIFT_LEFT: u8 = 0x67;
pub(crate) const SHIFT_LEFT_BY: u8 = 0x6f;
pub(crate) const JUMP: u8 = 0x05;
/// Jumps when a loop has gone on for too long (`may_goto`, Linux 6.9).
pub(crate) const JUMP_LATE: u8 = 0xe5;
pub(crate) const IF_SAME: u8 = 0x1d;
pub(crate) const IF_NOT_SAME: u8 = 0x5d;
pub(crate) const LOAD_32: u8 = 0x61;
pub(crate) const IF_EQUAL: u8 = 0x15;
pub(crate) const IF_NOT_EQUAL: u8 = 0x55;
pub(crate) const IF_GREATER: u8 = 0x25;
pub(crate) const IF_LESS: u8 = 0xa5;
pub(crate) const IF_SIGNED_LESS: u8 = 0xc5;
pub(crate) const CALL: u8 = 0x85;
pub(crate) const EXIT: u8 = 0x95;

/// `src_reg` of a call: a function of the kernel, by the number of its type.
const OF_KERNEL: u8 = 2;
/// `src_reg` of a wide load: a map, and the memory of an array.
pub(crate) const MAP: u8 = 1;
pub(crate) const MEMORY_OF_MAP: u8 = 2;

/// Helpers by their number (include/uapi/linux/bpf.h).
pub(crate) const LOOK_UP: i32 = 1;
pub(crate) const UPDATE: i32 = 2;
pub(crate) const TIME: i32 = 5;
pub(crate) const PROCESSOR: i32 = 8;
pub(crate) const GO_ON: i32 = 12;
pub(crate) const WHO: i32 = 14;
pub(crate) const TASK: i32 = 35;
pub(crate) const READ_USER: i32 = 112;
pub(crate) const READ_USER_TEXT: i32 = 114;
pub(crate) const SIGNAL_THREAD: i32 = 117;
pub(crate) const READ_KERNEL: i32 = 113;
pub(crate) const READ_KERNEL_TEXT: i32 = 115;
pub(crate) const OUTPUT: i32 = 130;
pub(crate) const RESERVE: i32 = 131;
pub(crate) const SUBMIT: i32 = 132;
pub(crate) const QUERY: i32 = 134;
/// Since Linux 5.15, of a task of which the kernel knows that it is one.
pub(crate) const REGISTERS_OF_TASK: i32 = 175;
/// Whoever reads looks by itself.
pub(crate) const NO_WAKEUP: i32 = 1;
/// Whoever waits for records is woken.
pub(crate) const WAKEUP: i32 = 2;

// Registers of results and arguments.
pub(crate) const R0: u8 = 0;
pub(crate) const R1: u8 = 1;
pub(crate) const R2: u8 = 2;
pub(crate) const R3: u8 = 3;
pub(crate) const R4: u8 = 4;
/// Where the stack ends.
pub(crate) const STACK: u8 = 10;

/// A program in the making.
#[derive(Default)]
pub(crate) struct Code {
    pub(crate) all: Vec<Instruction>,
    /// Jumps to the end.
    pub(crate) leaves: Vec<usize>,
}

impl Code {
    pub(crate) fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.all.push(Instruction {
            code,
            registers: to | from << 4,
            offset,
            immediate,
        });
    }

    pub(crate) fn copy(&mut self, to: u8, from: u8) {
        self.put(MOVE, to, from, 0, 0);
    }

    pub(crate) fn set(&mut self, to: u8, number: i32) {
        self.put(MOVE_NUMBER, to, 0, 0, number);
    }

    pub(crate) fn add(&mut self, to: u8, number: i32) {
        self.put(ADD_NUMBER, to, 0, 0, number);
    }

    /// The address of a place on the stack.
    pub(crate) fn stack(&mut self, to: u8, at: i16) {
        self.copy(to, STACK);
        self.add(to, at.into());
    }

    pub(crate) fn load(&mut self, to: u8, from: u8, at: usize) {
        self.put(LOAD_64, to, from, at as i16, 0);
    }

    pub(crate) fn call(&mut self, helper: i32) {
        self.put(CALL, 0, 0, 0, helper);
    }

    /// Calls a function of the kernel that is made for programs (Documentation/bpf/kfuncs.rst).
    pub(super) fn call_kernel(&mut self, function: i32) {
        self.put(CALL, 0, OF_KERNEL, 0, function);
    }

    pub(crate) fn map(&mut self, to: u8, kind: u8, map: BorrowedFd<'_>) {
        self.put(LOAD_WIDE, to, kind, 0, map.as_raw_fd());
        self.put(0, 0, 0, 0, 0);
    }

    /// A number of 64 bits.
    pub(crate) fn set_wide(&mut self, to: u8, number: u64) {
        self.put(LOAD_WIDE, to, 0, 0, number as i32);
        self.put(0, 0, 0, 0, (number >> 32) as i32);
    }

    pub(crate) fn leave_if(&mut self, code: u8, register: u8, number: i32) {
        self.leaves.push(self.all.len());
        self.put(code, register, 0, 0, number);
    }

    /// `jump` leads here.
    pub(crate) fn land(&mut self, jump: usize) {
        self.all[jump].offset = (self.all.len() - jump - 1) as i16;
    }

    /// A jump, to where [`Code::land`] will say.
    pub(crate) fn jump(&mut self, code: u8, register: u8, other: u8, number: i32) -> usize {
        self.put(code, register, other, 0, number);
        self.all.len() - 1
    }

    /// A jump back to `place`.
    pub(crate) fn jump_back(&mut self, code: u8, register: u8, number: i32, place: usize) {
        let offset = place as isize - self.all.len() as isize - 1;
        self.put(code, register, 0, offset as i16, number);
    }

    /// Jumps of `leaves` end here.
    pub(super) fn land_leaves(&mut self) {
        for place in std::mem::take(&mut self.leaves) {
            self.land(place);
        }
    }

    /// The same, and the end of the program.
    pub(crate) fn leave(&mut self) {
        self.land_leaves();
        self.set(R0, 0);
        self.put(EXIT, 0, 0, 0, 0);
    }
}
