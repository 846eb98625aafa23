//! Options and questions of `flowtrace network`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use crate::output;

/// Analyse a parallel program from its packets alone
///
/// Needs packets of one or more hosts: flowtrace import, capture, or run --net. Without a
/// subcommand, every question is answered in a line.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  flowtrace network trace.db
  flowtrace network balance trace.db --last 10
  flowtrace network topology trace.db -o topology.svg
  flowtrace network series trace.db --by-pair -o pairs.svg
  flowtrace network latency trace.db --from 10.0.0.1 --to 10.0.0.2 --format csv
How every number is computed, and when not to trust it: docs/network-inference.md"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(super) question: Option<Question>,
    #[command(flatten)]
    pub(super) common: CommonIfAlone,
}

/// The trace, which is an argument here only without a subcommand, for a subcommand has its own.
#[derive(Debug, clap::Args)]
pub(super) struct CommonIfAlone {
    /// Trace to read
    #[arg(default_value = flowtrace_schema::DEFAULT_TRACE)]
    pub(super) trace: PathBuf,
    #[command(flatten)]
    pub(super) options: Options,
}

#[derive(Debug, clap::Args)]
pub(super) struct Common {
    /// Trace to read
    #[arg(default_value = flowtrace_schema::DEFAULT_TRACE)]
    pub(super) trace: PathBuf,
    #[command(flatten)]
    pub(super) options: Options,
}

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Options {
    /// Only the last SECONDS before the newest packet
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub(super) last: Option<f64>,
    /// Only between two times, seconds since the start of the trace, as 2.5..10
    #[arg(long, value_name = "FROM..TO", value_parser = interval)]
    pub(super) within: Option<(f64, f64)>,
    /// A host (name or address) that belongs to the program; may be given several times
    /// [default: the processes of the recorded run, or else the hosts that were captured]
    #[arg(long, value_name = "HOST")]
    pub(super) host: Vec<String>,
    /// Unit that is one process: an address, unless a run was recorded, or all packets are within one address
    /// (loopback); then the processes
    #[arg(long, value_enum)]
    pub(super) by: Option<Unity>,
    /// Format of the answer [default: by the ending of FILE, else table]
    #[arg(long, value_enum)]
    pub(super) format: Option<Format>,
    /// Rules of this tool, or those of the thesis to the digit
    #[arg(long, value_enum, default_value_t = ModeName::Default)]
    pub(super) mode: ModeName,
    /// Payload, or whole frames as online VTTIF counts
    #[arg(long, value_enum, default_value_t = UnitName::Payload)]
    pub(super) unit: UnitName,
    /// Leave out edges below this share of the heaviest
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = share)]
    pub(super) min_share: f64,
    /// Seconds over which the topology is smoothed [default: 60 for changes, the whole interval for
    /// topology]
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub(super) smooth: Option<f64>,
    /// Relative change of the smoothed traffic that makes another topology
    #[arg(long, value_name = "SHARE", default_value_t = 0.2, value_parser = positive)]
    pub(super) detection: f64,
    /// Seconds between two updates of the smoothed topology
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = positive)]
    pub(super) period: f64,
    /// Share of the spectrum that the representative interval may lose, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent)]
    pub(super) cutoff: f64,
    /// Window in which iterations are counted for their rate, seconds [default: a fiftieth of the
    /// interval, 1 ms to 1 s, longer where a long capture has few packets; --mode thesis: 1]
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub(super) rate_window: Option<f64>,
    /// Seconds from one such window to the next: the sample step of the series [default: the window;
    /// --mode thesis: 0.02]
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub(super) rate_step: Option<f64>,
    /// Gap between two sends that makes an iteration, microseconds [default: 1.5 times the least
    /// round trip of the pair]
    #[arg(long, value_name = "MICROSECONDS", value_parser = positive)]
    pub(super) threshold: Option<f64>,
    /// Answer again every SECONDS while the trace grows, and when it is complete; less often if answers take
    /// so long that they would need more than a sixtieth of a CPU
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = positive)]
    pub(super) watch: Option<f64>,
    /// Every row of the table
    #[arg(long)]
    pub(super) full: bool,
    #[command(flatten)]
    pub(super) output: output::Target,
}

#[derive(Debug, clap::Args)]
pub(super) struct PairArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Sender
    #[arg(long)]
    pub(super) from: String,
    /// Receiver
    #[arg(long)]
    pub(super) to: String,
    /// Messages that a mean is taken over
    #[arg(long, value_name = "MESSAGES", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) ring: u32,
    /// Relative change of the mean that makes a row
    #[arg(long, value_name = "SHARE", default_value_t = 0.2, value_parser = positive)]
    pub(super) change: f64,
}

#[derive(Debug, Subcommand)]
pub(super) enum Question {
    /// Every question in a line
    Overview(Common),
    /// Connections and other flows: their processes, bytes and durations
    Flows(Common),
    /// Pairs that communicate: processes where they are known, else addresses
    Peers(Common),
    /// Bytes from each process to each other (GetTrafficMatrix)
    #[command(alias = "traffic_matrix")]
    Matrix(Common),
    /// Processes that communicate, and the pattern that they form (GetSmoothedTopology)
    #[command(alias = "smoothed_topology")]
    Topology(Common),
    /// Times at which the topology changed
    Changes(Common),
    /// Iteration rate of each pair of processes (GetRIRRate)
    #[command(alias = "rir_rate")]
    Iterations(Common),
    /// The iteration rate over time
    #[command(alias = "rir_series")]
    Series {
        #[command(flatten)]
        common: Common,
        /// For each pair by itself
        #[arg(long)]
        by_pair: bool,
    },
    /// Mean rate over the representative interval (GetStationaryRIRAvg, GetRepresentativeTimePeriod)
    #[command(aliases = ["stationary_rir_avg", "representative_period"])]
    Stationary(Common),
    /// Distribution of the iteration rate (GetRIRCDF)
    #[command(alias = "rir_cdf")]
    Cdf(Common),
    /// Duration of this run, from its speed and that of a base run of the same program
    #[command(alias = "predicted_time")]
    Predict {
        #[command(flatten)]
        common: Common,
        /// Trace of the base run
        #[arg(long, value_name = "TRACE")]
        base: PathBuf,
    },
    /// Speed that a load would leave to this run, from its effect on other programs (Slowdown CDF)
    #[command(alias = "slowdown_cdf")]
    SlowdownCdf {
        #[command(flatten)]
        common: Common,
        /// Traces of a program without the load and with it; may be given several times
        #[arg(long, value_name = "UNLOADED,LOADED", value_parser = two_traces)]
        calibration: Vec<(PathBuf, PathBuf)>,
        /// A row of the table: iterations per second of a pair without the load, and the fraction
        /// that it leaves, as 570=0.25; may be given several times
        #[arg(long, value_name = "RATE=FRACTION", value_parser = table_row)]
        at: Vec<(f64, f64)>,
    },
    /// Times at which a monitor that samples traffic would report, and its reports (reactive sampling)
    #[command(alias = "reactive")]
    Trigger {
        #[command(flatten)]
        common: Common,
        /// Bytes of a pair between two time stamps
        #[arg(long, value_name = "BYTES", default_value_t = 65536, value_parser = clap::value_parser!(u64).range(1..))]
        bytes: u64,
        /// A pair is hot when two time stamps are closer, seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = positive)]
        bound: f64,
        /// Report when traffic has lasted for so long, seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = positive)]
        hold: f64,
        /// Report the end of traffic when no pair was hot for so long, seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = positive)]
        wait: f64,
    },
    /// Power spectrum of the iteration rate (GetPowerSpectrum, GetPowerSpectrumAvg)
    #[command(aliases = ["power_spectrum", "power_spectrum_avg"])]
    Spectrum {
        #[command(flatten)]
        common: Common,
        /// Over the representative part of the interval (--cutoff)
        #[arg(long)]
        representative: bool,
    },
    /// Peaks of the spectrum (GetPowerSpectrumPeaks)
    #[command(alias = "power_spectrum_peaks")]
    Peaks(Common),
    /// Length and number of the program's repetitions (GetSuperPhaseEstimate)
    #[command(alias = "super_phase")]
    Period(Common),
    /// Pairs whose iteration rates have spectra of the same form (Algorithm 1)
    Components {
        #[command(flatten)]
        common: Common,
        /// Spectra farther apart than this are of two components
        #[arg(long, value_name = "DISTANCE", default_value_t = 0.3, value_parser = positive)]
        distance: f64,
    },
    /// Time for which each process made others wait, by the waiting process (GetGlobalBICDelay,
    /// GetPairBICDelay)
    #[command(aliases = ["bic_global", "bic_pair"])]
    Court(Common),
    /// Every gap behind these delays
    #[command(alias = "bic_records")]
    Records(Common),
    /// The process that delays the others (ComputeImbalanceGlobal)
    #[command(alias = "imbalance_global")]
    Balance(Common),
    /// The same by pairs of processes (ComputeImbalanceInterProcessBias)
    #[command(alias = "imbalance_bias")]
    Bias(Common),
    /// Several such processes, one after the other (ComputeImbalanceMultiload)
    #[command(alias = "imbalance_multiload")]
    Multiload {
        #[command(flatten)]
        common: Common,
        /// Stop at a process with less than this share of the load so far
        #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = share)]
        stop: f64,
    },
    /// Three metrics of imbalance (ComputeApplicationImbalance)
    #[command(alias = "application_imbalance")]
    Imbalance(Common),
    /// Messages by pair (GetNoMessages, GetNoMessagesList)
    #[command(aliases = ["message_count", "message_counts"])]
    Messages(Common),
    /// Latency and transfer time by pair (GetLatencyTime and GetBWTime with their lists)
    #[command(aliases = ["latency_times", "transfer_times"])]
    Decomposition(Common),
    /// Delay from one process to another over time (GetLatencyTime, GetAvgLatency)
    #[command(aliases = ["latency_time", "avg_latency"])]
    Latency(PairArgs),
    /// Bandwidth from one process to another over time (GetBWTime, GetAvgBW)
    #[command(aliases = ["transfer_time", "avg_bandwidth"])]
    Bandwidth(PairArgs),
    /// Processes that are slower than the others, and the cost of that; also where all send before they
    /// receive
    Slowdown(Common),
    /// Parallel efficiencies (POP): load balance, communication, serialisation, transfer
    #[command(alias = "pop_metrics")]
    Pop(Common),
    /// Parts of the longest chain of work and messages
    #[command(alias = "critical_path")]
    CriticalPath(Common),
    /// The run with a process faster or slower, or with an ideal network
    #[command(alias = "what_if")]
    WhatIf {
        #[command(flatten)]
        common: Common,
        /// Scale the work of a process (name, rule or pid), as 10.0.0.4=0.5; may be given several times
        #[arg(long, value_name = "PROCESS=FACTOR", value_parser = factor)]
        scale: Vec<(String, f64)>,
        /// Messages arrive at once
        #[arg(long)]
        no_latency: bool,
        /// Messages take no transfer time
        #[arg(long)]
        no_transfer: bool,
    },
    /// Available bandwidth from observed traffic (Wren), and hosts that read too late
    #[command(alias = "available_bandwidth")]
    State(Common),
    /// Advice on the host for each process (VADAPT)
    #[command(alias = "place")]
    Placement {
        #[command(flatten)]
        common: Common,
        /// Capacity between two hosts, bytes per second in both directions unless both are given,
        /// as node1,node2=125e6; may be given several times
        #[arg(long, value_name = "A,B=BYTES_PER_SECOND", value_parser = capacity)]
        capacity: Vec<(String, String, f64)>,
    },
    /// The largest imbalance: a process, latency or bandwidth (GetMostImbalancedComponent)
    #[command(alias = "most_imbalanced")]
    Component(Common),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The answer and its rows, as text
    Table,
    /// One object with exact numbers, interval and coverage
    Json,
    /// The rows
    Csv,
    /// Graphviz, for topology and matrix
    Dot,
    /// Picture of a graph, through Graphviz, or a plot (series, cdf)
    Svg,
    /// Picture of the same, through Graphviz
    Png,
    /// Picture of the same, through Graphviz
    #[value(alias = "jpg")]
    Jpeg,
    /// Picture of the same, through Graphviz
    Pdf,
    /// Picture of the same, through Graphviz
    Ps,
    /// GraphML, for topology and matrix
    Graphml,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Unity {
    /// A network address
    Host,
    /// A process, if the trace knows the process of each connection
    Process,
    /// An address with its port
    Endpoint,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ModeName {
    /// Rules of this tool
    Default,
    /// Rules of the thesis to the digit
    Thesis,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum UnitName {
    /// Payload without repetitions
    Payload,
    /// Whole frames
    Frame,
}

pub(super) fn number(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value.is_finite() {
        Ok(value)
    } else {
        Err("not a finite number".into())
    }
}

pub(super) fn positive(text: &str) -> Result<f64, String> {
    let value = number(text)?;
    if value > 0.0 {
        Ok(value)
    } else {
        Err("it must be more than 0".into())
    }
}

pub(super) fn share(text: &str) -> Result<f64, String> {
    let value = number(text)?;
    if (0.0..1.0).contains(&value) {
        Ok(value)
    } else {
        Err("it must be from 0 to below 1".into())
    }
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    let value = number(text)?;
    if (0.0..100.0).contains(&value) {
        Ok(value)
    } else {
        Err("it must be from 0 to below 100".into())
    }
}

pub(super) fn factor(text: &str) -> Result<(String, f64), String> {
    let (process, factor) = text.rsplit_once('=').ok_or("it is no PROCESS=FACTOR")?;
    let factor = number(factor)?;
    if factor < 0.0 {
        return Err("the factor must not be negative".into());
    }
    Ok((process.to_owned(), factor))
}

pub(super) fn capacity(text: &str) -> Result<(String, String, f64), String> {
    let wrong = "it is no A,B=BYTES_PER_SECOND";
    let (hosts, capacity) = text.rsplit_once('=').ok_or(wrong)?;
    let (a, b) = hosts.split_once(',').ok_or(wrong)?;
    Ok((a.to_owned(), b.to_owned(), positive(capacity)?))
}

pub(super) fn two_traces(text: &str) -> Result<(PathBuf, PathBuf), String> {
    let (unloaded, loaded) = text.split_once(',').ok_or("it is no UNLOADED,LOADED")?;
    Ok((unloaded.into(), loaded.into()))
}

pub(super) fn table_row(text: &str) -> Result<(f64, f64), String> {
    let (rate, fraction) = text.split_once('=').ok_or("it is no RATE=FRACTION")?;
    let fraction = number(fraction)?;
    if !(0.0..=1.0).contains(&fraction) {
        return Err("the fraction must be from 0 to 1".into());
    }
    Ok((positive(rate)?, fraction))
}

pub(super) fn interval(text: &str) -> Result<(f64, f64), String> {
    let (from, to) = text.split_once("..").ok_or("it is no FROM..TO")?;
    let from = if from.is_empty() {
        f64::MIN
    } else {
        number(from)?
    };
    let to = if to.is_empty() { f64::MAX } else { number(to)? };
    if from < to {
        Ok((from, to))
    } else {
        Err("it ends before it begins".into())
    }
}

impl Question {
    pub(super) fn common(&self) -> &Common {
        match self {
            Question::Overview(common)
            | Question::Flows(common)
            | Question::Peers(common)
            | Question::Matrix(common)
            | Question::Topology(common)
            | Question::Changes(common)
            | Question::Iterations(common)
            | Question::Stationary(common)
            | Question::Cdf(common)
            | Question::Spectrum { common, .. }
            | Question::Series { common, .. }
            | Question::Predict { common, .. }
            | Question::SlowdownCdf { common, .. }
            | Question::Trigger { common, .. }
            | Question::Records(common)
            | Question::Peaks(common)
            | Question::Period(common)
            | Question::Court(common)
            | Question::Balance(common)
            | Question::Bias(common)
            | Question::Multiload { common, .. }
            | Question::Imbalance(common)
            | Question::Messages(common)
            | Question::Decomposition(common)
            | Question::Slowdown(common)
            | Question::Pop(common)
            | Question::CriticalPath(common)
            | Question::WhatIf { common, .. }
            | Question::Components { common, .. }
            | Question::State(common)
            | Question::Placement { common, .. }
            | Question::Component(common) => common,
            Question::Latency(pair) | Question::Bandwidth(pair) => &pair.common,
        }
    }
}
