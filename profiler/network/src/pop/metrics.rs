//! Efficiencies of a run, as intervals.

/// Widest interval whose middle is given as a number.
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

    /// The middle, where the interval is narrow enough to be called a value.
    pub fn point(&self) -> Option<f64> {
        (self.high - self.low <= NARROW).then_some((self.low + self.high) / 2.0)
    }
}

/// Quantity that efficiencies are made of.
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
    /// Quantity that the efficiencies are made of.
    pub basis: Basis,
    /// Work of each process, least and most, s.
    pub work_s: Vec<(f64, f64)>,
    /// Length that the efficiencies refer to, s.
    pub run_s: f64,
    /// Length on a network without latency and transfer time, s: the two readings. `None`, like the shares
    /// that follow from it: a replay would need to know who waited for whom.
    pub ideal_s: Option<(f64, f64)>,
    /// Mean work over largest work.
    pub load_balance: Share,
    /// Largest work over the run.
    pub communication: Share,
    /// Largest work over the ideal run.
    pub serialisation: Option<Share>,
    /// Ideal run over the run.
    pub transfer: Option<Share>,
    /// Mean work over the run.
    pub parallel: Share,
}
