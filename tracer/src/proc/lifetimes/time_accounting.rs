//! Time accounting of an image: the total life of its threads, to which its costs and its waits add up.
//!
//! A thread begins with the event of its maker and lives until it is resumed from its exit stop; the last
//! thread until it is reaped, because the work after its exit, such as giving back memory, is part of the
//! process's life. Stops by the tracer are included; stops by job control count as waiting.

use std::fs;
use std::sync::LazyLock;

use super::super::reading::block_io_ticks;
use crate::linux::tick_ns;

/// True if the kernel counts the time for which tasks wait for block devices
/// (Documentation/accounting/delay-accounting.rst). It is a switch of the whole machine.
static DELAY_ACCOUNTING: LazyLock<bool> = LazyLock::new(|| {
    fs::read("/proc/sys/kernel/task_delayacct").is_ok_and(|on| on.starts_with(b"1"))
});

/// The part of a thread's life in its present image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    since_ns: u64,
    /// Wait for block devices before that, in ticks.
    block_io_before: u64,
    /// True if it has been charged.
    closed: bool,
}

/// Sums over the threads of an image.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimeAccounting {
    pub(super) thread_ns: u64,
    block_io_ticks: u64,
}

impl Life {
    /// A life that begins now.
    pub(super) fn new(now: u64) -> Life {
        Life {
            since_ns: now,
            block_io_before: 0,
            closed: false,
        }
    }
}

impl TimeAccounting {
    /// Adds the wait for block devices of thread `tid`, which is in its last stop in this image.
    pub(super) fn read(&mut self, pid: u32, tid: u32, life: &mut Life) {
        if *DELAY_ACCOUNTING && let Some(ticks) = block_io_ticks(pid, tid) {
            self.block_io_ticks += ticks.saturating_sub(life.block_io_before);
            life.block_io_before = ticks;
        }
    }

    /// Charges the life of a thread that is over, itself or with the image; a life that was charged already
    /// is not charged again.
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
