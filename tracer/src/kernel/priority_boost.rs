//! Priority of the reader of rings over other threads.

use std::fs;

use crate::priority;

/// Where rings fill fast, or more threads are ready to run than there are CPUs, the calling thread gets a
/// real-time priority: its normal priority has no effect on threads of other sessions (sched(7), "The
/// autogroup feature"), and while these run, records are lost for want of space. A real-time thread takes its
/// last CPU from the running thread, though another one may be idle, so the boost is short.
#[derive(Debug)]
pub(super) struct PriorityBoost {
    cpus: u32,
    /// Reads until the boost ends, or is decided again.
    left: u32,
}

impl PriorityBoost {
    pub(super) fn new() -> PriorityBoost {
        PriorityBoost {
            cpus: crate::cpus::array_length().unwrap_or(u32::MAX),
            left: 0,
        }
    }

    /// The rings were emptied.
    pub(super) fn rings_read(&mut self, fill_fast: bool) {
        const READS: u32 = 100;
        let was = self.left > 0;
        self.left = self.left.saturating_sub(1);
        if fill_fast || self.left == 0 && self.is_crowded() {
            self.left = READS;
        }
        match (was, self.left > 0) {
            (false, true) => priority::at_once(),
            (true, false) => priority::as_usual(),
            _ => {}
        }
    }

    /// True if more threads are ready to run than those that have a CPU.
    fn is_crowded(&self) -> bool {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        // The calling thread runs, too.
        running(&load).is_some_and(|running| running > self.cpus.saturating_add(1))
    }
}

/// Number of threads that run or are ready to (proc_loadavg(5)).
fn running(load: &str) -> Option<u32> {
    let (running, _) = load.split_ascii_whitespace().nth(3)?.split_once('/')?;
    running.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_that_run_are_counted() {
        assert_eq!(running("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(running(""), None);
        let own = fs::read_to_string("/proc/loadavg").unwrap();
        assert!(running(&own).unwrap() >= 1, "{own}");
    }

    #[test]
    fn it_lasts_for_some_reads_and_no_longer() {
        let mut boost = PriorityBoost {
            cpus: u32::MAX,
            left: 0,
        };
        boost.rings_read(false);
        assert_eq!(boost.left, 0);
        boost.rings_read(true);
        let reads = boost.left;
        assert!(reads > 0);
        (0..reads).for_each(|_| boost.rings_read(false));
        assert_eq!(boost.left, 0);
    }
}
