//! Clocks of the scheduler and their relation to the monotonic clock. The CPU time of a thread is updated
//! when it leaves its CPU, and at every tick; for a thread that executes a program, some of it is not counted
//! yet.
//!
//! A CPU has two clocks: one advances always; the other one, by which threads are charged, stands still while
//! the machine does not have the CPU (steal). Both are updated together, more often than each thread's
//! account. So the uncounted time is the difference between the account and the second clock, plus the time
//! since on the first one. Where the kernel does not show the clocks, only the time of the account is known.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_getres};

use crate::proc::tracepoints::{Tracepoints, Used, What};

/// Distances beyond this mean that other clocks were compared.
const LONGEST_NS: u64 = 1_000_000_000;
/// More than the time between two ticks, where that is not known.
const LONGEST_TICK_NS: u64 = 20_000_000;
/// The scheduler's clock and the one that is not slewed (`CLOCK_MONOTONIC_RAW`), which count the same,
/// diverge by no more than one part in this number.
const DRIFT: u64 = 1_000_000;
/// Longest wait for the end of a thread, which shows the distance of the clocks.
const PATIENCE: Duration = Duration::from_millis(20);

/// Distance of the two clocks on each CPU at the last reading, ns.
#[derive(Debug)]
pub(super) struct Clocks {
    apart: HashMap<u32, u64>,
    /// For CPUs without a reading: the last reading of all.
    any: Option<u64>,
    /// The distance of the clock that advances always, which is one for all CPUs: the least of all readings,
    /// and the time of the last one. The exit of a thread whose CPU's clock was halted is reported too late.
    always: Option<(i64, u64)>,
    /// Time between two ticks, ns.
    tick_ns: u64,
    /// Distance of the monotonic clock to the one that is not slewed at first, and its change until the last
    /// reading, ns.
    slewed: (Option<i64>, i64),
}

impl Clocks {
    fn new(tick_ns: u64) -> Clocks {
        Clocks {
            apart: HashMap::new(),
            any: None,
            always: None,
            tick_ns,
            slewed: (slew_ns(), 0),
        }
    }

    /// Reads how far the monotonic clock is slewed by now.
    pub(super) fn read(&mut self) {
        if let Some(now) = slew_ns() {
            self.slewed.1 = now - *self.slewed.0.get_or_insert(now);
        }
    }

    /// The time on the monotonic clock, had it not been slewed since the first reading.
    fn steady(&self, at_ns: u64) -> u64 {
        at_ns.wrapping_sub(self.slewed.1.cast_unsigned())
    }

    /// Compares the clocks by the exit of a thread of flowtrace.
    pub(super) fn of(tracepoints: &mut Tracepoints) -> Clocks {
        let mut clocks = Clocks::new(tick_ns());
        let own = std::process::id();
        tracepoints.follow(own);
        let began = Instant::now();
        let ended = thread::spawn(|| {}).join();
        while ended.is_ok() && clocks.any.is_none() && began.elapsed() < PATIENCE {
            tracepoints.receive(|event| {
                if let What::Ended(end) = &event.what {
                    clocks.counted(&end.used, event.at_ns);
                }
            });
        }
        tracepoints.forget(own);
        clocks
    }

    /// The costs of this thread were updated at this time.
    pub(super) fn counted(&mut self, used: &Used, at_ns: u64) {
        let at_ns = self.steady(at_ns);
        let apart = at_ns.wrapping_sub(used.counted_at);
        self.apart.insert(used.cpu, apart);
        self.any = Some(apart);
        if used.clock_at > 0 {
            let apart = at_ns.wrapping_sub(used.clock_at).cast_signed();
            let known = self.always.map_or(apart, |(least, when)| {
                least.saturating_add_unsigned(at_ns.saturating_sub(when) / DRIFT)
            });
            self.always = Some((apart.min(known), at_ns));
        }
    }

    /// Time since the account of a running thread was updated, ns; negative: it was updated just after
    /// `at_ns`, by an interrupt.
    pub(super) fn since_counted(&self, used: &Used, at_ns: u64) -> i64 {
        if let Some(since) = self.since_clock(used, at_ns) {
            let before = used.task_clock_at.wrapping_sub(used.counted_at);
            let before = Some(before).filter(|&ns| ns < LONGEST_NS);
            return since.saturating_add_unsigned(before.unwrap_or(0));
        }
        let apart = self.apart.get(&used.cpu).copied().or(self.any);
        let now = apart.map(|apart| self.steady(at_ns).wrapping_sub(apart));
        let since = now.map(|now| now.wrapping_sub(used.counted_at));
        let since = since.filter(|&ns| ns < LONGEST_NS).unwrap_or(0);
        // Any excess over a tick is a drift of the clocks since they were compared.
        since.min(self.tick_ns).cast_signed()
    }

    /// Time from the update of the clock of the thread's CPU to `at_ns`, ns.
    fn since_clock(&self, used: &Used, at_ns: u64) -> Option<i64> {
        let (apart, _) = self.always.filter(|_| used.clock_at > 0)?;
        let now = self.steady(at_ns).wrapping_sub(apart as u64);
        let since = now.wrapping_sub(used.clock_at).cast_signed();
        if since.unsigned_abs() >= LONGEST_NS {
            return None;
        }
        // Every tick updates the clock of a CPU that runs a thread. An older clock means that the machine had
        // no CPU since. The account alone is then too small for this image, and its next one has the rest;
        // too large an account would not be in their process's.
        Some(if since > self.tick_ns.cast_signed() {
            0
        } else {
            since
        })
    }
}

/// Distance of the monotonic clock to the one that is not slewed, ns; `None`: this thread did not have its CPU
/// all the time between the readings.
fn slew_ns() -> Option<i64> {
    const AT_ONCE: Duration = Duration::from_micros(5);
    let now = |clock: ClockId| clock.now().map_or(Duration::ZERO, Duration::from);
    let [before, slewed, after] = [
        ClockId::CLOCK_MONOTONIC_RAW,
        ClockId::CLOCK_MONOTONIC,
        ClockId::CLOCK_MONOTONIC_RAW,
    ]
    .map(now);
    let distance = || slewed.as_nanos() as i64 - before.as_nanos() as i64;
    (after.saturating_sub(before) < AT_ONCE).then(distance)
}

/// Time between two ticks: the resolution of the coarse clocks, which advance with them.
fn tick_ns() -> u64 {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).map_or(Duration::ZERO, Duration::from);
    match tick.as_nanos() as u64 {
        0 => LONGEST_TICK_NS,
        tick => tick.min(LONGEST_TICK_NS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_counted_yet_is_known_by_the_clock_of_the_cpu() {
        let used = |cpu, counted_at| Used {
            cpu,
            counted_at,
            ..Used::default()
        };
        let mut clocks = Clocks::new(1_000);
        assert_eq!(clocks.since_counted(&used(0, 900), 1_000), 0);
        clocks.counted(&used(0, 2_000), 1_000);
        assert_eq!(clocks.since_counted(&used(0, 2_500), 1_700), 200);
        assert_eq!(clocks.since_counted(&used(1, 2_500), 1_700), 200);
        clocks.counted(&used(1, 5_000), 1_000);
        assert_eq!(clocks.since_counted(&used(1, 5_500), 1_700), 200);
        assert_eq!(clocks.since_counted(&used(0, 2_500), 1_700), 200);
        // The clock went back a little.
        assert_eq!(clocks.since_counted(&used(0, 2_800), 1_700), 0);
        assert_eq!(clocks.since_counted(&used(0, 0), 1 << 40), 0);
        // It stood still for longer than a tick.
        assert_eq!(clocks.since_counted(&used(0, 2_500), 9_000), 1_000);
    }

    /// On a busy machine, too.
    #[test]
    fn two_clocks_are_read_at_one_time() {
        let end = Instant::now() + Duration::from_millis(300);
        let busy = move || while Instant::now() < end {};
        let others: Vec<_> = (0..8).map(|_| thread::spawn(busy)).collect();
        let read = std::iter::from_fn(|| (Instant::now() < end).then(slew_ns));
        let read: Vec<i64> = read.flatten().collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        let (least, most) = (read.iter().min().unwrap(), read.iter().max().unwrap());
        // The kernel may slew by 500 ppm.
        assert!(
            most - least < 200_000,
            "{} readings: {least} to {most}",
            read.len()
        );
    }

    #[test]
    fn the_clocks_of_a_cpu_give_what_is_not_counted() {
        let mut clocks = Clocks::new(4_000_000);
        let used_at = |counted_at, task_clock_at, clock_at| Used {
            counted_at,
            task_clock_at,
            clock_at,
            ..Used::default()
        };
        // The thread that ends first was halted, the other one was not: the clock is 100 behind. Threads are
        // charged by another one.
        clocks.counted(&used_at(0, 2_000, 9_000), 12_100);
        clocks.counted(&used_at(0, 13_000, 20_000), 20_100);
        let used = used_at(13_400, 14_000, 21_000);
        assert_eq!(clocks.since_counted(&used, 22_100), 1_600);
        // A tick came when the clocks were being read.
        let used = used_at(13_400, 14_000, 22_050);
        assert_eq!(clocks.since_counted(&used, 22_100), 550);
        // The machine had no CPU for 500 ns.
        let used = used_at(13_400, 14_000, 21_500);
        assert_eq!(clocks.since_counted(&used, 22_100), 1_100);
        // It had none for longer than a tick.
        let used = used_at(13_400, 14_000, 21_000);
        assert_eq!(clocks.since_counted(&used, 5_021_100), 600);
        // One clock is slower by 1 in 10 000 000: the distance is updated.
        clocks.counted(&used_at(0, 0, 100_000_000_000), 100_000_010_100);
        let used = used_at(7, 7, 200_000_000_000);
        assert!(clocks.since_counted(&used, 200_000_020_100) < 11_000);
    }
}
