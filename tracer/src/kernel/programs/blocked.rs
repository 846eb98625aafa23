//! The call in which a thread waits that leaves its CPU: recorded together with the switch, so that calls
//! that only may wait need no records of their own. These are many more than the calls with an effect.

use super::layout::NUMBERS;
use super::layout::waiting::{ARGUMENTS, FOREIGN, FOREIGN_ARGUMENTS, NUMBER, REGISTERS};
use crate::kernel::sample::{What, bytes};
use crate::kernel::syscalls;

/// One byte for each number of a call: not 0 if its entries and returns are recorded anyway.
pub(super) fn recorded_anyway() -> [u8; NUMBERS] {
    let mut recorded = [0; NUMBERS];
    for number in syscalls::entries(false) {
        recorded[number as usize] = 1;
    }
    recorded
}

/// Number and arguments of the recorded call. `None`: truncated.
pub(super) fn decode(record: &[u8]) -> Option<(u32, What)> {
    let word = |at: usize| bytes(record, at).map(u64::from_ne_bytes);
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
    let others = if is_foreign { NUMBERS as u32 } else { 0 };
    Some((number as u32 + others, What::In(arguments)))
}
