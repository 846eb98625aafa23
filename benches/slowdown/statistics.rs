//! The middle of a few values, and how far they lie apart.

/// Lower quartile, median, upper quartile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quartiles {
    low: f64,
    pub(crate) median: f64,
    high: f64,
}

impl Quartiles {
    /// Half the distance between the quartiles.
    pub(crate) fn spread(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// Interpolated; None of nothing.
pub(crate) fn quartiles(mut values: Vec<f64>) -> Option<Quartiles> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)? as f64;
    let at = |share: f64| {
        let place = share * last;
        let below = values[place.floor() as usize];
        let above = values[place.ceil() as usize];
        below + (above - below) * place.fract()
    };
    Some(Quartiles {
        low: at(0.25),
        median: at(0.5),
        high: at(0.75),
    })
}
