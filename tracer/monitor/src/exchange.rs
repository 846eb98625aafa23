//! Offset and drift of one clock against another, from questions and answers.
//!
//! Of a round trip t1 (asked), t2 (came), t3 (answered), t4 (back), the offset is
//! ((t2 − t1) + (t3 − t4)) / 2, off by at most half of the round trip (t4 − t1) − (t3 − t2): the time of
//! both ways, whatever the share of each. The shortest round trip has the smallest error; the error of its
//! offset grows with time, by as much as clocks may drift.

use std::collections::VecDeque;

/// Largest drift between two clocks, parts per billion: five times the specification of crystals of
/// computers; the kernel slews a clock by 500 ppm at most.
const DRIFT_PPB: u64 = 500_000;
/// Round trips that are remembered.
const KEPT: usize = 64;

/// A round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trip {
    /// Own clock, halfway, ns.
    at_ns: u64,
    offset_ns: i64,
    error_ns: u64,
}

impl Trip {
    /// Bound of its error at a later time.
    fn error_at(&self, now_ns: u64) -> u64 {
        let age = now_ns.abs_diff(self.at_ns);
        let drifted = u128::from(age) * u128::from(DRIFT_PPB) / 1_000_000_000;
        self.error_ns
            .saturating_add(u64::try_from(drifted).unwrap_or(u64::MAX))
    }
}

/// Relation of a clock to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relation {
    /// To be added to the own clock, ns.
    pub offset_ns: i64,
    /// Bound of the error of the offset, ns.
    pub error_ns: u64,
    /// Drift: the own clock is slower by so many parts per billion; 0 until it is known.
    pub drift_ppb: i64,
}

/// Collects round trips.
#[derive(Clone, Debug, Default)]
pub struct Exchange {
    trips: VecDeque<Trip>,
    /// The best of the first trips, from which the drift is counted.
    first: Option<Trip>,
    seen: usize,
}

impl Exchange {
    /// Takes a round trip; `false`: it cannot be one.
    pub fn add(&mut self, t1: u64, t2: u64, t3: u64, t4: u64) -> bool {
        let Some(there_and_back) = t4.checked_sub(t1) else {
            return false;
        };
        let Some(answering) = t3.checked_sub(t2) else {
            return false;
        };
        let Some(travelling) = there_and_back.checked_sub(answering) else {
            return false;
        };
        let offset = (i128::from(t2) - i128::from(t1) + i128::from(t3) - i128::from(t4)) / 2;
        let Ok(offset_ns) = i64::try_from(offset) else {
            return false;
        };
        let trip = Trip {
            at_ns: t1 + there_and_back / 2,
            offset_ns,
            // One more for what the divisions drop.
            error_ns: travelling / 2 + 1,
        };
        self.seen += 1;
        if self.seen <= 8
            && self
                .first
                .is_none_or(|first| trip.error_ns < first.error_ns)
        {
            self.first = Some(trip);
        }
        if self.trips.len() == KEPT {
            self.trips.pop_front();
        }
        self.trips.push_back(trip);
        true
    }

    /// The relation of the clocks at a time of the own one; `None`: nothing is known yet.
    pub fn relation(&self, now_ns: u64) -> Option<Relation> {
        let best = self.trips.iter().min_by_key(|trip| trip.error_at(now_ns))?;
        Some(Relation {
            offset_ns: best.offset_ns,
            error_ns: best.error_at(now_ns),
            drift_ppb: self.drift_ppb(best),
        })
    }

    /// Drift from the first good trip to the best one now, if they are far enough apart.
    fn drift_ppb(&self, best: &Trip) -> i64 {
        let Some(first) = self.first else { return 0 };
        let apart = i128::from(best.at_ns) - i128::from(first.at_ns);
        let doubt = i128::from(first.error_ns) + i128::from(best.error_ns);
        // Below that the doubt is more than 10 ppm.
        if apart <= 0 || doubt * 100_000 > apart {
            return 0;
        }
        let moved = i128::from(best.offset_ns) - i128::from(first.offset_ns);
        i64::try_from(moved * 1_000_000_000 / apart).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Own clock at true time `t`: ahead by `offset`, fast by `ppm`.
    fn own(t: u64, offset: i64, ppm: i64) -> u64 {
        let drifted = i128::from(t) * i128::from(ppm) / 1_000_000;
        (i128::from(t) + i128::from(offset) + drifted) as u64
    }

    #[test]
    fn offset_and_drift_are_found_within_the_stated_error() {
        for (offset, ppm) in [(86_400_000_000_000, 37), (-1_500_000, -12), (0, 0)] {
            let mut exchange = Exchange::default();
            let mut state = 7u64;
            let mut noise = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                // Mostly short ways, some that wait for a busy host.
                20_000 + (state >> 40) % 50_000 + if state >> 62 == 0 { 3_000_000 } else { 0 }
            };
            let start = 100_000_000_000u64;
            let mut now = start;
            for i in 0..200u64 {
                now = start + i * 1_000_000_000;
                let (there, back) = (noise(), noise());
                let t1 = own(now, offset, ppm);
                let t4 = own(now + there + back + 5_000, offset, ppm);
                assert!(exchange.add(t1, now + there, now + there + 5_000, t4));
                let at = own(now, offset, ppm);
                let relation = exchange.relation(at).unwrap();
                let true_offset = now as i64 - at as i64;
                let error = (relation.offset_ns - true_offset).unsigned_abs();
                assert!(
                    error <= relation.error_ns,
                    "{i}: {error} > {}",
                    relation.error_ns
                );
            }
            let relation = exchange.relation(own(now, offset, ppm)).unwrap();
            assert!(relation.error_ns < 10_000_000, "{relation:?}");
            assert!(
                (relation.drift_ppb + ppm * 1000).abs() < 2_000,
                "{relation:?} for {ppm}"
            );
        }
    }

    #[test]
    fn impossible_answers_are_refused() {
        let mut exchange = Exchange::default();
        assert!(!exchange.add(10, 5, 6, 9), "back before it was asked");
        assert!(!exchange.add(10, 6, 5, 20), "answered before it came");
        assert!(
            !exchange.add(10, 5, 50, 20),
            "longer at the other than under way"
        );
        assert!(!exchange.add(0, u64::MAX, u64::MAX, 0), "not in range");
        assert_eq!(exchange.relation(0), None);
    }
}
