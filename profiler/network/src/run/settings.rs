//! Options of the methods.

use crate::steps;

/// Rules by which values are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The rules of the tool.
    #[default]
    Default,
    /// The rules of the thesis, to the digit.
    Thesis,
}

/// Bytes that count as traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Payload without retransmissions (offline VTTIF).
    #[default]
    Payload,
    /// Whole frames, everything that was on the wire (online VTTIF, 2.4.5).
    Frame,
}

/// Parameters of the series of averages. The text gives no values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Averaging {
    /// Number of values in a mean.
    pub ring: usize,
    /// Relative change that makes a new point.
    pub change: f64,
}

impl Default for Averaging {
    fn default() -> Self {
        Averaging {
            ring: 16,
            change: 0.2,
        }
    }
}

/// The options of the "Set" calls and of the gaps in the text. They are stored with every result.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Rules by which values are computed.
    pub mode: Mode,
    /// Bytes that a traffic matrix counts.
    pub unit: Unit,
    /// Edges below this share of the heaviest are pruned (2.1).
    pub b_min: f64,
    /// Time between two updates of the smoothed topology, s.
    pub period_s: f64,
    /// Smoothing interval, s (2.5).
    pub window_s: f64,
    /// Relative change of the matrix that makes a new topology (2.5).
    pub detection: f64,
    /// Share of the spectrum that may be lost when the interval is shortened, percent (3.7.1).
    pub cutoff_percent: f64,
    /// Gap between two sends that makes an iteration, ns; `None` for one from the round-trip time.
    pub rtt_threshold_ns: Option<i64>,
    /// Window of the iteration rate, s (3.4.2). `None`: 1 s in thesis mode; by default a fiftieth of
    /// the run, within 1 ms to 1 s, and more if a long run has few packets.
    pub rate_window_s: Option<f64>,
    /// Step of that window, s. `None`: 20 ms in thesis mode; by default the window's length, so that
    /// windows do not overlap.
    pub rate_step_s: Option<f64>,
    /// Series of average latencies and bandwidths (5.5).
    pub averaging: Averaging,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            mode: Mode::Default,
            unit: Unit::Payload,
            b_min: 0.1,
            period_s: 1.0,
            window_s: 60.0,
            detection: 0.2,
            cutoff_percent: 5.0,
            rtt_threshold_ns: None,
            rate_window_s: None,
            rate_step_s: None,
            averaging: Averaging::default(),
        }
    }
}

impl Settings {
    /// Window of the iteration rate and its step, s, for a run of `run_s` seconds with this number of
    /// packets and series.
    pub(super) fn rate_window(&self, run_s: f64, packets: usize, series: usize) -> (f64, f64) {
        let window = self.rate_window_s;
        match self.mode {
            Mode::Thesis => (window.unwrap_or(1.0), self.rate_step_s.unwrap_or(0.02)),
            // Windows do not overlap, since overlapping ones repeat the same value fifty times.
            Mode::Default => {
                let least = steps::least_ns((0, (run_s * 1e9) as i64), packets) as f64 / 1e9;
                let least = least.max(run_s * series as f64 / steps::MOST_ASKED as f64);
                let window = window.unwrap_or((run_s / 50.0).clamp(1e-3, 1.0).max(least));
                (window, self.rate_step_s.unwrap_or(window))
            }
        }
    }
}
