//! `flowtrace ideal`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::analysis::ideal::{
    Capacities, Ideal, MapReduce, ideal, phases, receive_skew,
};
use flowtrace_profiler::text;

use crate::failure::{Failure, Outcome};
use crate::{calibration, explained, output};

/// Compare a run with the shortest time that its data and the machine allow
///
/// Each phase takes at best as long as its slowest resource: disk, network, memory, CPUs. The rest is divided
/// into causes and sums exactly. Without a trace: the bound of a map–reduce job (Krevat et al.).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flowtrace calibrate --dir . && flowtrace ideal trace.db
  flowtrace ideal trace.db --disk-read 500 --disk-write 400
  flowtrace ideal --input 164000 --nodes 41 --disk-read 107 --disk-write 99 --network 112")]
pub(crate) struct Args {
    /// Trace to read [default: trace.db, unless --input is given]
    trace: Option<PathBuf>,
    /// Input of a map–reduce job in MB, instead of a trace
    #[arg(long, value_name = "MB", value_parser = rate, conflicts_with = "trace")]
    input: Option<f64>,
    /// Nodes of that job
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Copies of its output
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    replication: u32,
    /// Its local sort writes and reads the data once more
    #[arg(long)]
    two_phase: bool,
    /// Its map phase writes a copy of its output
    #[arg(long)]
    backup: bool,
    /// Rate at which a node's disk reads, MB/s
    #[arg(long, value_name = "MB/S", value_parser = rate)]
    disk_read: Option<f64>,
    /// Rate at which it writes, MB/s
    #[arg(long, value_name = "MB/S", value_parser = rate)]
    disk_write: Option<f64>,
    /// Rate of a node's network, MB/s
    #[arg(long, value_name = "MB/S", value_parser = rate)]
    network: Option<f64>,
    /// Rate at which a core copies memory, MB/s
    #[arg(long, value_name = "MB/S", value_parser = rate)]
    memory: Option<f64>,
    /// Capacities from a file of `flowtrace calibrate` [default: the one of this host]
    #[arg(long, value_name = "FILE")]
    capacities: Option<PathBuf>,
    /// Times at which phases end, in seconds from the start of the command [default: where no step is alive]
    #[arg(long, value_name = "S,S…", value_delimiter = ',', value_parser = super::bottlenecks::seconds)]
    phases: Vec<f64>,
    /// Text, or JSON with exact numbers [default: by the ending of FILE, else text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    output: output::Target,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// The answer and a table of phases
    Text,
    /// One object; times in nanoseconds
    Json,
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err("it is a number greater than 0".into()),
    }
}

/// The capacities in a file; without a file those stored for this host, if there are any.
pub(super) fn stored(path: Option<&Path>) -> Result<Option<calibration::Capacities>, Failure> {
    match path {
        Some(path) => calibration::read(path).map(Some),
        None => match calibration::default_path().filter(|path| path.exists()) {
            Some(path) => calibration::read(&path).map(Some),
            None => Ok(None),
        },
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let is_given = args.disk_read.is_some() && args.disk_write.is_some();
    let kept = match stored(args.capacities.as_deref()) {
        // No file has to be read if all capacities are given.
        Err(_) if is_given && args.capacities.is_none() => None,
        kept => kept?,
    };
    let of = |measured: Option<calibration::Measured>| measured.map(|one| one.value * 1e-6);
    let kept = kept.unwrap_or_default();
    let missing = |what: &str| {
        Failure::usage(format!("the {what} speed of the disk is not known")).hint(format!(
            "measure it with flowtrace calibrate, or give it as --disk-{what} MB/S"
        ))
    };
    let mega = |rate: f64| rate * 1e6;
    let disk_read = args
        .disk_read
        .or(of(kept.disk_read))
        .ok_or_else(|| missing("read"))?;
    let disk_write = args
        .disk_write
        .or(of(kept.disk_write))
        .ok_or_else(|| missing("write"))?;
    let capacities = Capacities {
        disk_read: mega(disk_read),
        disk_write: mega(disk_write),
        network: args.network.or(of(kept.network)).map(mega),
        memory: args.memory.or(of(kept.memory_copy)).map(mega),
    };
    match (&args.trace, args.input) {
        (Some(trace), _) => of_trace(args, trace, &capacities),
        (None, Some(input)) => of_job(args, input, &capacities),
        (None, None) => of_trace(
            args,
            Path::new(flowtrace_schema::DEFAULT_TRACE),
            &capacities,
        ),
    }
}

fn of_job(args: &Args, input: f64, capacities: &Capacities) -> Outcome {
    let format = args.output.format(args.format, Format::Text)?;
    let job = MapReduce {
        input: input * 1e6,
        nodes: f64::from(args.nodes),
        replication: f64::from(args.replication),
        two_phase: args.two_phase,
        backup: args.backup,
    };
    let (first, second) = job.bound(capacities);
    // There is no trace that could be overwritten.
    output::write_to(&args.output, Path::new(""), |out| {
        match format {
            Format::Text => writeln!(
                out,
                "flowtrace: {:.1} s at best: {first:.1} s to read and shuffle, {second:.1} s to write",
                first + second
            )?,
            Format::Json => writeln!(
                out,
                "{}",
                serde_json::json!({
                    "ideal_s": first + second, "read_and_shuffle_s": first, "write_s": second
                })
            )?,
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn of_trace(args: &Args, trace: &Path, capacities: &Capacities) -> Outcome {
    let format = args.output.format(args.format, Format::Text)?;
    let read = explained::read(trace, "the ideal run time")?;
    let cuts: Vec<i64> = args
        .phases
        .iter()
        .map(|seconds| {
            read.timeline
                .begins_ns
                .saturating_add((seconds * 1e9) as i64)
        })
        .collect();
    let phases = phases(&read.timeline, &cuts);
    let skews = receive_skew(&read.trace, &phases)?;
    let found: Option<Ideal> = ideal(&read.workflow, &read.timeline, capacities, &phases, &skews);
    let Some(found) = found else {
        return Err(Failure::new(
            1,
            format!(
                "{}: nothing ran, or the number of CPUs is not recorded",
                trace.display()
            ),
        ));
    };
    output::write_to(&args.output, trace, |out| {
        match format {
            Format::Text => {
                let begins = read.timeline.begins_ns;
                output::text(out, &text::ideal::text(&found, capacities, begins))?;
            }
            Format::Json => {
                let whole = serde_json::json!({"ideal": found, "capacities": capacities});
                output::json(out, &whole)?;
            }
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}
