//! Efficiencies of a run, as intervals.

/// Width of the widest interval for which the middle is given as a number.
pub const NARROW: f64 = 0.2;

/// An interval of a share, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Least.
    pub low: f64,
    /// Most.
    pub high: f64,
}

impl Share {
    pub(super) fn of(a: f64, b: f64) -> Share {
        let clean = |x: f64| {
            if x.is_finite() {
                x.clamp(0.0, 1.0)
            } else {
                1.0
            }
        };
        Share {
            low: clean(a.min(b)),
            high: clean(a.max(b)),
        }
    }

    /// The middle of the interval, if it is narrow enough for a single value.
    pub fn point(&self) -> Option<f64> {
        (self.high - self.low <= NARROW).then_some((self.low + self.high) / 2.0)
    }
}

/// Quantity from which efficiencies are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Work of each process in a plain exchange, which packets show.
    Work,
    /// The least and the most that each process may have computed.
    Bounds,
}

/// The efficiencies of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Pop {
    /// Quantity from which the efficiencies are computed.
    pub basis: Basis,
    /// Work of each process, least and most, s.
    pub work_s: Vec<(f64, f64)>,
    /// Length of the run to which the efficiencies refer, s.
    pub run_s: f64,
    /// Length on a network without latency and transfer time, s, for both readings. `None`, as are the
    /// shares that follow from it, if it is not known which process waited for which, as a replay
    /// needs.
    pub ideal_s: Option<(f64, f64)>,
    /// Mean work divided by largest work.
    pub load_balance: Share,
    /// Largest work divided by the length of the run.
    pub communication: Share,
    /// Largest work divided by the ideal length.
    pub serialisation: Option<Share>,
    /// Ideal length divided by the length of the run.
    pub transfer: Option<Share>,
    /// Mean work divided by the length of the run.
    pub parallel: Share,
}
