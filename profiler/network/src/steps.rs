//! Number of steps of a series: at most as many as its events give information for, however long it
//! took.
//!
//! A capture of a connection that is kept alive has a few packets a day. With steps of milliseconds
//! there would be thousands of steps for each packet, and a spectrum of them would need more memory
//! than a machine has.

/// Number of steps that any series may have.
const FEWEST: i64 = 1 << 17;
/// Number of additional steps for each event.
const EACH: i64 = 16;
/// Most steps of a series.
pub(super) const MOST: i64 = 1 << 20;
/// Most steps of a series whose step the user chose, and of the series of all pairs together.
pub(super) const MOST_ASKED: i64 = 1 << 23;

/// The least step for which an interval has at most as many steps as its events allow, ns.
pub(super) fn least_ns((from_ns, to_ns): (i64, i64), events: usize) -> i64 {
    let events = i64::try_from(events).unwrap_or(MOST);
    let most = events.saturating_mul(EACH).clamp(FEWEST, MOST);
    to_ns.saturating_sub(from_ns).max(0) / most + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_goes_with_its_events_and_not_with_its_length() {
        const S: i64 = 1_000_000_000;
        let steps = |seconds: i64, events| seconds * S / least_ns((7, seconds * S + 7), events);
        for days in [1, 218, 3650] {
            assert!(steps(days * 86_400, 34) <= FEWEST);
            assert!(steps(days * 86_400, 1_000_000_000) <= MOST);
        }
        // Some minutes are resolved as usual.
        assert!(least_ns((0, 100 * S), 140) <= 2_000_000);
        assert!(least_ns((0, 1000 * S), 1_000_000) <= 1_000_000);
    }
}
