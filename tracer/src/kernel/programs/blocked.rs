//! Which call a thread is in that leaves its processor to wait: told with that, so that calls need not be told by themselves which do
//! nothing but perhaps wait. There are many of these for each that does.

use std::os::fd::BorrowedFd;

use super::program::NUMBERS;
use crate::bpf::btf::Types;
use crate::bpf::code::{
    ADD, AND_NUMBER, Code, IF_EQUAL, IF_GREATER, IF_NOT_EQUAL, JUMP, LOAD_8, LOAD_32, LOAD_64,
    MEMORY_OF_MAP, R0, R1, R2, R3, REGISTERS_OF_TASK, STACK, STORE_64,
};
use crate::bpf::registers;
use crate::kernel::sample::{What, bytes};
use crate::kernel::syscalls;

/// What follows in a record: the number of the call, whether it is one of the other architecture, and the registers that may hold its
/// arguments.
const NUMBER: usize = 0;
const FOREIGN: usize = 8;
const REGISTERS: usize = 16;
const WORDS: usize = 11;
pub(super) const BYTES: usize = REGISTERS + 8 * WORDS;

/// Places on the stack.
const CALL: i16 = -32;
const IS_FOREIGN: i16 = -40;
const AT: i16 = -48;

/// Of a task that is no program's (`PF_KTHREAD`, `PF_USER_WORKER` and `PF_IO_WORKER` of linux/sched.h).
const OF_KERNEL: i32 = 0x0020_4010;

/// Where this kernel has what is read, in a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    flags: usize,
    status: usize,
}

impl Layout {
    /// `None`: it does not tell, or this processor's registers are not known.
    pub(super) fn of(types: &Types) -> Option<Layout> {
        if !registers::ARE_KNOWN {
            return None;
        }
        Some(Layout {
            flags: types.offset("task_struct", "flags")?,
            status: types.offset("task_struct", "thread_info.status")?,
        })
    }
}

/// One byte for each number of a call: not 0, its entries and returns are told anyway.
pub(super) fn told_anyway() -> [u8; NUMBERS] {
    let mut told = [0; NUMBERS];
    for number in syscalls::entries(false) {
        told[number as usize] = 1;
    }
    told
}

impl Code {
    /// Looks which call the thread is in that the task in R1 is. Returns the jumps for when nothing is to be told of it.
    pub(super) fn call_of(&mut self, layout: Layout, told: BorrowedFd<'_>) -> [usize; 2] {
        self.put(LOAD_32, R2, R1, layout.flags as i16, 0);
        self.put(AND_NUMBER, R2, 0, 0, OF_KERNEL);
        let of_kernel = self.jump(IF_NOT_EQUAL, R2, 0, 0);
        self.put(LOAD_32, R2, R1, layout.status as i16, 0);
        self.put(AND_NUMBER, R2, 0, 0, registers::COMPATIBLE);
        self.put(STORE_64, STACK, R2, IS_FOREIGN, 0);
        self.call(REGISTERS_OF_TASK);
        self.put(STORE_64, STACK, R0, AT, 0);
        self.load(R3, R0, registers::NUMBER);
        self.put(STORE_64, STACK, R3, CALL, 0);
        self.put(LOAD_64, R2, STACK, IS_FOREIGN, 0);
        let foreign = self.jump(IF_NOT_EQUAL, R2, 0, 0);
        // Negative in none.
        let none = self.jump(IF_GREATER, R3, 0, NUMBERS as i32 - 1);
        self.map(R1, MEMORY_OF_MAP, told);
        self.put(ADD, R1, R3, 0, 0);
        self.put(LOAD_8, R1, R1, 0, 0);
        let untold = self.jump(IF_EQUAL, R1, 0, 0);
        let anyway = self.jump(JUMP, 0, 0, 0);
        for jump in [foreign, none, untold] {
            self.land(jump);
        }
        [of_kernel, anyway]
    }

    /// Puts that behind `at` in the record that a register points at.
    pub(super) fn tell_call_of(&mut self, record: u8, at: usize) {
        for (from, to) in [(CALL, NUMBER), (IS_FOREIGN, FOREIGN)] {
            self.put(LOAD_64, R1, STACK, from, 0);
            self.put(STORE_64, record, R1, (at + to) as i16, 0);
        }
        self.put(LOAD_64, R2, STACK, AT, 0);
        for word in 0..WORDS {
            let from = registers::FOREIGN_ARGUMENTS as usize + 8 * word;
            self.load(R1, R2, from);
            self.put(STORE_64, record, R1, (at + REGISTERS + 8 * word) as i16, 0);
        }
    }
}

/// What was told so: the number of the call, and which one the thread is in. `None`: cut short.
pub(super) fn decode(told: &[u8]) -> Option<(u32, What)> {
    let told_from = registers::FOREIGN_ARGUMENTS as usize;
    let word = |at: usize| bytes(told, at).map(u64::from_ne_bytes);
    let is_foreign = word(FOREIGN)? != 0;
    let number = word(NUMBER)?;
    if number >= NUMBERS as u64 {
        return Some((0, What::InNoCall));
    }
    let mut arguments = [0; 6];
    for (n, argument) in arguments.iter_mut().enumerate() {
        let register = match is_foreign {
            true => registers::foreign_argument(n),
            false => registers::argument(n),
        };
        *argument = word(REGISTERS + register - told_from)?;
        if is_foreign {
            *argument &= u64::from(u32::MAX);
        }
    }
    let others = if is_foreign { NUMBERS as u32 } else { 0 };
    Some((number as u32 + others, What::In(arguments)))
}
