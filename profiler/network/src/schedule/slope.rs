//! Dependence of a send on an arrival: the slope through points, with its interval.

/// Least number of repetitions of a slot for a slope.
pub(super) const LEAST_SAMPLES: usize = 12;
/// Half the width of the interval of a slope, in standard deviations of Kendall's statistic.
const SURE: f64 = 2.0;

/// Dependence of a send on an arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Slope {
    /// The interval of the slope.
    Within(f64, f64),
    /// The arrival was nearly never the last event before the send.
    NeverLast,
    TooFew,
}

/// The interval of the slope through points, by Theil, Sen and Kendall: the median of the slopes of all
/// pairs of points, and as many ranks to either side as chance may shift it.
pub(super) fn slope_of(points: &[(f64, f64)]) -> Slope {
    let n = points.len();
    if n < LEAST_SAMPLES {
        return Slope::TooFew;
    }
    let mut slopes: Vec<f64> = Vec::with_capacity(n * (n - 1) / 2);
    for (i, a) in points.iter().enumerate() {
        for b in &points[..i] {
            if a.0 != b.0 {
                slopes.push((a.1 - b.1) / (a.0 - b.0));
            }
        }
    }
    let count = n as f64;
    let shift = SURE * (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
    let (low, high) = (
        ((slopes.len() as f64 - shift) / 2.0).floor(),
        ((slopes.len() as f64 + shift) / 2.0).ceil(),
    );
    if low < 0.0 || high >= slopes.len() as f64 {
        return Slope::TooFew;
    }
    let mut at = |rank: f64| {
        *slopes
            .select_nth_unstable_by(rank as usize, f64::total_cmp)
            .1
    };
    Slope::Within(at(low), at(high))
}
