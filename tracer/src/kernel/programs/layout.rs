//! The layout of records and maps of the programs for calls, as in tracer/bpf/events.h; a test compares both.

/// Numbers of calls are below; those of the other architecture are recorded with this offset.
pub(super) const NUMBERS: usize = 512;

/// Flags of a call in the map `wanted`.
pub(super) const ENTERS: u8 = 1;
pub(super) const RETURNS: u8 = 2;
/// In addition to [`ENTERS`]: only its first three arguments matter.
pub(super) const SHORT: u8 = 4;
/// Its second argument is the address of lengths, whose number is the third; or of a message with lengths.
pub(super) const VECTOR: u8 = 8;
pub(super) const MESSAGE: u8 = 16;
/// The second and fourth arguments, or the third, are addresses of offsets.
pub(super) const OFFSETS: u8 = 32;
pub(super) const OFFSET: u8 = 64;
/// It moves data.
pub(super) const DATA: u8 = 128;

/// A slot: time, id of the thread, mark, and words: arguments, the result, or of a message the descriptor, the address
/// of its open file, and number and mode of the inode; or the bytes of several messages.
pub(super) const AT: usize = 0;
pub(super) const TID: usize = 8;
pub(super) const WORDS: usize = 16;
/// The mark: the number of the call, and in the bits above it the kind.
pub(super) const KIND_BITS: u32 = 10;
pub(super) const ENTRY: u16 = 1;
/// The first three arguments alone.
pub(super) const SHORT_ENTRY: u16 = 2;
/// A call of the other architecture.
pub(super) const FOREIGN_ENTRY: u16 = 3;
pub(super) const RETURN: u16 = 4;
pub(super) const CARRIED: u16 = 5;
pub(super) const MOVED: u16 = 6;
/// Arguments of a call, and of a short entry.
pub(super) const SIX: usize = 6;
pub(super) const THREE: usize = 3;

/// The constants of the programs (`config`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Config {
    pub(super) ring_bits: u32,
    /// Slots in use above which a thread that makes a call is stopped; 0: none is.
    pub(super) stop_above: u32,
}

impl Config {
    pub(super) fn bytes(self) -> Vec<u8> {
        let words = [self.ring_bits, self.stop_above];
        words.into_iter().flat_map(u32::to_ne_bytes).collect()
    }
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
    /// state in an interrupt; or a stage of a request to a device, with the device in the place of the next thread,
    /// and its sector in that of the time.
    pub(in super::super) const IS_WAKING: u32 = u32::MAX;
    pub(in super::super) const IS_REQUEST: u32 = u32::MAX - 1;
    pub(in super::super) const STAGES: [Stage; 3] = [Stage::Queued, Stage::Issued, Stage::Done];
}

/// In addition, the call in which the thread waits: its number, a flag for the other architecture, and
/// registers that may hold its arguments.
pub(super) mod waiting {
    pub(in super::super) const NUMBER: usize = 0;
    pub(in super::super) const FOREIGN: usize = 8;
    pub(in super::super) const REGISTERS: usize = 16;
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
        assert_eq!(of_slot("words"), Some((WORDS, 8 * SIX)));
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
    }
}
