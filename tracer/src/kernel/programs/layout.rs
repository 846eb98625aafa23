//! The layout of records and maps of the programs for calls, as in tracer/bpf/events.h; a test compares both.

/// Numbers of calls are below; those of the other architecture are recorded with this offset.
pub(super) const NUMBERS: usize = 512;

/// How a call uses files (`struct call_arguments`): a half word of flags, then the arguments with the first
/// descriptor, the second one, their places, the length, the flags and more flags; and a word with the wanted values
/// of the latter.
pub(super) const CALL_ARGUMENTS: usize = 24;
pub(super) const COMMANDS: usize = 16;
pub(super) const MOVES_DATA: u16 = 1;
pub(super) const WRITES: u16 = 2;
pub(super) const VECTOR: u16 = 4;
pub(super) const MESSAGE: u16 = 8;
pub(super) const MESSAGES: u16 = 16;
pub(super) const PLACE_IS_OFFSET: u16 = 32;
pub(super) const MINUS_ONE_IS_POSITION: u16 = 64;
pub(super) const ACTS: u16 = 128;
pub(super) const NAMES_FILE: u16 = 256;
pub(super) const LOCK: u16 = 512;
/// There is no such argument.
pub(super) const NO_ARGUMENT: u8 = 7;

/// A slot: time, id of the thread, mark; and the use of a file, or the result.
pub(super) const AT: usize = 0;
pub(super) const TID: usize = 8;
pub(super) const USE: usize = 16;
/// The mark: the number of the call, and in the bits above it the kind.
pub(super) const KIND_BITS: u32 = 10;
pub(super) const ENTRY: u16 = 1;
pub(super) const OTHER_ENTRY: u16 = 2;
pub(super) const RETURN: u16 = 3;
pub(super) const MOVED: u16 = 4;
/// Of a return, in the place of the use.
pub(super) const RESULT: usize = 16;
pub(super) const POSITION: usize = 24;

/// The use of a file (`struct file_use`).
pub(super) mod file_use {
    pub(in super::super) const FILE: usize = 0;
    pub(in super::super) const INODE: usize = 8;
    pub(in super::super) const DEVICE: usize = 16;
    pub(in super::super) const MODE: usize = 20;
    pub(in super::super) const USES: usize = 22;
    pub(in super::super) const OFFSET: usize = 24;
    pub(in super::super) const LENGTH: usize = 32;
    pub(in super::super) const FLAGS: usize = 40;
    pub(in super::super) const DESCRIPTOR: usize = 44;
    /// Bits of its member `uses`.
    pub(in super::super) const AT_POSITION: u16 = 1;
    pub(in super::super) const APPENDS: u16 = 2;
}

/// A record of a switch: time, the thread that leaves or is woken, the one that comes, the states of the thread that
/// leaves, and its time on CPUs.
pub(super) mod switch {
    use crate::kernel::sample::Stage;

    pub(in super::super) const AT: usize = 0;
    pub(in super::super) const TID: usize = 8;
    pub(in super::super) const NEXT: usize = 12;
    pub(in super::super) const STATE: usize = 16;
    pub(in super::super) const EXIT_STATE: usize = 20;
    pub(in super::super) const RAN: usize = 24;
    pub(in super::super) const BYTES: usize = 32;
    /// In the place of [`EXIT_STATE`]: it is a waking, with the waker in the place of the next thread, and 1 for the
    /// state in an interrupt, 2 in one of hardware; or a stage of a request to a device, with the device in the
    /// place of the next thread, and its sector in that of the time.
    pub(in super::super) const IS_WAKING: u32 = u32::MAX;
    pub(in super::super) const IS_REQUEST: u32 = u32::MAX - 1;
    pub(in super::super) const STAGES: [Stage; 3] = [Stage::Queued, Stage::Issued, Stage::Done];
}

/// In addition, the call in which the thread waits: its number, a flag for the other architecture, registers that
/// may hold its arguments, and the files of two descriptors.
pub(super) mod waiting {
    pub(in super::super) const NUMBER: usize = 0;
    pub(in super::super) const FOREIGN: usize = 8;
    pub(in super::super) const REGISTERS: usize = 16;
    pub(in super::super) const FILES: usize = 104;
    /// A file (`struct waited_file`).
    pub(in super::super) const INODE: usize = 0;
    pub(in super::super) const DEVICE: usize = 8;
    pub(in super::super) const MODE: usize = 12;
    pub(in super::super) const FILE_BYTES: usize = 16;
    /// Places of the arguments among the registers bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di; and those of a call
    /// of the other architecture.
    pub(in super::super) const ARGUMENTS: [usize; 6] = [10, 9, 8, 3, 5, 4];
    pub(in super::super) const FOREIGN_ARGUMENTS: [usize; 6] = [1, 7, 8, 9, 10, 0];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::objects::{Source, open};

    #[test]
    fn slots_are_as_in_the_object() {
        let Ok(object) = open(Source::Tests) else {
            return eprintln!("skipped: no eBPF programs for this CPU architecture");
        };
        let of_slot = |member| object.types().extent("slot", member);
        assert_eq!(of_slot("at"), Some((AT, 8)));
        assert_eq!(of_slot("tid"), Some((TID, 4)));
        assert_eq!(of_slot("mark"), Some((TID + 4, 4)));
        assert_eq!(of_slot("use"), Some((USE, 48)));
        assert_eq!(of_slot("result"), Some((RESULT, 8)));
        assert_eq!(of_slot("position"), Some((POSITION, 8)));
        let of = |member| object.types().extent("file_use", member);
        assert_eq!(of("file"), Some((file_use::FILE, 8)));
        assert_eq!(of("inode"), Some((file_use::INODE, 8)));
        assert_eq!(of("device"), Some((file_use::DEVICE, 4)));
        assert_eq!(of("mode"), Some((file_use::MODE, 2)));
        assert_eq!(of("uses"), Some((file_use::USES, 2)));
        assert_eq!(of("offset"), Some((file_use::OFFSET, 8)));
        assert_eq!(of("length"), Some((file_use::LENGTH, 8)));
        assert_eq!(of("flags"), Some((file_use::FLAGS, 4)));
        assert_eq!(of("descriptor"), Some((file_use::DESCRIPTOR, 4)));
        let of = |member| object.types().extent("call_arguments", member);
        let members = [
            "first",
            "second",
            "place",
            "second_place",
            "length",
            "flags",
            "more_flags",
        ];
        assert_eq!(of("how"), Some((0, 2)));
        for (place, member) in members.into_iter().enumerate() {
            assert_eq!(of(member), Some((2 + place, 1)), "{member}");
        }
        assert_eq!(of("commands"), Some((COMMANDS, 8)));
        assert_eq!(object.types().size("call_arguments"), Some(CALL_ARGUMENTS));
        assert_eq!(
            object.types().size("slot"),
            Some(crate::bpf::per_cpu_rings::SLOT)
        );
    }

    #[test]
    fn switches_are_as_in_the_object() {
        let Ok(object) = open(Source::Tests) else {
            return eprintln!("skipped: no eBPF programs for this CPU architecture");
        };
        let of = |member| object.types().extent("switch_event", member);
        assert_eq!(of("at"), Some((switch::AT, 8)));
        assert_eq!(of("tid"), Some((switch::TID, 4)));
        assert_eq!(of("next"), Some((switch::NEXT, 4)));
        assert_eq!(of("state"), Some((switch::STATE, 4)));
        assert_eq!(of("exit_state"), Some((switch::EXIT_STATE, 4)));
        assert_eq!(of("ran"), Some((switch::RAN, 8)));
        assert_eq!(object.types().size("switch_event"), Some(switch::BYTES));
        let of = |member| object.types().extent("waiting_call", member);
        assert_eq!(of("number"), Some((waiting::NUMBER, 8)));
        assert_eq!(of("is_compat"), Some((waiting::FOREIGN, 8)));
        assert_eq!(of("registers"), Some((waiting::REGISTERS, 88)));
        assert_eq!(of("files"), Some((waiting::FILES, 2 * waiting::FILE_BYTES)));
        let of = |member| object.types().extent("waited_file", member);
        assert_eq!(of("inode"), Some((waiting::INODE, 8)));
        assert_eq!(of("device"), Some((waiting::DEVICE, 4)));
        assert_eq!(of("mode"), Some((waiting::MODE, 4)));
    }
}
