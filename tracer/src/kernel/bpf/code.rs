//! Instructions of the kernel's own machine (Documentation/bpf/standardization), put one after the other.

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

// Opcodes: class, operation and source in one.
pub(super) const LOAD_64: u8 = 0x79;
pub(super) const LOAD_8: u8 = 0x71;
pub(super) const STORE_64: u8 = 0x7b;
pub(super) const STORE_32: u8 = 0x63;
pub(super) const ATOMIC_64: u8 = 0xdb;
pub(super) const LOAD_WIDE: u8 = 0x18;
pub(super) const MOVE: u8 = 0xbf;
pub(super) const MOVE_NUMBER: u8 = 0xb7;
pub(super) const ADD: u8 = 0x0f;
pub(super) const OR: u8 = 0x4f;
pub(super) const ADD_NUMBER: u8 = 0x07;
pub(super) const AND_NUMBER: u8 = 0x57;
pub(super) const SHIFT_RIGHT: u8 = 0x77;
pub(super) const SHIFT_LEFT: u8 = 0x67;
pub(super) const JUMP: u8 = 0x05;
pub(super) const IF_SAME: u8 = 0x1d;
pub(super) const LOAD_32: u8 = 0x61;
pub(super) const IF_EQUAL: u8 = 0x15;
pub(super) const IF_NOT_EQUAL: u8 = 0x55;
pub(super) const IF_GREATER: u8 = 0x25;
pub(super) const IF_LESS: u8 = 0xa5;
pub(super) const CALL: u8 = 0x85;
pub(super) const EXIT: u8 = 0x95;

/// `src_reg` of a wide load: a map, and the memory of an array.
pub(super) const MAP: u8 = 1;
pub(super) const MEMORY_OF_MAP: u8 = 2;

/// Helpers by their number (include/uapi/linux/bpf.h).
pub(super) const LOOK_UP: i32 = 1;
pub(super) const TIME: i32 = 5;
pub(super) const PROCESSOR: i32 = 8;
pub(super) const WHO: i32 = 14;
pub(super) const READ_USER: i32 = 112;
pub(super) const SIGNAL_THREAD: i32 = 117;
pub(super) const READ_KERNEL: i32 = 113;
pub(super) const RESERVE: i32 = 131;
pub(super) const SUBMIT: i32 = 132;
pub(super) const QUERY: i32 = 134;
/// Whoever reads looks by itself.
pub(super) const NO_WAKEUP: i32 = 1;

// Registers of results and arguments.
pub(super) const R0: u8 = 0;
pub(super) const R1: u8 = 1;
pub(super) const R2: u8 = 2;
pub(super) const R3: u8 = 3;
/// Where the stack ends.
pub(super) const STACK: u8 = 10;

/// A program in the making.
#[derive(Default)]
pub(super) struct Code {
    pub(super) all: Vec<Instruction>,
    /// Jumps to the end.
    pub(super) leaves: Vec<usize>,
}

impl Code {
    pub(super) fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.all.push(Instruction {
            code,
            registers: to | from << 4,
            offset,
            immediate,
        });
    }

    pub(super) fn copy(&mut self, to: u8, from: u8) {
        self.put(MOVE, to, from, 0, 0);
    }

    pub(super) fn set(&mut self, to: u8, number: i32) {
        self.put(MOVE_NUMBER, to, 0, 0, number);
    }

    pub(super) fn add(&mut self, to: u8, number: i32) {
        self.put(ADD_NUMBER, to, 0, 0, number);
    }

    pub(super) fn load(&mut self, to: u8, from: u8, at: usize) {
        self.put(LOAD_64, to, from, at as i16, 0);
    }

    pub(super) fn call(&mut self, helper: i32) {
        self.put(CALL, 0, 0, 0, helper);
    }

    pub(super) fn map(&mut self, to: u8, kind: u8, map: BorrowedFd<'_>) {
        self.put(LOAD_WIDE, to, kind, 0, map.as_raw_fd());
        self.put(0, 0, 0, 0, 0);
    }

    pub(super) fn leave_if(&mut self, code: u8, register: u8, number: i32) {
        self.leaves.push(self.all.len());
        self.put(code, register, 0, 0, number);
    }

    /// `jump` leads here.
    pub(super) fn land(&mut self, jump: usize) {
        self.all[jump].offset = (self.all.len() - jump - 1) as i16;
    }

    /// A jump, to where [`Code::land`] will say.
    pub(super) fn jump(&mut self, code: u8, register: u8, other: u8, number: i32) -> usize {
        self.put(code, register, other, 0, number);
        self.all.len() - 1
    }

    /// A jump back to `place`.
    pub(super) fn jump_back(&mut self, code: u8, register: u8, number: i32, place: usize) {
        let offset = place as isize - self.all.len() as isize - 1;
        self.put(code, register, 0, offset as i16, number);
    }

    /// Jumps of `leaves` end here.
    pub(super) fn leave(&mut self) {
        let end = self.all.len();
        for place in std::mem::take(&mut self.leaves) {
            self.all[place].offset = (end - place - 1) as i16;
        }
        self.set(R0, 0);
        self.put(EXIT, 0, 0, 0, 0);
    }
}
