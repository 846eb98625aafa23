//! Instructions of the kernel's eBPF (Documentation/bpf/standardization/instruction-set.rst), as far as they
//! are changed before they are loaded.

/// One instruction.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    code: u8,
    /// Destination in the lower half, source in the upper one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const CALL: u8 = 0x85;
/// Classes of instructions whose offset is that of the memory they access: LDX, ST and STX.
const ACCESSES: std::ops::RangeInclusive<u8> = 1..=3;
/// The number of a helper that does not exist: the kernel refuses a program that may reach it.
const NO_HELPER: i32 = 0x0bad_2310;

impl Instruction {
    /// The instruction that the compiler wrote; `bytes` are eight.
    pub(super) fn of(bytes: &[u8]) -> Instruction {
        let byte = |n: usize| bytes.get(n).copied().unwrap_or(0);
        Instruction {
            code: byte(0),
            registers: byte(1),
            offset: i16::from_ne_bytes([byte(2), byte(3)]),
            immediate: i32::from_ne_bytes([byte(4), byte(5), byte(6), byte(7)]),
        }
    }

    pub(super) fn is_call(self) -> bool {
        self.code == CALL
    }

    pub(super) fn immediate(self) -> i32 {
        self.immediate
    }

    pub(super) fn set_immediate(&mut self, value: i32) {
        self.immediate = value;
    }

    /// Makes it a call of a function of the kind `source`.
    pub(super) fn call(&mut self, source: u8, target: i32) {
        self.registers = self.registers & 0x0f | source << 4;
        self.offset = 0;
        self.immediate = target;
    }

    /// Makes it load the address of a map, or of its value, by `source`.
    pub(super) fn set_map(&mut self, source: u8, map: i32) {
        self.registers = self.registers & 0x0f | source << 4;
        self.immediate = map;
    }

    /// Writes the value of a relocation into the field that this instruction has for it.
    pub(super) fn relocate(&mut self, value: i64) {
        if ACCESSES.contains(&(self.code & 7)) {
            self.offset = value as i16;
        } else {
            self.immediate = value as i32;
        }
    }

    /// Makes it an instruction that must not be reached.
    pub(super) fn poison(&mut self) {
        *self = Instruction {
            code: CALL,
            registers: 0,
            offset: 0,
            immediate: NO_HELPER,
        };
    }
}
