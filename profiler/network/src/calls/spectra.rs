//! Calls 8 to 11: power spectra and the super-phase.

use super::rates;
use crate::period::{self, Background, Verdict};
use crate::periods::{self, Basis, Component};
use crate::repeat::Iterations;
use crate::rir;
use crate::run::{Answer, Mode, Run, Unknown};
use crate::spectrum::{self, Spectrum};

/// A spectrum and the background with which it is compared.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerSpectrum {
    /// The spectrum.
    pub spectrum: Spectrum,
    /// Background at each bin; empty in thesis mode.
    pub background: Vec<f64>,
    /// Probability of the highest peak without a period; `None` in thesis mode.
    pub p_value: Option<f64>,
    /// Least frequency below which 95 % of the power lie (eq. 3.2), Hz.
    pub edge_hz: Option<f64>,
    /// Sampling rate of the series, Hz.
    pub sample_hz: f64,
}

/// Call 8, GetPowerSpectrum.
///
/// # Errors
/// When the interval is too short for a series.
pub fn power_spectrum(run: &Run, last: Option<f64>) -> Answer<PowerSpectrum> {
    let run = run.last(last);
    match run.settings.mode {
        Mode::Thesis => {
            let (series, step) = rates::series(&run)?;
            Ok(run.known(of_series(&series, step)))
        }
        Mode::Default => {
            let estimate = estimate(&run)?;
            Ok(run.known(of_estimate(&estimate)))
        }
    }
}

/// Call 9, GetPowerSpectrumAvg: the spectrum of the representative period.
///
/// # Errors
/// When the interval is too short for a series.
pub fn power_spectrum_avg(run: &Run) -> Answer<PowerSpectrum> {
    let (series, step, seconds) = rates::stationary_part(run)?;
    match run.settings.mode {
        Mode::Thesis => Ok(run.known(of_series(&series, step))),
        Mode::Default => {
            let (t0, _) = run.span_ns();
            let part = run.within(t0, t0 + (seconds * 1e9) as i64);
            let estimate = estimate(&part)?;
            Ok(run.known(of_estimate(&estimate)))
        }
    }
}

fn of_series(series: &[f64], step: f64) -> PowerSpectrum {
    let spectrum = spectrum::windowed(series, 1.0 / step);
    PowerSpectrum {
        edge_hz: spectrum.edge_hz(),
        spectrum,
        background: Vec::new(),
        p_value: None,
        sample_hz: 1.0 / step,
    }
}

fn of_estimate(estimate: &period::Estimate) -> PowerSpectrum {
    let spectrum = estimate.periodogram.clone();
    let sample_hz = 1e9 / estimate.bin_ns as f64;
    let at = |k: usize| Background::at(&estimate.background, spectrum.hz(k) / sample_hz);
    PowerSpectrum {
        background: (0..spectrum.power.len()).map(at).collect(),
        p_value: Some(estimate.p_value),
        edge_hz: spectrum.edge_hz(),
        sample_hz,
        spectrum,
    }
}

fn estimate(run: &Run) -> Result<period::Estimate, Unknown> {
    let pairs: Vec<Vec<i64>> = rir::events(run)?.into_iter().map(|e| e.times_ns).collect();
    if pairs.iter().all(Vec::is_empty) {
        return Err(Unknown::new(
            "no process sent twice to one that answered in between",
        ));
    }
    let estimate = period::estimate(&pairs, run.span_ns());
    if estimate.periodogram.power.is_empty() {
        return Err(Unknown::new("the interval is too short for a spectrum"));
    }
    Ok(estimate)
}

/// A local maximum of the spectrum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeakRow {
    /// Frequency, Hz.
    pub hz: f64,
    /// Density.
    pub power: f64,
    /// Probability that some peak is this high without a period; `None` in thesis mode.
    pub p_value: Option<f64>,
    /// Rank by power, 1 for the strongest.
    pub rank: usize,
}

/// Call 10, GetPowerSpectrumPeaks, the strongest first.
///
/// # Errors
/// As [`power_spectrum_avg`].
pub fn power_spectrum_peaks(run: &Run) -> Answer<Vec<PeakRow>> {
    let found = power_spectrum_avg(run)?;
    let spectrum = &found.value;
    let ordinates = spectrum.spectrum.power.len() as f64;
    let p_value = |hz: f64, power: f64| {
        let bin = (hz / spectrum.spectrum.bin_hz).round() as usize;
        let background = *spectrum.background.get(bin)?;
        (background > 0.0).then(|| {
            let single = (-power / background).exp();
            -(ordinates * (-single).ln_1p()).exp_m1()
        })
    };
    let peaks = spectrum.spectrum.peaks().into_iter().enumerate();
    let rows = peaks.map(|(i, peak)| PeakRow {
        hz: peak.hz,
        power: peak.power,
        p_value: p_value(peak.hz, peak.power),
        rank: i + 1,
    });
    Ok(run.known(rows.collect()))
}

/// Repetition of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct SuperPhase {
    /// Length, s; `None` if no period was found. If there are several, the longest of those that
    /// messages show.
    pub seconds: Option<f64>,
    /// Least and largest length that the evidence allows, s.
    pub range_s: Option<(f64, f64)>,
    /// Number of repetitions in the interval.
    pub count: Option<f64>,
    /// Method: `messages` if the same messages come again, `spectrum` if the rate swings, or `thesis`.
    pub method: &'static str,
    /// Remarks on the answer, for people.
    pub verdict: String,
    /// Other lengths that the spectrum allows, s.
    pub alternatives_s: Vec<f64>,
    /// Probability of the highest peak of the spectrum without a period.
    pub p_value: Option<f64>,
    /// Least difference between frequencies that can be distinguished, Hz.
    pub resolution_hz: f64,
    /// Iterations found from the messages, if they repeat.
    pub iterations: Option<Iterations>,
    /// All periods of all components, in thesis mode empty. The other fields are those of the first
    /// component.
    pub components: Vec<Component>,
}

/// Call 11, GetSuperPhaseEstimate. By default it finds the periods of all components, from messages
/// that repeat more than by chance, and from the rate.
///
/// # Errors
/// When the interval has too little data for either.
pub fn super_phase(run: &Run) -> Answer<SuperPhase> {
    if run.settings.mode == Mode::Thesis {
        return thesis(run);
    }
    let components = periods::of_run(run)?;
    let main = components
        .first()
        .ok_or_else(|| Unknown::new("no process sent data to another"))?;
    let spectral = main.spectral.as_ref().ok();
    let mut found = SuperPhase {
        seconds: None,
        range_s: None,
        count: None,
        method: "spectrum",
        verdict: String::new(),
        alternatives_s: main.alternatives_s.clone(),
        p_value: spectral.map(|e| e.p_value),
        resolution_hz: spectral.map_or(0.0, |e| e.resolution_hz),
        iterations: main.iterations.clone(),
        components: Vec::new(),
    };
    match main.periods.first() {
        Some(period) => {
            found.seconds = Some(period.seconds);
            found.range_s = Some(period.range_s);
            found.count = Some(period.count);
            found.verdict = match period.basis {
                Basis::Rate => "the rate of iterations swings with this period".into(),
                _ => {
                    found.method = "messages";
                    format!("the same messages were sent again {} times", period.count)
                }
            };
        }
        None => found.verdict = without_period(main)?,
    }
    found.components = components;
    Ok(run.known(found))
}

/// The reason why a component has no period.
fn without_period(component: &Component) -> Result<String, Unknown> {
    if let Some(iterations) = &component.iterations {
        return Ok(format!(
            "no period found: the same messages were sent again {} times, but not evenly",
            iterations.count
        ));
    }
    let estimate = component.spectral.as_ref().map_err(Unknown::clone)?;
    match &estimate.verdict {
        Verdict::Unknown(reason) => Err(Unknown::new(reason.clone())),
        Verdict::Periodic { .. } => Ok(
            "no period found: the spectrum has a peak, and the series does not come again \
                                        after its period"
                .into(),
        ),
        Verdict::NoPeriod => Ok(
            "no period found: no peak stands out of what an aperiodic program would show".into(),
        ),
    }
}

fn thesis(run: &Run) -> Answer<SuperPhase> {
    let spectrum = power_spectrum_avg(run)?.value.spectrum;
    let peak = spectrum::lowest_dominant(&spectrum);
    let peak = peak.ok_or_else(|| Unknown::new("the spectrum has no local maximum"))?;
    Ok(run.known(SuperPhase {
        seconds: Some(1.0 / peak.hz),
        range_s: Some((
            1.0 / (peak.hz + spectrum.bin_hz / 2.0),
            1.0 / (peak.hz - spectrum.bin_hz / 2.0).max(f64::MIN_POSITIVE),
        )),
        count: Some(run.seconds() * peak.hz),
        method: "thesis",
        verdict: "the lowest dominant local maximum of the spectrum".into(),
        alternatives_s: spectrum
            .peaks()
            .iter()
            .take(5)
            .map(|peak| 1.0 / peak.hz)
            .collect(),
        p_value: None,
        resolution_hz: spectrum.bin_hz,
        iterations: None,
        components: Vec::new(),
    }))
}
