//! Times of one clock on the scale of another.

/// From the times of one clock to those of another: `t + offset_ns - drift * t`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// To add at time 0.
    pub offset_ns: f64,
    /// By how much the clock runs faster than the other.
    pub drift: f64,
}

impl Scale {
    /// The clock itself.
    pub const SAME: Scale = Scale {
        offset_ns: 0.0,
        drift: 0.0,
    };

    /// A time on the other clock.
    pub fn apply(self, t_ns: f64) -> f64 {
        t_ns + self.offset_ns - self.drift * t_ns
    }

    /// This one, and then `next`.
    pub fn then(self, next: Scale) -> Scale {
        Scale {
            offset_ns: self.offset_ns + next.offset_ns - next.drift * self.offset_ns,
            drift: self.drift + next.drift - self.drift * next.drift,
        }
    }

    /// The way back.
    pub fn inverse(self) -> Scale {
        let factor = 1.0 / (1.0 - self.drift);
        Scale {
            offset_ns: -self.offset_ns * factor,
            drift: 1.0 - factor,
        }
    }
}
