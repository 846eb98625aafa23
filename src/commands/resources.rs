//! `flowtrace resources`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::analysis::resources::{Capacity, PARTS, Resources, resources};
use flowtrace_profiler::export::rows::Csv;
use flowtrace_profiler::text;
use flowtrace_schema::{Table, Value};

use crate::explained::{self, Explained};
use crate::output;

/// Say where the time went: CPU, memory, disk in sequence or not, network, waiting
///
/// Per machine and over time from its counters, per step and process from what they did. The
/// shares always sum to 1. Several traces are compared, by the number of their machines.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Traces to read
    #[arg(required = true)]
    traces: Vec<PathBuf>,
    /// What the network can carry, both directions together, in MB/s
    #[arg(long, value_name = "MB/S", value_parser = super::ideal::rate)]
    network: Option<f64>,
    /// Text, JSON with everything, or CSV with a row per machine and interval [default: by the ending of FILE, else text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    output: output::Target,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// The answer and tables
    Text,
    /// An array with an object for each trace; times in nanoseconds, shares from 0 to 1
    Json,
    /// A row for each machine and interval
    Csv,
}

pub(crate) fn run(args: &Args) -> super::Outcome {
    let format = args.output.format(args.format, Format::Text)?;
    let network = args.network.or_else(|| {
        let known = super::ideal::stored(None).ok()??;
        Some(known.network?.value * 1e-6)
    });
    let capacity = Capacity {
        network: network.map(|rate| rate * 1e6),
    };
    let mut runs: Vec<(String, Explained, Resources)> = Vec::new();
    for path in &args.traces {
        let read = explained::read(path, "resources")?;
        let sequences = read.trace.sequences()?;
        let found = resources(&read.workflow, &read.timeline, &sequences, capacity);
        runs.push((path.display().to_string(), read, found));
    }
    let trace = &args.traces[0];
    output::write_to(&args.output, trace, |out| {
        match format {
            Format::Text => match runs.as_slice() {
                [(_, read, found)] => {
                    out.write_all(text::resources::text(found, &read.timeline).as_bytes())?;
                }
                several => {
                    let mut rows: Vec<(String, usize, Resources)> = several
                        .iter()
                        .map(|(name, read, found)| {
                            (name.clone(), read.timeline.hosts.len(), found.clone())
                        })
                        .collect();
                    rows.sort_by_key(|row| row.1);
                    out.write_all(text::resources::against_hosts(&rows).as_bytes())?;
                }
            },
            Format::Json => {
                let all: Vec<_> = runs.iter().map(|(_, _, found)| found).collect();
                output::json(out, &all)?;
            }
            Format::Csv => csv(&runs, out)?,
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn csv(runs: &[(String, Explained, Resources)], out: &mut dyn Write) -> std::io::Result<()> {
    let mut csv = Csv::new(out);
    let first = ["trace", "host_id", "from_ns", "to_ns"];
    let names: Vec<String> = first
        .iter()
        .chain(&PARTS)
        .map(|&name| name.into())
        .collect();
    csv.columns(&names)?;
    for (name, _, found) in runs {
        for interval in &found.intervals {
            let mut row = vec![
                Value::Text(name.clone()),
                Value::Integer(interval.host_id),
                Value::Integer(interval.from),
                Value::Integer(interval.to),
            ];
            row.extend(interval.shares.map(Value::Real));
            csv.row(row)?;
        }
    }
    Ok(())
}
