//! The scheduler's clocks beside the monotonic one. The time that a thread had its processor is brought up to date when it leaves it, and
//! at every tick; of one that executes a program some of it is not counted yet.
//!
//! That is how long ago it got its processor, less what is counted since. It got it by a clock that goes on always; what is counted
//! is by one that stands still while the machine has no processor (steal), which serves where the kernel keeps no other moment.

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
    /// The same of the clock that goes on always, which is one for all: the least of all looks, and when the last one was.
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
    pub(super) fn look(&mut self) {
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
        self.apart.insert(used.processor, apart);
        self.any = Some(apart);
        // It was brought up to date when it was decided that the thread leaves its processor: just now, but for those that were halted.
        let now = match used.clock_at {
            0 => used.arrived_at.wrapping_add(used.counted_since),
            clock => clock,
        };
        if now > 0 {
            let apart = at_ns.wrapping_sub(now).cast_signed();
            // What is counted is short of what was before the thread left its group, as whoever ends does.
            let known = self.always.map_or(apart, |(least, when)| {
                least.saturating_add_unsigned(at_ns.saturating_sub(when) / DRIFT)
            });
            self.always = Some((apart.min(known), at_ns));
        }
    }

    /// How long ago it was at this moment for a thread that runs, ns. That is a tick at most: what the clocks are apart beyond
    /// that, they are since they were compared, for that of the scheduler stands still while the machine has no processor (steal).
    pub(super) fn since_counted(&self, used: &Used, at_ns: u64) -> u64 {
        let at_ns = self.steady(at_ns);
        let always = self.always.filter(|_| used.arrived_at > 0);
        let since = match always {
            Some((apart, _)) => {
                let counted_at = used.arrived_at.wrapping_add(used.counted_since);
                Some(at_ns.wrapping_sub(apart as u64).wrapping_sub(counted_at))
            }
            None => {
                let apart = self.apart.get(&used.processor).copied().or(self.any);
                apart.map(|apart| at_ns.wrapping_sub(apart).wrapping_sub(used.counted_at))
            }
        };
        let since = since.filter(|&ns| ns < LONGEST_NS);
        since.unwrap_or(0).min(self.tick_ns)
    }

    /// For how long at this moment the clock of the thread's processor has stood still, ns.
    pub(super) fn halted(&self, used: &Used, at_ns: u64) -> u64 {
        let at_ns = self.steady(at_ns);
        let always = self.always.filter(|_| used.is_halted);
        let since = always.map(|(apart, _)| {
            let now = at_ns.wrapping_sub(apart as u64);
            now.wrapping_sub(used.clock_at)
        });
        since.filter(|&ns| ns < LONGEST_NS).unwrap_or(0)
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

    fn used(counted_at: u64, arrived_at: u64, counted_since: u64) -> Used {
        Used {
            counted_at,
            arrived_at,
            counted_since,
            ..Used::default()
        }
    }

    #[test]
    fn what_is_not_counted_yet_is_told_by_the_clock_of_the_processor() {
        let used = |processor, counted_at| Used {
            processor,
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
    fn while_the_machine_has_no_processor_one_clock_goes_on() {
        let mut clocks = Clocks::new(1_000);
        // Both are 100 behind.
        clocks.counted(&used(900, 850, 50), 1_000);
        assert_eq!(clocks.since_counted(&used(1_900, 1_900, 0), 2_030), 30);
        assert_eq!(clocks.since_counted(&used(1_920, 1_900, 20), 2_030), 10);
        // Then the machine had none for 500, and one is 600 behind.
        assert_eq!(clocks.since_counted(&used(2_400, 2_900, 0), 3_030), 30);
        assert_eq!(clocks.since_counted(&used(2_400, 0, 0), 3_030), 530);
    }

    #[test]
    fn who_is_counted_anew_before_its_end_does_not_move_the_clocks() {
        let used = |arrived_at, counted_since| used(0, arrived_at, counted_since);
        let mut clocks = Clocks::new(4_000_000);
        clocks.counted(&used(1_000_000, 50_000), 1_050_100);
        // It ran for 2 ms, of which 10 us are told.
        clocks.counted(&used(2_000_000, 10_000), 4_000_100);
        let since = clocks.since_counted(&used(5_000_000, 0), 6_000_100);
        assert!(since.abs_diff(1_000_000) < 1_000, "{since}");
        // One clock is slower by 1 in 10 000 000: that is followed.
        clocks.counted(&used(100_000_000_000, 0), 100_000_010_100);
        let now = used(200_000_000_000, 0);
        assert!(clocks.since_counted(&now, 200_000_020_100) < 11_000);
    }
    #[test]
    fn the_clock_of_a_processor_is_told_and_may_stand_still() {
        let mut clocks = Clocks::new(4_000_000);
        let told = |clock_at, is_halted| Used {
            clock_at,
            is_halted,
            ..used(0, 7_000, 500)
        };
        // One that ends was halted, another was not: both are 100 behind.
        clocks.counted(&told(9_000, false), 12_100);
        clocks.counted(&told(20_000, false), 20_100);
        assert_eq!(clocks.since_counted(&told(21_000, true), 22_100), 14_500);
        assert_eq!(clocks.halted(&told(21_000, true), 22_100), 1_000);
        assert_eq!(clocks.halted(&told(21_000, false), 22_100), 0);
    }
}
