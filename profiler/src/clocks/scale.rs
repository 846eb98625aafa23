//! Times of one clock on the scale of another.

/// Converts times of one clock to those of another: `t + offset_ns - drift * t`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Offset at time 0, ns.
    pub offset_ns: f64,
    /// Relative speed: the clock gains this part of the time on the other.
    pub drift: f64,
}

impl Scale {
    /// The scale that changes nothing.
    pub const SAME: Scale = Scale {
        offset_ns: 0.0,
        drift: 0.0,
    };

    /// Converts a time to the other clock.
    pub fn apply(self, t_ns: f64) -> f64 {
        t_ns + self.offset_ns - self.drift * t_ns
    }

    /// This conversion followed by `next`.
    pub fn then(self, next: Scale) -> Scale {
        Scale {
            offset_ns: self.offset_ns + next.offset_ns - next.drift * self.offset_ns,
            drift: self.drift + next.drift - self.drift * next.drift,
        }
    }

    /// The inverse conversion.
    pub fn inverse(self) -> Scale {
        let factor = 1.0 / (1.0 - self.drift);
        Scale {
            offset_ns: -self.offset_ns * factor,
            drift: 1.0 - factor,
        }
    }
}
