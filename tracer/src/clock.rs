//! The one clock of a recording: nanoseconds of `CLOCK_MONOTONIC` since the run began.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

/// Reads the monotonic clock relative to the start of the run. Copied freely; one read costs
/// about 20 ns (vDSO).
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base_ns: u64,
}

impl Clock {
    /// A clock that shows 0 now, and the wall clock at that moment in ns since 1970.
    pub fn start() -> (Clock, i64) {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        (
            Clock {
                base_ns: monotonic_ns(),
            },
            i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX),
        )
    }

    /// Nanoseconds since the start of the run.
    #[inline]
    pub fn now(self) -> u64 {
        monotonic_ns() - self.base_ns
    }

    /// The same for a time of `CLOCK_MONOTONIC`; 0 for one before the run.
    pub fn at(self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_sub(self.base_ns)
    }

    /// The same for a time since boot, sleep included (`CLOCK_BOOTTIME`), as process starts are
    /// given in; 0 for one before the run.
    pub fn at_boot(self, boot_ns: u64) -> u64 {
        let asleep_ns = nanoseconds(ClockId::CLOCK_BOOTTIME).saturating_sub(monotonic_ns());
        self.at(boot_ns.saturating_sub(asleep_ns))
    }

    /// The time of `CLOCK_MONOTONIC` itself, ns.
    pub fn monotonic_now(self) -> u64 {
        monotonic_ns()
    }

    /// The time since boot, sleep included, of a time of `CLOCK_MONOTONIC`.
    pub fn boot_of(monotonic_ns_then: u64) -> u64 {
        let asleep_ns = nanoseconds(ClockId::CLOCK_BOOTTIME).saturating_sub(monotonic_ns());
        monotonic_ns_then.saturating_add(asleep_ns)
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
