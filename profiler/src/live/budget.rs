//! The CPU time that following a run may take.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// Share of a CPU that may be used for ever.
const SHARE: f64 = 0.018;
/// CPU time that may be used at once, above that share.
const CREDIT: Duration = Duration::from_millis(1500);

/// Keeps the CPU time of this process below a share of a CPU by pauses.
#[derive(Debug)]
pub struct Budget {
    begin: Instant,
    used_at_begin: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            begin: Instant::now(),
            used_at_begin: used(),
        }
    }
}

impl Budget {
    /// The pause until more may be used, at least `least`.
    pub fn pause(&self, least: Duration) -> Duration {
        let used = used().saturating_sub(self.used_at_begin);
        pause(used, self.begin.elapsed()).max(least)
    }
}

/// The pause after which `used` is within the budget of the time since the begin.
fn pause(used: Duration, elapsed: Duration) -> Duration {
    let needed = used.saturating_sub(CREDIT).as_secs_f64() / SHARE;
    Duration::from_secs_f64(needed).saturating_sub(elapsed)
}

/// CPU time of this process.
fn used() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_credit_is_free_and_more_must_be_waited_for() {
        let seconds = Duration::from_secs_f64;
        assert_eq!(pause(seconds(1.5), seconds(0.0)), Duration::ZERO);
        assert_eq!(pause(seconds(2.5), seconds(100.0)), Duration::ZERO);
        let long = pause(seconds(2.5), seconds(10.0));
        assert!((long.as_secs_f64() - (1.0 / SHARE - 10.0)).abs() < 0.01);
    }
}
