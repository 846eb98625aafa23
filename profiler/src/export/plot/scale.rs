//! From values to points, and where the ticks stand.

use super::Axis;
use crate::export::sheet::Unit;
use crate::text::units;

/// A scale of one axis.
pub(super) struct Scale {
    from: f64,
    to: f64,
    begin: f64,
    end: f64,
    is_log: bool,
    unit: Unit,
}

impl Scale {
    /// The scale that shows all `values` between two places.
    pub(super) fn of(
        values: impl Iterator<Item = f64>,
        axis: &Axis,
        (begin, end): (f64, f64),
    ) -> Scale {
        let values = values.filter(|v| v.is_finite() && (!axis.is_log || *v > 0.0));
        let (mut from, mut to) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| {
            (a.min(v), b.max(v))
        });
        if from > to {
            (from, to) = (1.0, 10.0);
        }
        if axis.is_log {
            // Whole powers of ten.
            from = 10_f64.powf(from.log10().floor());
            to = 10_f64.powf(to.log10().ceil()).max(from * 10.0);
        } else {
            from = from.min(0.0);
            if axis.unit == Unit::Share && to > 0.5 {
                to = 1.0;
            }
            if to <= from {
                to = from + 1.0;
            }
        }
        Scale {
            from,
            to,
            begin,
            end,
            is_log: axis.is_log,
            unit: axis.unit,
        }
    }

    /// Where a value stands. What has no place on a logarithmic axis, as 0, stands at its begin.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.is_log {
            let value = value.max(self.from);
            (value.ln() - self.from.ln()) / (self.to.ln() - self.from.ln())
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.begin + share.clamp(0.0, 1.0) * (self.end - self.begin)
    }

    /// The far end.
    pub(super) fn end(&self) -> f64 {
        self.end
    }

    /// Values with their names.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let mut ticks = Vec::new();
        if self.is_log {
            let decades = (self.to / self.from).log10().round() as i32;
            let step = (decades / 8 + 1) as usize;
            for power in (0..=decades).step_by(step) {
                ticks.push(self.from * 10_f64.powi(power));
            }
        } else {
            let rough = (self.to - self.from) / 6.0;
            let ten = 10_f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0]
                .into_iter()
                .map(|n| n * ten)
                .find(|step| *step >= rough)
                .unwrap_or(rough);
            let mut n = 0.0;
            while self.from + n * step <= self.to + step * 1e-6 {
                ticks.push(self.from + n * step);
                n += 1.0;
            }
        }
        ticks.into_iter().map(|v| (v, self.name(v))).collect()
    }

    fn name(&self, value: f64) -> String {
        let whole = value.round() as i64;
        match self.unit {
            Unit::Ns => short(&units::duration(whole)),
            Unit::Bytes => short(&units::bytes(whole)),
            Unit::Rate => format!("{}/s", short(&units::bytes(whole))),
            Unit::Share => format!("{:.0} %", value * 100.0),
            _ => units::short_count(whole),
        }
    }
}

/// `1 ms` for `1.0 ms`.
fn short(text: &str) -> String {
    text.replacen(".0 ", " ", 1)
}
