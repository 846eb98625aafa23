//! The call in which a thread waits that leaves its CPU: recorded together with the switch, so that calls
//! that only may wait need no records of their own.

use super::layout::NUMBERS;
use super::layout::waiting::{
    ARGUMENTS, DEVICE, FILE_BYTES, FILES, FOREIGN, FOREIGN_ARGUMENTS, INODE, MODE, NUMBER,
    REGISTERS,
};
use crate::kernel::sample::{InCall, WaitedFile, What, bytes};
use crate::kernel::syscalls::waited_for;
use crate::stat::Inode;

/// The arguments of each call that have descriptors (`descriptors` of tracer/bpf/switches.bpf.c).
pub(super) fn descriptors() -> Vec<u8> {
    let of = |number: u32| {
        let [one, other] = waited_for(number).map(|at| at.map_or(0, |at| at as u8 + 1));
        one | other << 4
    };
    (0..2 * NUMBERS as u32).map(of).collect()
}

/// The recorded call: its number, its arguments and its files. `None`: truncated.
pub(super) fn decode(record: &[u8]) -> Option<(u32, What)> {
    let word = |at: usize| bytes(record, at).map(u64::from_ne_bytes);
    let half = |at: usize| bytes(record, at).map(u32::from_ne_bytes);
    let is_foreign = word(FOREIGN)? != 0;
    let number = word(NUMBER)?;
    if number >= NUMBERS as u64 {
        return Some((0, What::InNoCall));
    }
    let mut arguments = [0; 6];
    let places = if is_foreign {
        FOREIGN_ARGUMENTS
    } else {
        ARGUMENTS
    };
    for (argument, place) in arguments.iter_mut().zip(places) {
        *argument = word(REGISTERS + 8 * place)?;
        if is_foreign {
            *argument &= u64::from(u32::MAX);
        }
    }
    let mut files = [None; 2];
    for (n, file) in files.iter_mut().enumerate() {
        let at = FILES + n * FILE_BYTES;
        let inode = Inode::reported(half(at + DEVICE)?, word(at + INODE)?);
        let mode = half(at + MODE)?;
        *file = (mode != 0).then_some(WaitedFile { inode, mode });
    }
    let others = if is_foreign { NUMBERS as u32 } else { 0 };
    Some((
        number as u32 + others,
        What::In(InCall { arguments, files }),
    ))
}
