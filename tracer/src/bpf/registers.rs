//! Where the kernel keeps the registers of a thread that makes a call (`struct pt_regs`, which begins as what ptrace
//! tells of them): those with the arguments, and the number of the call.

#[cfg(target_arch = "x86_64")]
mod of_processor {
    use std::mem::offset_of;

    use libc::user_regs_struct as Registers;

    /// r10, r9, r8, rax, rcx, rdx, rsi and rdi are there, in this order.
    pub(crate) const ARGUMENTS: i32 = offset_of!(Registers, r10) as i32;
    pub(crate) const NUMBER: usize = offset_of!(Registers, orig_rax);
    pub(crate) const ORDER: [usize; 6] = [7, 6, 5, 0, 2, 1];
    /// From here on a 32-bit program has its arguments: ebx, ecx, edx, esi, edi and ebp.
    pub(crate) const FOREIGN_ARGUMENTS: i32 = offset_of!(Registers, rbp) as i32;
    pub(crate) const FOREIGN_ORDER: [usize; 6] = [1, 7, 8, 9, 10, 0];
    /// Where the next instruction is.
    pub(crate) const INSTRUCTION: usize = offset_of!(Registers, rip);
    /// A call by the instruction `syscall` leaves the same here; that by `int 0x80`, which has the numbers of 32-bit programs, an argument.
    pub(crate) const SAME_INSTRUCTION: usize = offset_of!(Registers, rcx);
}
#[cfg(not(target_arch = "x86_64"))]
mod of_processor {
    // Those of aarch64, where nobody has tried them yet, so that whoever needs them refuses.
    pub(crate) const ARGUMENTS: i32 = 0;
    pub(crate) const NUMBER: usize = 280;
    pub(crate) const ORDER: [usize; 6] = [0, 1, 2, 3, 4, 5];
    pub(crate) const FOREIGN_ARGUMENTS: i32 = 0;
    pub(crate) const FOREIGN_ORDER: [usize; 6] = [0, 1, 2, 3, 4, 5];
    pub(crate) const INSTRUCTION: usize = 256;
    pub(crate) const SAME_INSTRUCTION: usize = INSTRUCTION;
}
pub(crate) use of_processor::*;

/// Where this argument of a call is, of six.
pub(crate) const fn argument(n: usize) -> usize {
    ARGUMENTS as usize + 8 * ORDER[n]
}

/// The same of a 32-bit program's.
pub(crate) const fn foreign_argument(n: usize) -> usize {
    FOREIGN_ARGUMENTS as usize + 8 * FOREIGN_ORDER[n]
}

/// Set in the status of a task that is in a call with the numbers of 32-bit programs (`TS_COMPAT` of arch/x86/include/asm/thread_info.h).
pub(crate) const COMPATIBLE: i32 = 2;

/// Whether they are known to be read right on this processor.
pub(crate) const ARE_KNOWN: bool = cfg!(target_arch = "x86_64");
