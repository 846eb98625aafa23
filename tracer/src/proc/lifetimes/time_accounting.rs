//! How long the threads of an image lived: the sum that its costs and its waits add up to.
//!
//! A thread begins with the event of its maker and lives until it is let go from its exit stop;
//! the last one until it is reaped, because what follows its exit, such as giving back memory, is
//! part of the process's life. Stops by the tracer are within; those by job control count as
//! waiting.

use std::fs;
use std::sync::LazyLock;

use super::super::reading::block_io_ticks;
use crate::linux::tick_ns;

/// Whether the kernel counts the time for which tasks wait for block devices
/// (Documentation/accounting/delay-accounting.rst). It is a switch of the whole machine.
static DELAY_ACCOUNTING: LazyLock<bool> = LazyLock::new(|| {
    fs::read("/proc/sys/kernel/task_delayacct").is_ok_and(|on| on.starts_with(b"1"))
});

/// The part of a thread's life that its present image has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    since_ns: u64,
    /// Wait for block devices before that, in ticks.
    block_io_before: u64,
    /// It is in the books.
    closed: bool,
}

/// What the threads of an image had in common.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimeAccounting {
    pub(super) thread_ns: u64,
    block_io_ticks: u64,
}

impl Life {
    /// Begins now.
    pub(super) fn new(now: u64) -> Life {
        Life {
            since_ns: now,
            block_io_before: 0,
            closed: false,
        }
    }
}

impl TimeAccounting {
    /// Reads what thread `tid`, which is in its last stop in this image, waited for block devices.
    pub(super) fn read(&mut self, pid: u32, tid: u32, life: &mut Life) {
        if *DELAY_ACCOUNTING && let Some(ticks) = block_io_ticks(pid, tid) {
            self.block_io_ticks += ticks.saturating_sub(life.block_io_before);
            life.block_io_before = ticks;
        }
    }

    /// A thread is over, or over with the image; one that is in the books already is not counted
    /// again.
    pub(super) fn close(&mut self, life: &mut Life, now: u64) {
        if !life.closed {
            self.thread_ns += now.saturating_sub(life.since_ns);
            life.closed = true;
        }
    }

    /// The same thread goes on with another image.
    pub(super) fn next_image(&mut self, life: &mut Life, now: u64) {
        self.close(life, now);
        life.since_ns = now;
        life.closed = false;
    }

    /// `None`: the kernel does not count it.
    pub(super) fn block_io_ns(&self) -> Option<u64> {
        DELAY_ACCOUNTING.then(|| self.block_io_ticks.saturating_mul(tick_ns()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_life_is_counted_once() {
        let (mut first, mut second) = (TimeAccounting::default(), TimeAccounting::default());
        let mut leader = Life::new(100);
        first.next_image(&mut leader, 150);
        let mut other = Life::new(200);
        second.close(&mut leader, 250);
        second.close(&mut leader, 400);
        second.close(&mut other, 390);
        assert_eq!(first.thread_ns, 50);
        assert_eq!(second.thread_ns, 100 + 190);
    }
}
