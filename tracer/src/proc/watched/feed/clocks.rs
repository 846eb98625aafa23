//! The scheduler's clocks beside the monotonic one. The time that a thread had its processor is brought up to date when it leaves it, and
//! at every tick; of one that executes a program some of it is not counted yet.
//!
//! A processor has two clocks: one goes on always, the other one, by which threads are charged, stands still while the machine does not have
//! the processor (steal). Both are brought up to date together, more often than each thread's account. So what is not counted is what lies
//! between the account and the one clock, and what has passed by the other since. Where the kernel does not show them, there is the moment of
//! the account alone.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_getres};

use crate::proc::tracepoints::{Tracepoints, Used, What};

/// Beyond that the clocks are not those that were compared.
const LONGEST_NS: u64 = 1_000_000_000;
/// More than lies between two ticks, where their distance is not known.
const LONGEST_TICK_NS: u64 = 20_000_000;
/// The scheduler's clock and the one that is not slewed (`CLOCK_MONOTONIC_RAW`), which count the same, go apart by no more than one part in
/// so many.
const DRIFT: u64 = 1_000_000;
/// How long is waited for the end of a thread, which shows how far the clocks are apart.
const PATIENCE: Duration = Duration::from_millis(20);

/// How far the two are apart on each processor, as of the last look, ns.
#[derive(Debug)]
pub(super) struct Clocks {
    apart: HashMap<u32, u64>,
    /// Where there was none: the last one of all.
    any: Option<u64>,
    /// The same of the clock that goes on always, which is one for all: the least of all looks, and when the last one was. What ends after its
    /// processor's clock was halted is told too late.
    always: Option<(i64, u64)>,
    /// Time between two ticks, ns.
    tick_ns: u64,
    /// How far the monotonic clock was ahead of the one that is not slewed at first, and how much more it is since the last look, ns.
    slewed: (i64, i64),
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

    /// Looks how far the monotonic clock is slewed by now.
    pub(super) fn read(&mut self) {
        self.slewed.1 = slew_ns().wrapping_sub(self.slewed.0);
    }

    /// This moment of the monotonic clock, had it not been slewed since the first look.
    fn steady(&self, at_ns: u64) -> u64 {
        at_ns.wrapping_sub(self.slewed.1.cast_unsigned())
    }

    /// By the end of a thread of ours.
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

    /// What this thread used was brought up to date at this moment.
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

    /// How long ago the account of a thread that runs was brought up to date at this moment, ns; negative: just after it, by an interrupt.
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
        // What it is beyond a tick, the clocks are apart since they were compared.
        since.min(self.tick_ns).cast_signed()
    }

    /// How long before this moment the clock of the thread's processor was brought up to date, ns.
    fn since_clock(&self, used: &Used, at_ns: u64) -> Option<i64> {
        let (apart, _) = self.always.filter(|_| used.clock_at > 0)?;
        let now = self.steady(at_ns).wrapping_sub(apart as u64);
        let since = now.wrapping_sub(used.clock_at).cast_signed();
        Some(since).filter(|since| since.unsigned_abs() < LONGEST_NS)
    }
}

/// How far the monotonic clock is ahead of the one that is not slewed, ns.
fn slew_ns() -> i64 {
    let now = |clock: ClockId| {
        clock
            .now()
            .map_or(Duration::ZERO, Duration::from)
            .as_nanos()
    };
    let [steady, slewed] = [ClockId::CLOCK_MONOTONIC_RAW, ClockId::CLOCK_MONOTONIC].map(now);
    slewed as i64 - steady as i64
}

/// Time between two ticks: those of the coarse clocks, which go on with them.
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

    #[test]
    fn the_clocks_of_a_cpu_give_what_is_not_counted() {
        let mut clocks = Clocks::new(4_000_000);
        let used_at = |counted_at, task_clock_at, clock_at| Used {
            counted_at,
            task_clock_at,
            clock_at,
            ..Used::default()
        };
        // The one that ends first was halted, the other one was not: the clock is 100 behind. Threads are charged by another one.
        clocks.counted(&used_at(0, 2_000, 9_000), 12_100);
        clocks.counted(&used_at(0, 13_000, 20_000), 20_100);
        let used = used_at(13_400, 14_000, 21_000);
        assert_eq!(clocks.since_counted(&used, 22_100), 1_600);
        // A tick came when the clocks were being read.
        let used = used_at(13_400, 14_000, 22_050);
        assert_eq!(clocks.since_counted(&used, 22_100), 550);
        // For 500 the machine had no processor.
        let used = used_at(13_400, 14_000, 21_500);
        assert_eq!(clocks.since_counted(&used, 22_100), 1_100);
        // One clock is slower by 1 in 10 000 000: that is followed.
        clocks.counted(&used_at(0, 0, 100_000_000_000), 100_000_010_100);
        let used = used_at(7, 7, 200_000_000_000);
        assert!(clocks.since_counted(&used, 200_000_020_100) < 11_000);
    }
}
