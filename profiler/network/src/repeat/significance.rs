//! Significance of a distance at which messages come again.

/// Least share of the messages that an inner loop explains.
pub(super) const LEAST_INNER: f64 = 0.6;

/// Least lead of that share over the share in another order of the messages.
pub(super) const INNER_LEAD: f64 = 0.2;

/// Largest share of the messages left by the inner loop that an outer loop may leave.
const LEFT_OVER: f64 = 0.4;

/// Least difference between the messages that an outer loop leaves and those expected by chance, in
/// standard deviations.
const DEVIATIONS: f64 = 3.0;

/// Number of messages that do not come again at a distance, and of those that could.
pub(super) type Missed = (usize, usize);

/// True if the longer distance explains most of the messages that the shorter one leaves, so that it is
/// the outer loop.
pub(super) fn is_outer(inner: Missed, outer: Missed) -> bool {
    let share = |(missed, of): Missed| missed as f64 / of.max(1) as f64;
    let expected = share(inner) * outer.1 as f64;
    let found = outer.0 as f64;
    share(outer) <= LEFT_OVER * share(inner)
        && expected - found >= DEVIATIONS * (expected + found).sqrt()
}

/// Bound (Chernoff) of the probability that as many messages come again at one of `tried` distances, if
/// each does with the probability `alike` that two messages are alike.
pub(super) fn by_chance((missed, of): Missed, alike: f64, tried: usize) -> f64 {
    let share = 1.0 - missed as f64 / of.max(1) as f64;
    if share <= alike || of == 0 {
        return 1.0;
    }
    let term = |p: f64, q: f64| {
        if p > 0.0 {
            p * (p / q.max(1e-300)).ln()
        } else {
            0.0
        }
    };
    let divergence = term(share, alike) + term(1.0 - share, 1.0 - alike);
    (tried as f64 * (-(of as f64) * divergence).exp()).min(1.0)
}

/// The probability that two of these messages are alike.
pub(super) fn alike(counts: impl Iterator<Item = usize>) -> f64 {
    let (squares, sum) = counts.fold((0.0, 0.0), |(squares, sum), count| {
        (squares + (count as f64).powi(2), sum + count as f64)
    });
    squares / f64::max(sum * sum, 1.0)
}
