//! Sizes of rings, one ring for each CPU.

use std::io;

use crate::{cpus, memory};

/// Bytes of a ring: the smallest useful size, and the usual one.
pub(super) const SMALLEST: usize = 64 << 10;
const USUAL: usize = 8 << 20;
/// Bytes of a ring of the scheduler, which has fewer records.
const SCHEDULER: usize = 4 << 20;

/// Bytes of each ring of calls, or of the scheduler, of which `usual` are enough: less where all rings would
/// exceed a sixteenth of `memory`.
fn ring_within(usual: usize, memory: u64, cpus: usize) -> usize {
    let share = usize::try_from(memory / 16).unwrap_or(usize::MAX) / cpus.max(1);
    match share.checked_ilog2() {
        Some(bits) => usual.min(1 << bits).max(SMALLEST),
        None => SMALLEST,
    }
}

/// Bytes of each ring on this machine.
fn ring_here(usual: usize) -> io::Result<usize> {
    Ok(ring_within(usual, memory::limit(), cpus::online()?.len()))
}

/// Bytes of a ring of the scheduler.
pub(super) fn of_scheduler() -> io::Result<usize> {
    ring_here(SCHEDULER)
}

/// Bytes of a ring of calls, a power of 2 of pages: so many KiB, if that is asked for.
///
/// # Errors
/// When the number of CPUs cannot be read.
pub(super) fn of_calls(kib: Option<u32>) -> io::Result<usize> {
    match kib {
        Some(kib) => Ok(((kib as usize) << 10).next_power_of_two().max(SMALLEST)),
        None => ring_here(USUAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_have_the_size_that_is_asked_for() {
        assert!((SMALLEST..=USUAL).contains(&of_calls(None).unwrap()));
        assert_eq!(ring_within(USUAL, u64::MAX, 64), USUAL);
        assert_eq!(ring_within(USUAL, 100 << 20, 2), 2 << 20);
        assert_eq!(ring_within(SCHEDULER, 400 << 20, 2), SCHEDULER);
        assert_eq!(ring_within(USUAL, 0, 2), SMALLEST);
        assert_eq!(of_calls(Some(0)).unwrap(), SMALLEST);
        assert_eq!(of_calls(Some(65)).unwrap(), 128 << 10);
    }
}
