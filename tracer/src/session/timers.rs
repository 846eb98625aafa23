//! The interval timers of a process (`setitimer(2)`, `alarm(2)`). They last over an exec and do not pass to a
//! child. Timers that were set for the command are therefore stopped here and started again in the process
//! that becomes the command.

use std::time::{Duration, Instant};

use libc::itimerval;

/// The timers; true for the one that counts the time that passes. The others count CPU time, of which the
/// command has used none.
const TIMERS: [(u32, bool); 3] = [
    (libc::ITIMER_REAL as u32, true),
    (libc::ITIMER_VIRTUAL as u32, false),
    (libc::ITIMER_PROF as u32, false),
];

/// The timers of this process at the time when they were stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timers {
    left: [itimerval; TIMERS.len()],
    stopped: Instant,
}

impl Timers {
    /// Stops the timers.
    pub(super) fn stop() -> Timers {
        let stopped = Instant::now();
        let left = TIMERS.map(|(timer, _)| set(timer, &NEVER));
        Timers { left, stopped }
    }

    /// Starts those that were running, in this process. Makes only system calls, so that it may be called
    /// between fork and exec.
    pub(super) fn start(&self) {
        for ((timer, is_clock), left) in TIMERS.into_iter().zip(self.left) {
            if left.it_value.tv_sec == 0 && left.it_value.tv_usec == 0 {
                continue;
            }
            let passed = match is_clock {
                true => self.stopped.elapsed(),
                false => Duration::ZERO,
            };
            set(timer, &after(left, passed));
        }
    }
}

const NEVER: itimerval = {
    let zero = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    itimerval {
        it_interval: zero,
        it_value: zero,
    }
};

/// A timer after the given time has passed. One that is due expires at once: zero would stop it.
fn after(timer: itimerval, passed: Duration) -> itimerval {
    let value = timer.it_value;
    let left =
        Duration::from_secs(value.tv_sec as u64) + Duration::from_micros(value.tv_usec as u64);
    let left = left.saturating_sub(passed).max(Duration::from_micros(1));
    itimerval {
        it_value: libc::timeval {
            tv_sec: left.as_secs() as _,
            tv_usec: left.subsec_micros() as _,
        },
        ..timer
    }
}

/// Sets a timer and returns its previous value.
fn set(timer: u32, to: &itimerval) -> itimerval {
    let mut before = NEVER;
    // SAFETY: both point to values that outlive the call.
    #[expect(unsafe_code)]
    unsafe {
        libc::setitimer(timer as _, to, &raw mut before);
    }
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_at_least_something() {
        let seconds = |tv_sec| libc::timeval { tv_sec, tv_usec: 0 };
        let timer = itimerval {
            it_interval: seconds(7),
            it_value: seconds(3),
        };
        for (passed_ms, left_us) in [(0, 3_000_000), (1250, 1_750_000), (3000, 1), (9000, 1)] {
            let left = after(timer, Duration::from_millis(passed_ms));
            let value = left.it_value.tv_sec * 1_000_000 + left.it_value.tv_usec;
            assert_eq!(value, left_us, "after {passed_ms} ms");
            assert_eq!(left.it_interval.tv_sec, 7);
        }
    }
}
