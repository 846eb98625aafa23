//! The rate of samples.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The fraction of a CPU that sampling may take.
const BUDGET: f64 = 0.015;
/// Weight of the last round in the expected cost of the next one.
const WEIGHT: f64 = 0.2;

/// Keeps to a rate, or to a slower one that costs no more than [`BUDGET`].
pub(super) struct Pace {
    period: Duration,
    /// CPU time that a round is expected to take, s.
    cost: f64,
    used: Duration,
    /// Samples left out so far to stay within the budget.
    skipped: f64,
    random: u64,
}

impl Pace {
    pub(super) fn new(hertz: u32) -> Pace {
        Pace {
            period: Duration::from_secs(1) / hertz.max(1),
            cost: 0.0,
            used: thread_time(),
            skipped: 0.0,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Mean time between two rounds of samples.
    pub(super) fn interval(&self) -> Duration {
        self.period.max(Duration::from_secs_f64(self.cost / BUDGET))
    }

    /// Time until the next round, after one of that many threads. It varies by a quarter either way, so that
    /// periodic work is not always sampled at the same point.
    pub(super) fn next(&mut self, threads: usize) -> Duration {
        let used = thread_time();
        self.spent(used.saturating_sub(self.used), threads);
        self.used = used;
        // xorshift64 (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        self.interval().mul_f64(0.75 + part / 2.0)
    }

    fn spent(&mut self, round: Duration, threads: usize) {
        let round = round.as_secs_f64();
        self.cost = self.cost * (1.0 - WEIGHT) + round * WEIGHT;
        let slower = self.interval().as_secs_f64() / self.period.as_secs_f64() - 1.0;
        self.skipped += slower * threads as f64;
    }

    /// Samples left out because they would have cost too much.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped as u64
    }
}

/// CPU time of the calling thread.
pub(super) fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slows_down_when_rounds_are_expensive() {
        let mut pace = Pace::new(50);
        for _ in 0..100 {
            pace.spent(Duration::from_micros(100), 10);
        }
        assert_eq!(pace.interval(), Duration::from_millis(20));
        assert_eq!(pace.skipped(), 0);
        for _ in 0..100 {
            pace.spent(Duration::from_millis(3), 1000);
        }
        let expected = 0.003 / BUDGET;
        let interval = pace.interval().as_secs_f64();
        assert!((interval / expected - 1.0).abs() < 0.01, "{interval}");
        assert!(pace.skipped() > 100_000);
        for _ in 0..100 {
            pace.spent(Duration::from_micros(10), 1);
        }
        assert_eq!(pace.interval(), Duration::from_millis(20));
    }

    #[test]
    fn rounds_vary_about_the_rate() {
        let mut pace = Pace::new(50);
        let sleeps: Vec<f64> = (0..1000).map(|_| pace.next(0).as_secs_f64()).collect();
        let mean = sleeps.iter().sum::<f64>() / 1000.0;
        assert!((mean / 0.02 - 1.0).abs() < 0.1, "{mean}");
        assert!(sleeps.iter().all(|s| *s >= 0.0149));
    }
}
