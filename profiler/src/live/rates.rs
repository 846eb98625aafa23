//! Rates over the last seconds.

/// Seconds over which a rate is the mean.
pub(super) const SECONDS: i64 = 5;
const SLOTS: usize = SECONDS as usize + 2;
const SECOND: i64 = 1_000_000_000;

/// Amounts of the last seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    /// The second of the newest amount.
    second: i64,
    amounts: [i64; SLOTS],
}

impl Rate {
    /// Adds an amount at a time, ns.
    pub(super) fn add(&mut self, at_ns: i64, amount: i64) {
        let second = at_ns.div_euclid(SECOND);
        if second > self.second {
            let passed = (second - self.second).min(SLOTS as i64);
            for old in 1..=passed {
                self.amounts[slot(second - passed + old)] = 0;
            }
            self.second = second;
        }
        if second > self.second - SLOTS as i64 {
            let sum = &mut self.amounts[slot(second)];
            *sum = sum.saturating_add(amount);
        }
    }

    /// Mean over the last whole seconds before a time, a second.
    pub(super) fn per_second(&self, now_ns: i64) -> i64 {
        let now = now_ns.div_euclid(SECOND);
        let whole = now - SECONDS..now;
        let known = whole.filter(|&at| at <= self.second && at > self.second - SLOTS as i64);
        let sum = known.map(|at| self.amounts[slot(at)]);
        sum.fold(0_i64, i64::saturating_add) / SECONDS
    }
}

fn slot(second: i64) -> usize {
    second.rem_euclid(SLOTS as i64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_mean_of_the_last_whole_seconds() {
        let mut rate = Rate::default();
        for at in 0..20 {
            rate.add(at * SECOND + 5, 10);
        }
        assert_eq!(rate.per_second(20 * SECOND), 10);
        assert_eq!(rate.per_second(22 * SECOND), 6);
        assert_eq!(rate.per_second(30 * SECOND), 0);
        rate.add(3 * SECOND, 99);
        rate.add(100 * SECOND, 50);
        assert_eq!(rate.per_second(101 * SECOND), 10);
    }
}
