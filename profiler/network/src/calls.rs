//! The 27 calls of section 7.3 by name, on a `Run`. `last` is seconds before the newest packet,
//! `None` the whole interval of the run. A call on an interval that is empty or too short returns
//! [`Unknown`](super::Unknown) with the reason.

mod balance;
mod between;
mod decomposition;
mod rates;
mod sampling;
mod spectra;
mod topology;

pub use balance::{
    BiasAnswer, BicAnswer, GlobalImbalance, MultiloadAnswer, PairBic, application_imbalance,
    bic_global, bic_pair, imbalance_bias, imbalance_global, imbalance_multiload,
};
pub use between::{Prediction, calibrated, predicted_by_period, predicted_time, slowdown_cdf};
pub use decomposition::{
    LatencyTime, MostImbalanced, avg_bandwidth, avg_latency, latency_time, latency_times,
    message_count, message_counts, most_imbalanced, transfer_time, transfer_times,
};
pub use rates::{
    PairRate, PairSeries, RateSeries, Rates, representative_period, rir_cdf, rir_rate, rir_series,
    rir_series_by_pair, set_spectrum_cutoff, stationary_rir_avg,
};
pub use sampling::{Gap, bic_records, reactive};
pub use spectra::{
    PeakRow, PowerSpectrum, SuperPhase, power_spectrum, power_spectrum_avg, power_spectrum_peaks,
    super_phase,
};
pub use topology::{SmoothedTopology, changes, set_smoothing, smoothed_topology, traffic_matrix};

#[cfg(test)]
mod tests;
