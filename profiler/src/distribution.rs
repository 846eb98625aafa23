//! Distribution of values, in little memory however many there are.

/// Steps of a doubling: a value is known to 1/64 of itself, 1.6 %.
const STEPS: u32 = 64;

/// Counts of values by size, with exact sum, mean, deviation, least and largest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Number of values.
    pub count: i64,
    /// Their sum; saturates.
    pub sum: i64,
    /// The least.
    pub min: i64,
    /// The largest.
    pub max: i64,
    // Welford: mean and sum of squared differences from it.
    mean: f64,
    squares: f64,
    counts: Vec<i64>,
}

impl Distribution {
    /// Adds a value; one below 0 counts as 0.
    pub fn add(&mut self, value: i64) {
        let value = value.max(0);
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        let delta = value as f64 - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (value as f64 - self.mean);
        let place = place(value);
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] += 1;
    }

    /// Mean; 0 of nothing.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Standard deviation of the values; 0 of less than two.
    pub fn deviation(&self) -> f64 {
        match self.count {
            0 | 1 => 0.0,
            n => (self.squares / n as f64).sqrt(),
        }
    }

    /// The value that a share of the values does not exceed, to 1.6 %; `None` of nothing.
    pub fn quantile(&self, share: f64) -> Option<i64> {
        let wanted = (share.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as i64;
        if self.count > 0 && wanted >= self.count {
            return Some(self.max);
        }
        let mut below = 0;
        for (place, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= wanted && self.count > 0 {
                return Some(value(place).clamp(self.min, self.max));
            }
        }
        None
    }

    /// The values to 1.6 %, rising, and how often each was met.
    pub fn counts(&self) -> impl Iterator<Item = (i64, i64)> {
        let met = self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        met.map(|(place, &count)| (value(place).clamp(self.min, self.max), count))
    }

    /// The steps of the cumulative distribution: value, and the share of values not above it.
    pub fn steps(&self) -> Vec<(i64, f64)> {
        let mut below = 0;
        let step = |(value, count)| {
            below += count;
            (value, below as f64 / self.count as f64)
        };
        self.counts().map(step).collect()
    }

    /// Counts by power of two: least value of the class, first value above it, and number of values.
    pub fn by_doubling(&self) -> Vec<(i64, i64, i64)> {
        let mut found: Vec<(i64, i64, i64)> = Vec::new();
        for (place, &count) in self.counts.iter().enumerate().filter(|(_, c)| **c > 0) {
            let lowest = lowest(place);
            let (from, to) = match lowest {
                0 => (0, 1),
                v => {
                    let from = 1_i64 << v.ilog2();
                    (from, from.saturating_mul(2))
                }
            };
            match found.last_mut() {
                Some(last) if last.0 == from => last.2 += count,
                _ => found.push((from, to, count)),
            }
        }
        found
    }
}

/// Values below 64 have a place of their own, others share it with those of their step.
fn place(value: i64) -> usize {
    let value = value as u64;
    if value < u64::from(STEPS) {
        return value as usize;
    }
    let shift = value.ilog2() - STEPS.ilog2();
    ((shift + 1) * STEPS) as usize + ((value >> shift) - u64::from(STEPS)) as usize
}

fn lowest(place: usize) -> i64 {
    let (doubling, step) = (place as u32 / STEPS, place as u32 % STEPS);
    match doubling {
        0 => i64::from(step),
        n => i64::from(step + STEPS) << (n - 1),
    }
}

/// The middle of the values that share a place.
fn value(place: usize) -> i64 {
    let doubling = place as u32 / STEPS;
    match doubling {
        0 | 1 => lowest(place),
        n => lowest(place) + (1_i64 << (n - 2)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_as_exact_as_promised(
            mut values in prop::collection::vec(0i64..5_000_000_000, 1..300), share in 0.0f64..=1.0
        ) {
            let mut found = Distribution::default();
            for &value in &values {
                found.add(value);
            }
            values.sort_unstable();
            let place = (share * values.len() as f64).ceil().max(1.0) as usize - 1;
            let (exact, ours) = (values[place], found.quantile(share).unwrap());
            prop_assert!((exact - ours).abs() as f64 <= exact as f64 / 64.0, "{exact} {ours}");
            prop_assert_eq!(found.sum, values.iter().sum::<i64>());
            let mean = found.sum as f64 / values.len() as f64;
            prop_assert!((found.mean() - mean).abs() <= mean.max(1.0) * 1e-9);
            let variance = values.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>();
            let deviation = (variance / values.len() as f64).sqrt();
            prop_assert!((found.deviation() - deviation).abs() <= deviation.max(1.0) * 1e-6);
            prop_assert_eq!(found.by_doubling().iter().map(|b| b.2).sum::<i64>(), found.count);
            prop_assert_eq!(found.steps().last().unwrap().1, 1.0);
        }
    }

    #[test]
    fn nothing_has_no_quantile() {
        let none = Distribution::default();
        assert_eq!((none.quantile(0.5), none.deviation()), (None, 0.0));
    }

    #[test]
    fn the_largest_value_has_a_place() {
        let mut one = Distribution::default();
        one.add(i64::MAX);
        one.add(-5);
        assert_eq!((one.min, one.max), (0, i64::MAX));
        assert_eq!(one.quantile(1.0), Some(i64::MAX));
    }
}
