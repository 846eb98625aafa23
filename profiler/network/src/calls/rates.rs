//! Calls 4 to 7 and 12: the iteration rate.

use crate::plain;
use crate::quantile;
use crate::rir::{self, Distribution};
use crate::run::{Answer, Mode, Node, Run, Unknown};
use crate::stationary;

/// The rate of one ordered pair.
#[derive(Clone, Debug, PartialEq)]
pub struct PairRate {
    /// The process whose sends are counted.
    pub src: Node,
    /// Its partner.
    pub dst: Node,
    /// Iterations per second; `None` if there are too few.
    pub rate: Option<f64>,
    /// Number of iterations.
    pub events: usize,
    /// Gap that makes an iteration, ns.
    pub threshold_ns: i64,
    /// True if the messages were counted instead of the gaps. This is done if all messages of a pair
    /// have one size and both processes send as many: messages that cross on the way are no round
    /// trips.
    pub is_by_messages: bool,
    /// Number of iterations if the gap were the least round-trip time, and if it were four times that.
    /// If the two agree, the count does not depend on the choice of the gap.
    pub sensitivity: Option<(usize, usize)>,
}

/// The rates of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// The program's rate per second: the median over the pairs with a known rate.
    pub rate: f64,
    /// Pairs by rate, the highest first.
    pub pairs: Vec<PairRate>,
}

/// Call 4, GetRIRRate.
///
/// # Errors
/// When the interval holds no packet, or no pair iterates.
pub fn rir_rate(run: &Run, last: Option<f64>) -> Answer<Rates> {
    let run = run.last(last);
    let events = rir::events_and_counts(&run, |me, peer| {
        let least = crate::rtt::least_ns(&run, me, peer);
        [1.0, 4.0].map(|factor| least.map(|ns| (ns as f64 * factor) as i64))
    })?;
    let mut pairs: Vec<PairRate> = events
        .iter()
        .map(|(events, [once, four])| PairRate {
            src: events.me,
            dst: events.peer,
            rate: rir::rate(&run, events).ok(),
            events: events.times_ns.len(),
            threshold_ns: events.threshold_ns,
            is_by_messages: false,
            sensitivity: once.zip(*four),
        })
        .collect();
    if run.settings.mode == Mode::Default && run.settings.rtt_threshold_ns.is_none() {
        count_messages(&run, &mut pairs)?;
    }
    pairs.sort_by(|a, b| {
        let rates = (b.rate.unwrap_or(-1.0)).total_cmp(&a.rate.unwrap_or(-1.0));
        rates.then((a.src, a.dst).cmp(&(b.src, b.dst)))
    });
    // A pair that exchanges only a few messages at start-up does not represent the program.
    let most = pairs.iter().map(|pair| pair.events).max().unwrap_or(0);
    let steady = pairs.iter().filter(|pair| pair.events * 10 >= most);
    let rate = quantile::median(steady.filter_map(|pair| pair.rate));
    let Some(rate) = rate else {
        return Err(Unknown::new(match run.settings.mode {
            Mode::Thesis => format!(
                "the interval of {:.3} s is shorter than the window of {} s",
                run.seconds(),
                run.rate_window(1)?.0
            ),
            Mode::Default => return Err(no_iterations()),
        }));
    };
    Ok(run.known(Rates { rate, pairs }))
}

/// Least number of messages of a pair for counting them.
const LEAST_MESSAGES: usize = 8;
/// Least share of one-way messages that must come after a pause to be iterations.
const PAUSES: f64 = 0.5;

/// Counts messages as the iterations of a pair that sends one message of the same size each way per
/// iteration: if both cross on the way, the sends have no data of the peer between them. The same for a
/// pair that sends in one direction only, with a pause before each message.
fn count_messages(run: &Run, pairs: &mut [PairRate]) -> Result<(), Unknown> {
    let plain = plain::of_run(run)?;
    for pair in pairs {
        let Some(own) = plain.get(&(pair.src, pair.dst)) else {
            continue;
        };
        let times = &own.times_ns;
        let are_iterations = match plain.get(&(pair.dst, pair.src)) {
            Some(back) => plain::are_in_step(own.messages.len(), back.messages.len()),
            None => {
                let pauses = times.windows(2).filter(|w| w[1] - w[0] > pair.threshold_ns);
                pauses.count() as f64 >= PAUSES * (times.len() - 1) as f64
            }
        };
        // If every message is a round trip, the usual count is right.
        if !are_iterations || times.len() < LEAST_MESSAGES || pair.events + 1 >= times.len() {
            continue;
        }
        let seconds = (times[times.len() - 1] - times[0]) as f64 / 1e9;
        if seconds > 0.0 {
            pair.rate = Some((times.len() - 1) as f64 / seconds);
            pair.events = times.len() - 1;
            pair.is_by_messages = true;
        }
    }
    Ok(())
}

/// The series of the whole program, per second, and the step between its windows, s. Windows overlap in
/// thesis mode and are side by side by default.
///
/// # Errors
/// When the interval is empty or shorter than the window.
pub fn rir_series(run: &Run, last: Option<f64>) -> Answer<(Vec<f64>, f64)> {
    let run = run.last(last);
    let (series, step) = series(&run)?;
    Ok(run.known((series, step)))
}

pub(super) fn series(run: &Run) -> Result<(Vec<f64>, f64), Unknown> {
    let (window, step) = run.rate_window(1)?;
    Ok((series_of(run, &all_times(run)?, (window, step))?, step))
}

/// The series of the iterations at these times, per second.
fn series_of(run: &Run, times_ns: &[i64], (window, step): (f64, f64)) -> Result<Vec<f64>, Unknown> {
    let counts = rir::series(times_ns, run.span_ns(), window, step);
    if counts.is_empty() {
        return Err(Unknown::new(format!(
            "the interval of {:.3} s is shorter than the window of {window} s",
            run.seconds()
        )));
    }
    Ok(counts.into_iter().map(|count| count / window).collect())
}

/// Series of the iteration rate (3.4.2).
#[derive(Clone, Debug, PartialEq)]
pub struct RateSeries {
    /// Begin of the first window, ns.
    pub t0_ns: i64,
    /// Length of a window, s. `step_s`: distance from one window to the next.
    pub window_s: f64,
    /// See `window_s`.
    pub step_s: f64,
    /// Iterations per second of all pairs together, window by window.
    pub all: Vec<f64>,
    /// The same for each ordered pair that iterates.
    pub pairs: Vec<PairSeries>,
}

/// The series of one ordered pair.
#[derive(Clone, Debug, PartialEq)]
pub struct PairSeries {
    /// The process whose sends are counted.
    pub src: Node,
    /// Its partner.
    pub dst: Node,
    /// Iterations per second, window by window.
    pub rates: Vec<f64>,
}

/// The series of the whole program and of each pair (3.4.2, figures 3.8 and 3.9).
///
/// # Errors
/// As [`rir_series`].
pub fn rir_series_by_pair(run: &Run, last: Option<f64>) -> Answer<RateSeries> {
    let run = run.last(last);
    let events = rir::events(&run)?;
    let iterate = events.iter().filter(|events| !events.times_ns.is_empty());
    let (window_s, step_s) = run.rate_window(iterate.count() + 1)?;
    let all = series_of(&run, &all_times(&run)?, (window_s, step_s))?;
    let mut pairs = Vec::new();
    for events in events {
        if !events.times_ns.is_empty() {
            pairs.push(PairSeries {
                src: events.me,
                dst: events.peer,
                rates: series_of(&run, &events.times_ns, (window_s, step_s))?,
            });
        }
    }
    Ok(run.known(RateSeries {
        t0_ns: run.span_ns().0,
        window_s,
        step_s,
        all,
        pairs,
    }))
}

fn no_iterations() -> Unknown {
    Unknown::new("no process sent twice to one that answered in between")
}

/// The iterations of all pairs in the order of time.
pub(super) fn all_times(run: &Run) -> Result<Vec<i64>, Unknown> {
    let mut times: Vec<i64> = rir::events(run)?
        .into_iter()
        .flat_map(|events| events.times_ns)
        .collect();
    times.sort_unstable();
    if times.is_empty() {
        return Err(no_iterations());
    }
    Ok(times)
}

/// The beginning of the run that is long enough to show the range of its behaviour (3.7.2).
pub(super) fn stationary_part(run: &Run) -> Result<(Vec<f64>, f64, f64), Unknown> {
    let (series, step) = series(run)?;
    let (from, to) = match run.settings.mode {
        Mode::Thesis => stationary::trimmed(&series, 1.0),
        // For a steady series the energy about the mean says nothing; idle ends are cut.
        Mode::Default => stationary::busy(&series),
    };
    let inner = &series[from..to];
    let mut kept = stationary::representative(inner, run.settings.cutoff_percent);
    if run.settings.mode == Mode::Default {
        kept = kept
            .max(inner.len().div_ceil(10))
            .max(LEAST_WINDOWS.min(inner.len()));
    }
    Ok((inner[..kept].to_vec(), step, kept as f64 * step))
}

/// Least number of windows for a mean, if there are that many.
const LEAST_WINDOWS: usize = 10;

/// Call 5, GetStationaryRIRAvg: the mean rate, per second, and the time over which it was taken, s.
///
/// # Errors
/// As [`rir_series`].
pub fn stationary_rir_avg(run: &Run) -> Answer<(f64, f64)> {
    let (series, _, seconds) = stationary_part(run)?;
    let mean = quantile::mean(&series).ok_or_else(|| Unknown::new("the series is empty"))?;
    Ok(run.known((mean, seconds)))
}

/// Call 6, GetRIRCDF: 100 values, spread and median of the rate, per second.
///
/// # Errors
/// As [`rir_series`].
pub fn rir_cdf(run: &Run) -> Answer<Distribution> {
    let (series, ..) = stationary_part(run)?;
    let found = rir::distribution(&series).ok_or_else(|| Unknown::new("the series is empty"))?;
    Ok(run.known(found))
}

/// Call 7, GetRepresentativeTimePeriod, s.
///
/// # Errors
/// As [`rir_series`].
pub fn representative_period(run: &Run) -> Answer<f64> {
    let (_, _, seconds) = stationary_part(run)?;
    Ok(run.known(seconds))
}

/// Call 12, SetPowerSpectrumCutoff.
///
/// # Errors
/// When it is no percentage below 100.
pub fn set_spectrum_cutoff(run: &mut Run, percent: f64) -> Result<(), Unknown> {
    if !(0.0..100.0).contains(&percent) {
        return Err(Unknown::new(
            "the cutoff is a percentage from 0 to below 100",
        ));
    }
    run.settings.cutoff_percent = percent;
    Ok(())
}
