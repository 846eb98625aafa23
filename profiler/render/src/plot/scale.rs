//! Scales from values to places, and the places of ticks.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::chart::Axis;
use crate::units::{self, Unit};

/// A scale of one axis.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    /// Least distance of two ticks: closer ones would have equal labels, or name fractions of a unit that has
    /// none.
    least_step: f64,
    axis: Axis,
}

impl Scale {
    /// The scale that shows all `values`.
    pub(super) fn of(values: impl Iterator<Item = f64>, axis: &Axis) -> Scale {
        let values = values.filter(|v| v.is_finite() && (!axis.is_log || *v > 0.0));
        let range = axis.range.map_or([None; 2], |(a, b)| [Some(a), Some(b)]);
        let mut is_whole = true;
        let values = values.inspect(|value| is_whole &= value.fract() == 0.0);
        let (mut from, mut to) = values
            .chain(range.into_iter().flatten())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| {
                (a.min(v), b.max(v))
            });
        if from > to {
            (from, to) = (1.0, 10.0);
        }
        let has_parts = match axis.unit {
            Unit::Ns | Unit::At(_) | Unit::Bytes | Unit::Rate => false,
            Unit::Count => !is_whole,
            Unit::Text | Unit::Path | Unit::Share => true,
        };
        let least_step = if has_parts { 0.0 } else { 1.0 };
        if !axis.names.is_empty() {
            (from, to) = (-0.5, axis.names.len() as f64 - 0.5);
        } else if axis.is_log {
            // Whole powers of ten.
            from = 10_f64.powf((from.log10() + 1e-9).floor()).max(least_step);
            to = 10_f64.powf((to.log10() - 1e-9).ceil()).max(from * 10.0);
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
            least_step,
            axis: axis.clone(),
        }
    }

    /// Reverses the direction of the scale.
    pub(super) fn turn(&mut self) {
        std::mem::swap(&mut self.from, &mut self.to);
    }

    fn ticks(&self) -> Vec<f64> {
        if !self.axis.names.is_empty() {
            return (0..self.axis.names.len()).map(|at| at as f64).collect();
        }
        if self.axis.is_log {
            let decades = (self.to / self.from).log10().round() as i32;
            let step = (decades / 8 + 1) as usize;
            let power = |power| self.from * 10_f64.powi(power);
            return (0..=decades).step_by(step).map(power).collect();
        }
        let rough = (self.to - self.from) / 6.0;
        let ten = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|n| n * ten)
            .find(|step| *step >= rough)
            .unwrap_or(rough)
            .max(self.least_step);
        let first = (self.from / step).ceil();
        let count = ((self.to - first * step) / step + 1e-6).floor() as i32;
        (0..=count).map(|n| (first + f64::from(n)) * step).collect()
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    /// Place of a value. A value without a place on a logarithmic axis, such as 0, is put at its begin.
    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = if self.axis.is_log {
            let value = value.max(self.from);
            (value.ln() - self.from.ln()) / (self.to.ln() - self.from.ln())
        } else {
            (value - self.from) / (self.to - self.from)
        };
        limit.0 + (share.clamp(0.0, 1.0) * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, value: &f64) -> String {
        let whole = value.round() as i64;
        if let Some(name) = usize::try_from(whole)
            .ok()
            .and_then(|at| self.axis.names.get(at))
        {
            return units::shorten(&units::plain(name), 34);
        }
        match self.axis.unit {
            Unit::Ns => short(&units::duration(whole)),
            Unit::Bytes => short(&units::bytes(whole)),
            Unit::Rate => format!("{}/s", short(&units::bytes(whole))),
            Unit::Share => format!("{:.0} %", value * 100.0),
            // The whole axis covers only a few units: fractions count.
            _ if self.to < 5.0 => format!("{}", (value * 1e6).round() / 1e6),
            _ => units::short_count(whole),
        }
    }
}

/// `1 ms` for `1.0 ms`.
fn short(text: &str) -> String {
    text.replacen(".0 ", " ", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(unit: Unit, is_log: bool, values: &[f64]) -> Vec<String> {
        let axis = Axis {
            unit,
            is_log,
            ..Axis::default()
        };
        let scale = Scale::of(values.iter().copied(), &axis);
        let ticks = scale.ticks();
        ticks.iter().map(|tick| scale.format_ext(tick)).collect()
    }

    #[test]
    fn no_label_stands_twice_and_whole_numbers_have_no_parts() {
        assert_eq!(labels(Unit::Rate, false, &[0.2, 1.0]), ["0 B/s", "1 B/s"]);
        assert_eq!(
            labels(Unit::Rate, true, &[0.02, 90.0]),
            ["1 B/s", "10 B/s", "100 B/s"]
        );
        assert_eq!(labels(Unit::Count, false, &[0.0, 1.0]), ["0", "1"]);
        assert_eq!(
            labels(Unit::Count, false, &[3.0, 2.0]),
            ["0", "1", "2", "3"]
        );
        // Means, as of busy CPUs, have fractions.
        assert_eq!(labels(Unit::Count, false, &[0.0, 0.7]).len(), 4);
        for unit in [Unit::Ns, Unit::Bytes, Unit::Rate, Unit::Count, Unit::Share] {
            for most in [1.0, 2.0, 3.0, 7.0, 40.0, 1e5, 3e9] {
                let labels = labels(unit, false, &[0.0, most]);
                let distinct: std::collections::HashSet<_> = labels.iter().collect();
                assert_eq!(distinct.len(), labels.len(), "{labels:?}");
            }
        }
    }
}
