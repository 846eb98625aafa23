//! Repeated answers: the time when the next one is due.

use std::time::{Duration, Instant};

use flowtrace_schema::Trace;
use nix::time::{ClockId, clock_gettime};

/// Answers while the recording goes on may take one part in so many of a CPU: a third of a twentieth. The
/// rest is for the last answer, which is about the whole trace.
const PART: u32 = 60;
/// Longest time until the end of the recording is noticed.
const CHECK: Duration = Duration::from_millis(250);

/// The pace of the answers about a trace that grows.
pub(super) struct Pace {
    /// Requested time between two answers.
    every: Duration,
    started: Instant,
    /// CPU time of all answers but the last.
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

    /// Waits until the next answer is due, or until the recording has ended and only the last answer is left.
    /// The answer before was begun at `begun`.
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
            std::thread::sleep(left.min(CHECK));
        }
    }
}

/// Time when the next answer is due, from the start. The one before was begun at `begun`, and all answers
/// will have taken `spent` of a CPU: the next takes as long as that one at least.
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
