//! Looking on: when the next answer is due.

use std::time::{Duration, Instant};

use flowtrace_schema::Trace;
use nix::time::{ClockId, clock_gettime};

/// One in so many parts of a processor is for answers while the recording goes on: a third of a twentieth.
/// The rest is for the last answer, which is about all of it.
const PART: u32 = 60;
/// So soon it is seen that the recording has ended.
const LOOK: Duration = Duration::from_millis(250);

/// The pace of the answers about a trace that grows.
pub(super) struct Pace {
    /// Wished for between two answers.
    every: Duration,
    started: Instant,
    /// Taken of a processor by all answers but the last.
    before: Duration,
}

impl Pace {
    pub(super) fn new(every_s: f64) -> Pace {
        Pace {
            every: Duration::from_secs_f64(every_s.min(86_400.0)),
            started: Instant::now(),
            before: Duration::ZERO,
        }
    }

    /// Waits until the next answer is due, or there will be no other one before the last: the recording
    /// has ended. The answer before was begun at `begun`.
    pub(super) fn wait(&mut self, begun: Instant, trace: &Trace) {
        let spent = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        let spent = spent.map_or_else(|_| begun.elapsed(), Duration::from);
        let last = spent.saturating_sub(self.before);
        self.before = spent;
        let due = due(self.every, begun - self.started, spent + last);
        while trace.is_being_recorded() {
            let left = due.saturating_sub(self.started.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}

/// When the next answer is due, from the start, where the one before was begun at `begun` and all of them
/// will have taken so much of a processor: the next takes as long as that one at least.
fn due(every: Duration, begun: Duration, spent: Duration) -> Duration {
    (begun + every).max(spent.saturating_mul(PART))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_take_long_come_less_often() {
        let s = Duration::from_secs;
        assert_eq!(due(s(2), s(10), s(0)), s(12));
        assert_eq!(due(s(2), s(10), s(1)), s(60));
    }
}
