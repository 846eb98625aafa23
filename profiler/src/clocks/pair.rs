//! The clocks of two hosts, from the packets that both captured.

use super::hull::{Hull, edge};
use super::scale::Scale;

/// Least number of packets in each direction for a fit.
const FEWEST: u64 = 4;
/// Largest error of the slope with which a drift is used. Recordings too short for that get no drift,
/// and need none.
const MOST_DRIFT_ERROR: f64 = 5e-6;

/// The clock of host B relative to that of host A.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Converts times of B to times of A.
    pub scale: Scale,
    /// Bound of the error: half the sum of the smallest delays there and back.
    pub error_ns: f64,
    /// Number of packets found at both hosts.
    pub matched: u64,
    /// First and last time, on A's clock, for which there are packets.
    pub span: (f64, f64),
}

/// Differences of the times at A and B for the packets of one direction of one pair of addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Way {
    /// Points of time at A, and time at B less that at A.
    pub(super) lower: Hull,
    /// The points of `lower` with the other sign.
    pub(super) upper: Hull,
}

impl Way {
    pub(super) fn add(&mut self, at_a: f64, at_b: f64) {
        self.lower.add((at_a, at_b - at_a));
        self.upper.add((at_a, at_a - at_b));
    }
}

/// Both directions of a pair of addresses, as hosts A and B saw it.
#[derive(Clone, Debug, Default)]
pub(super) struct Ways {
    /// Packets from the lower address to the higher, and back.
    pub(super) ways: [Way; 2],
    /// The last difference in each direction.
    last: [Option<f64>; 2],
    /// Votes on the direction. A packet of the first direction that took longer from A to B than the
    /// packet of the second direction just before or after it is a vote for A to B; offsets cancel out.
    votes: i64,
    /// Direction as the captures report it: packets of the first direction that A's host sent, less
    /// those that B's host sent.
    pub(super) reported: i64,
}

impl Ways {
    pub(super) fn add(&mut self, direction: usize, at_a: f64, at_b: f64) {
        self.ways[direction].add(at_a, at_b);
        let difference = at_b - at_a;
        if let Some(other) = self.last[1 - direction].take() {
            let (there, back) = match direction {
                0 => (difference, other),
                _ => (other, difference),
            };
            self.votes += (there > back) as i64 - (there < back) as i64;
        }
        self.last[direction] = Some(difference);
    }

    /// Returns true if the first direction goes from A to B; `None` if neither reports nor votes show
    /// it.
    fn is_forward(&self) -> Option<bool> {
        match (self.reported, self.votes) {
            (0, 0) => None,
            (0, votes) => Some(votes > 0),
            (reported, _) => Some(reported > 0),
        }
    }
}

/// Fits the clocks of two hosts to all their packets; `None` if these do not suffice.
pub(super) fn fit<'a>(all: impl Iterator<Item = &'a Ways>) -> Option<Fit> {
    let (mut there, mut back) = (Hull::default(), Hull::default());
    for ways in all {
        let Some(is_forward) = ways.is_forward() else {
            continue;
        };
        let [first, second] = &ways.ways;
        let (to_b, to_a) = if is_forward {
            (first, second)
        } else {
            (second, first)
        };
        there.join(&to_b.lower);
        back.join(&to_a.upper);
    }
    if there.len() < FEWEST || back.len() < FEWEST {
        return None;
    }
    let matched = there.len() + back.len();
    let mean = (there.mean() * there.len() as f64 + back.mean() * back.len() as f64)
        / (there.len() + back.len()) as f64;
    let (there, back) = (there.corners(), back.corners());
    let ends = |corners: &[(f64, f64)]| Some((corners.first()?.0, corners.last()?.0));
    let ((a, b), (c, d)) = (ends(there)?, ends(back)?);
    let span = (a.max(c), b.min(d));
    let length = span.1 - span.0;
    if length.is_nan() || length <= 0.0 {
        return None;
    }
    let t0 = mean.clamp(span.0, span.1);
    let ((slope_there, value_there), (slope_back, value_back)) =
        (edge(there, t0)?, edge(back, t0)?);
    let both = doubt(value_there + value_back);
    if both / length <= MOST_DRIFT_ERROR {
        let skew = (slope_there - slope_back) / 2.0;
        let ahead = (value_there - value_back) / 2.0;
        // t_b = t_a + ahead + skew * (t_a - t0), solved for t_a.
        let factor = 1.0 / (1.0 + skew);
        return Some(Fit {
            scale: Scale {
                offset_ns: (skew * t0 - ahead) * factor,
                drift: 1.0 - factor,
            },
            error_ns: both / 2.0,
            matched,
            span,
        });
    }
    let lowest = |corners: &[(f64, f64)]| corners.iter().map(|c| c.1).fold(f64::INFINITY, f64::min);
    let (there, back) = (lowest(there), lowest(back));
    Some(Fit {
        scale: Scale {
            offset_ns: (back - there) / 2.0,
            drift: 0.0,
        },
        // A drift too small to be distinguished from 0 moves the clocks by at most that much meanwhile.
        error_ns: doubt(there + back) / 2.0 + both,
        matched,
        span,
    })
}

/// Twice the error of a middle between two bounds that are `apart_ns` apart. Bounds that contradict
/// each other come from times that were wrong by at least the contradiction, so the middle may be wrong
/// by all of it.
fn doubt(apart_ns: f64) -> f64 {
    match apart_ns >= 0.0 {
        true => apart_ns,
        false => -2.0 * apart_ns,
    }
}
