//! Balance from ball-in-the-court delays (sections 4.3 to 4.7): the degree to which one process holds
//! the others up. Works on numbers alone: a table of delays in seconds, of row towards column.

use super::matrix::Matrix;

mod multiload;
mod parts;
mod walk;

pub use multiload::{Round, Rounds, multiload};
pub use parts::{Part, Roles, pair_local, parts};
pub use walk::walk;

/// A partner counts if its delay is at least this share of the row's largest ("negligible" in the
/// text). This share separates the neighbours of tables 4.4 to 4.6 from all other processes.
pub const SIGNIFICANT: f64 = 0.05;
/// A process is reported as loaded only when its delay is this many times the next largest.
pub const GATE: f64 = 1.2;

/// An interval of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Range {
    /// Optimistic end.
    pub low: f64,
    /// Pessimistic end.
    pub high: f64,
}

impl Range {
    /// The interval cut to 0 at least, and to the length of the run at most.
    pub fn clamped(self, run_s: f64) -> Range {
        Range {
            low: self.low.clamp(0.0, run_s.max(0.0)),
            high: self.high.clamp(0.0, run_s.max(0.0)),
        }
    }
}

/// The process with the largest delay, and its distance from the next one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gate {
    /// The process.
    pub loaded: usize,
    /// Delay of the process over the next largest delay.
    pub ratio: f64,
    /// True if the ratio is enough to call the process loaded.
    pub is_open: bool,
}

/// The gate of the balance; `None` with fewer than two processes or without any delay.
pub fn gate(global: &[f64]) -> Option<Gate> {
    let loaded = argmax(global)?;
    let others = global.iter().enumerate().filter(|(i, _)| *i != loaded);
    let next = others.map(|(_, delay)| *delay).reduce(f64::max)?;
    let ratio = if next > 0.0 {
        global[loaded] / next
    } else {
        f64::INFINITY
    };
    (global[loaded] > 0.0).then_some(Gate {
        loaded,
        ratio,
        is_open: ratio >= GATE,
    })
}

fn argmax(values: &[f64]) -> Option<usize> {
    (0..values.len()).reduce(|best, i| if values[i] > values[best] { i } else { best })
}

/// Slowdown by the global balance (eq. 4.1, 4.2): the loaded process compared with each other one.
pub fn global(delays: &[f64], loaded: usize) -> Option<Range> {
    let own = delays.get(loaded)?;
    let others = delays.iter().enumerate().filter(|(i, _)| *i != loaded);
    let gaps: Vec<f64> = others.map(|(_, delay)| own - delay).collect();
    Some(Range {
        low: gaps.iter().copied().reduce(f64::min)?,
        high: gaps.iter().copied().reduce(f64::max)?,
    })
}

/// Row sums: the global delay of each process.
pub fn sums(table: &Matrix<f64>) -> Vec<f64> {
    let row = |i: usize| partners(table, i).map(|j| *table.at(i, j)).sum();
    (0..table.size()).map(row).collect()
}

fn partners(table: &Matrix<f64>, i: usize) -> impl Iterator<Item = usize> + Clone + use<> {
    (0..table.size()).filter(move |&j| j != i)
}

/// The significant partners of a process.
pub fn significant(table: &Matrix<f64>, i: usize) -> Vec<usize> {
    let most = partners(table, i)
        .map(|j| *table.at(i, j))
        .fold(0.0, f64::max);
    partners(table, i)
        .filter(|&j| *table.at(i, j) >= SIGNIFICANT * most && *table.at(i, j) > 0.0)
        .collect()
}

/// The end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// References are means, so that less is attributed to the load.
    Optimistic,
    /// References are minima, so that more is attributed to the load.
    Pessimistic,
}

/// Equations 4.3 to 4.6 to the letter, over all partners (any delay at all) or the significant ones.
pub fn literal(table: &Matrix<f64>, loaded: usize, only_significant: bool) -> Range {
    let row_partners = |i: usize| {
        if only_significant {
            return significant(table, i);
        }
        partners(table, i)
            .filter(|&j| *table.at(i, j) > 0.0)
            .collect::<Vec<_>>()
    };
    let end = |end: End| -> f64 {
        let of = row_partners(loaded);
        of.iter()
            .map(|&i| {
                let row: Vec<f64> = row_partners(i).iter().map(|&j| *table.at(i, j)).collect();
                let bias = match end {
                    End::Pessimistic => {
                        let least = row.iter().copied().reduce(f64::min).unwrap_or(0.0);
                        row.iter().sum::<f64>() - row.len() as f64 * least
                    }
                    End::Optimistic => {
                        let mean = row.iter().sum::<f64>() / row.len().max(1) as f64;
                        row.iter().map(|delay| (delay - mean).max(0.0)).sum()
                    }
                };
                table.at(loaded, i) + 2.0 * bias - table.at(i, loaded)
            })
            .sum()
    };
    Range {
        low: end(End::Optimistic),
        high: end(End::Pessimistic),
    }
}

/// The optimistic bound of 4.4.2, without bias: the delay of the loaded process towards its significant
/// partners less their delay towards it.
pub fn without_bias(table: &Matrix<f64>, loaded: usize) -> f64 {
    let of = significant(table, loaded);
    of.iter()
        .map(|&i| table.at(loaded, i) - table.at(i, loaded))
        .sum()
}

/// The delay that a process would have towards each partner without load: the least or the mean of its
/// significant delays.
pub fn reference(table: &Matrix<f64>, i: usize, end: End) -> f64 {
    let row: Vec<f64> = significant(table, i)
        .iter()
        .map(|&j| *table.at(i, j))
        .collect();
    match end {
        End::Pessimistic => row.iter().copied().reduce(f64::min).unwrap_or(0.0),
        End::Optimistic => row.iter().sum::<f64>() / row.len().max(1) as f64,
    }
}

/// The metrics of 4.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Sample standard deviation of the global delays (eq. 4.7).
    StandardDeviation,
    /// Root of the summed squares above the least delay, minus it (eq. 4.8); may be negative.
    SquaredDistance,
    /// Sum over unordered pairs of the difference of their delays (eq. 4.9).
    InterProcess,
}

/// One metric of imbalance, s; `None` with fewer than two processes.
pub fn imbalance(table: &Matrix<f64>, metric: Metric) -> Option<f64> {
    let n = table.size();
    if n < 2 {
        return None;
    }
    let global = sums(table);
    Some(match metric {
        Metric::StandardDeviation => {
            let mean = global.iter().sum::<f64>() / n as f64;
            let squares: f64 = global.iter().map(|delay| (delay - mean).powi(2)).sum();
            (squares / (n - 1) as f64).sqrt()
        }
        Metric::SquaredDistance => {
            let least = global.iter().copied().fold(f64::INFINITY, f64::min);
            let squares: f64 = global.iter().map(|delay| (delay - least).powi(2)).sum();
            squares.sqrt() - least
        }
        Metric::InterProcess => {
            let pairs = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j)));
            pairs
                .map(|(i, j)| (table.at(i, j) - table.at(j, i)).abs())
                .sum()
        }
    })
}

#[cfg(test)]
mod tests;
