//! The one clock of a recording: nanoseconds of `CLOCK_MONOTONIC` since the run began.

use std::fs;

use nix::time::{ClockId, clock_gettime};

/// Reads the monotonic clock relative to the start of the run. It is cheap to copy; one read costs about 20
/// ns (vDSO).
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base_ns: u64,
}

impl Clock {
    /// A clock that shows 0 now, and the wall clock at that instant in ns since 1970.
    pub fn start() -> (Clock, i64) {
        let clock = Clock {
            base_ns: monotonic_ns(),
        };
        // Two plain readings would not do: the thread may be stopped between them, and every time of the run
        // would be too early by that pause.
        (clock, clock.wall_offset().ns)
    }

    /// `CLOCK_MONOTONIC` of this boot when the run began, without the offset of a time namespace: the same
    /// scale for all recordings of one boot.
    pub fn boot_base_ns(self) -> i64 {
        let offset = fs::read_to_string("/proc/self/timens_offsets")
            .map_or(0, |text| namespace_offset_ns(&text));
        (self.base_ns as i64).saturating_sub(offset)
    }

    /// Bound of the error of the wall clock in ns, as the kernel knows it from the program that disciplines
    /// the clock (NTP, PTP); `None` if no program does.
    pub fn wall_error_ns() -> Option<i64> {
        // SAFETY: all bits zero is a valid timex, which is a struct of integers.
        #[expect(unsafe_code)]
        let mut state: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a live timex; with modes 0 nothing is set.
        #[expect(unsafe_code)]
        let answer = unsafe { libc::adjtimex(&raw mut state) };
        let is_known = answer >= 0 && state.status & libc::STA_UNSYNC == 0;
        is_known.then(|| (state.maxerror as i64).saturating_mul(1_000))
    }

    /// The offset to subtract from a present time of the wall clock (ns since 1970) to get the time since the
    /// start of the run.
    pub fn wall_offset(self) -> WallOffset {
        let mut best: Option<WallOffset> = None;
        for _ in 0..READINGS {
            let before = monotonic_ns();
            let wall = nanoseconds(ClockId::CLOCK_REALTIME) as i64;
            let after = monotonic_ns();
            let reading = WallOffset {
                ns: wall - (before.midpoint(after) as i64 - self.base_ns as i64),
                error_ns: after.saturating_sub(before).div_ceil(2) as i64,
            };
            if best.is_none_or(|best| reading.error_ns < best.error_ns) {
                best = Some(reading);
            }
            if reading.error_ns <= CLOSE_NS {
                break;
            }
        }
        best.unwrap_or_default()
    }

    /// Nanoseconds since the start of the run.
    #[inline]
    pub fn now(self) -> u64 {
        monotonic_ns() - self.base_ns
    }

    /// Nanoseconds since the start of the run at a time of `CLOCK_MONOTONIC`; 0 for a time before the run.
    pub fn at(self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_sub(self.base_ns)
    }

    /// Nanoseconds since the start of the run at a time since boot, sleep included (`CLOCK_BOOTTIME`), the
    /// form in which the kernel gives process starts; 0 for a time before the run.
    pub fn at_boot(self, boot_ns: u64) -> u64 {
        let asleep_ns = nanoseconds(ClockId::CLOCK_BOOTTIME).saturating_sub(monotonic_ns());
        self.at(boot_ns.saturating_sub(asleep_ns))
    }

    /// The time of `CLOCK_MONOTONIC` itself, ns.
    pub fn monotonic_now(self) -> u64 {
        monotonic_ns()
    }

    /// Converts a time of `CLOCK_MONOTONIC` to a time since boot, sleep included.
    pub fn boot_of(monotonic_ns_then: u64) -> u64 {
        let asleep_ns = nanoseconds(ClockId::CLOCK_BOOTTIME).saturating_sub(monotonic_ns());
        monotonic_ns_then.saturating_add(asleep_ns)
    }
}

/// Readings of both clocks, of which the shortest counts: the thread may have been stopped within one.
const READINGS: usize = 8;
/// Error of a reading that needs no further one, ns.
const CLOSE_NS: i64 = 100;

/// Difference between the wall clock and the clock of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallOffset {
    /// Offset to subtract from a time of the wall clock, ns.
    pub ns: i64,
    /// Bound of the error of `ns`.
    pub error_ns: i64,
}

impl WallOffset {
    /// This offset, unless `newer` shows that the wall clock has moved since. Changes within the errors of
    /// both would make times jitter, so that packets would arrive before they are sent.
    pub fn or_moved(self, newer: WallOffset) -> WallOffset {
        let is_the_same = (newer.ns - self.ns).abs() <= newer.error_ns + self.error_ns;
        match is_the_same {
            // The more exact reading is the better one, and does not contradict the other.
            true if newer.error_ns >= self.error_ns => self,
            _ => newer,
        }
    }
}

#[inline]
fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_MONOTONIC)
}

#[inline]
fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock).expect("Linux has these clocks");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// Offset that a time namespace adds to the monotonic clock, from `/proc/PID/timens_offsets`.
fn namespace_offset_ns(text: &str) -> i64 {
    let offset = |line: &str| -> Option<i64> {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        // Names since Linux 5.7, numbers of clocks before.
        if name != "monotonic" && name != "1" {
            return None;
        }
        let seconds: i64 = words.next()?.parse().ok()?;
        let ns: i64 = words.next()?.parse().ok()?;
        Some(seconds.saturating_mul(1_000_000_000).saturating_add(ns))
    };
    text.lines().find_map(offset).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_that_was_interrupted_does_not_move_the_wall_clock() {
        let reading = |ns, error_ns| WallOffset { ns, error_ns };
        let close = reading(1_000_000, 30);
        assert_eq!(close.or_moved(reading(1_004_900, 5_000)), close);
        // The reading does show that the clock was set.
        let set = reading(2_000_000, 5_000);
        assert_eq!(close.or_moved(set), set);
        assert_eq!(set.or_moved(reading(2_004_000, 40)), reading(2_004_000, 40));
        let (clock, epoch) = Clock::start();
        let found = clock.wall_offset();
        let wall = nanoseconds(ClockId::CLOCK_REALTIME) as i64;
        assert!(found.error_ns >= 0 && found.ns <= wall, "{found:?}");
        // The wall clock at the start is the offset itself.
        assert!((found.ns - epoch).abs() < 1_000_000, "{found:?} {epoch}");
    }

    #[test]
    fn offsets_of_a_time_namespace_are_read() {
        let text = "monotonic        -86400  500000000\nboottime 1 0\n";
        assert_eq!(namespace_offset_ns(text), -86_399_500_000_000);
        assert_eq!(namespace_offset_ns("boottime 1 0\n"), 0);
        assert_eq!(namespace_offset_ns(""), 0);
    }
}
